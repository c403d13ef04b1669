"""`LMModule`: a causal language model as an RLModule, with its LoRA adapter or its frozen reference copy."""

import copy
import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Self

import torch
from torch import Tensor, nn

from envs.errors import SealError
from policies.engine.choice import choose_dtype
from policies.models import open_model
from policies.models.folder import DATA_ONLY
from seal_ray.config.resolve import LORA_TARGETS, AgentSpec
from seal_ray.config.schema import LearnersSection
from seal_ray.grpo.attention import choose_attention
from seal_ray.grpo.forward import attends_to_segments, token_logprobs
from seal_ray.grpo.packing import Packed
from seal_ray.rllib import RowsModule

PACKED = "packed"
LOGPROBS = "logprobs_M"
REFERENCE = "reference_logprobs_M"

_WEIGHTS = "weights"
_log = logging.getLogger("seal_ray")


class LMModule(RowsModule):
    """The language model that learns.

    `module({PACKED: packed})` returns the log-probs (nats) of M sampled tokens, also under the reference policy if the
    loss has a KL: the base with the adapter off, or a frozen copy of the first weights. Weights that learn are float32;
    with `half` computation is in bfloat16 by mixed precision, and matrices that do not learn are bfloat16.
    """

    def setup(self) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        values: Any = self.model_config
        self._agent: AgentSpec = values["agent"]
        self._kl = self._agent.training.kl
        learners: LearnersSection = values["learners"]
        self._sharded = learners.fsdp
        folder = open_model(self._agent.model, dialect=self._agent.dialect).path
        device = torch.device("cuda" if learners.num_gpus_per_learner else "cpu")
        self.half = choose_dtype(self._agent.dtype, on_gpu=device.type != "cpu") == "bfloat16"
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        attention = choose_attention(config, device, half=self.half)
        _log.info("attention of the learner: %s", attention)
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation=attention, **DATA_ONLY
        )
        model.requires_grad_(True)
        if self._agent.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        self.reference: nn.Module | None = None
        self.reshard_reference: Callable[[], None] = lambda: None
        """Called after each forward pass of the reference."""
        if self._agent.lora_rank:
            from peft import LoraConfig, get_peft_model

            if self._agent.gradient_checkpointing:
                model.enable_input_require_grads()
            lora = LoraConfig(
                r=self._agent.lora_rank,
                lora_alpha=self._agent.lora_alpha,
                target_modules=list(LORA_TARGETS),
                lora_dropout=0.0,
                task_type="CAUSAL_LM",
            )
            model = get_peft_model(self._frozen(model), lora)
        elif self._kl:
            self.reference = self._frozen(copy.deepcopy(model)).requires_grad_(False).eval()
        self.language_model = model

    def _frozen(self, model: Any) -> Any:
        """The model with its matrices in the dtype of their products: the same results in half the memory."""
        embedding = model.get_input_embeddings().weight
        for module in model.modules():
            if self.half and type(module) is nn.Linear and module.weight is not embedding:
                module.to(torch.bfloat16)
        return model

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.reference is not None:
            self.reference.eval()
        return self

    def forward_rows(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        packed: Packed = batch[PACKED]
        outputs = {LOGPROBS: self.logprobs(packed)}
        if self._kl and torch.is_grad_enabled():
            model: Any = self.language_model if self.reference is None else self.reference
            base = model.disable_adapter() if self.reference is None else nullcontext()
            with torch.no_grad(), self._precision(packed), base:
                outputs[REFERENCE] = token_logprobs(model, packed, temperature=self._agent.temperature)
            self.reshard_reference()
        return outputs

    @property
    def shares_tokens(self) -> bool:
        """Whether rows of a group may be packed with shared tokens laid out once."""
        return attends_to_segments(self.language_model)

    def logprobs(self, packed: Packed) -> Tensor:
        """`logprobs_M` (nats) of the sampled tokens."""
        with self._precision(packed):
            return token_logprobs(self.language_model, packed, temperature=self._agent.temperature)

    def _precision(self, packed: Packed) -> Any:
        if self._sharded or not self.half:  # FSDP casts sharded weights itself
            return nullcontext()
        return torch.autocast(packed.token_ids_1N.device.type, torch.bfloat16)

    def learning(self) -> dict[str, nn.Parameter]:
        """The trainable parameters by name; of tied ones the first."""
        return {name: parameter for name, parameter in self.named_parameters() if parameter.requires_grad}

    def get_state(self, *_: Any, inference_only: bool = False, **__: Any) -> dict[str, Any]:
        """Copies of the trainable parameters on the CPU, by name. Empty for `inference_only`.

        If the weights are sharded, all ranks must call this, and the first gets the state.
        """
        if inference_only:
            return {}
        return {_WEIGHTS: {name: whole(parameter) for name, parameter in self.learning().items()}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse. An empty state changes nothing. Raises `SealError` for the state of another model."""
        if _WEIGHTS not in state:
            return
        weights: Mapping[str, Tensor] = state[_WEIGHTS]
        learning = self.learning()
        if {name: value.shape for name, value in weights.items()} != {name: p.shape for name, p in learning.items()}:
            raise SealError("learner: the state's weights are of another solver.model or solver.lora_rank.")
        for name, parameter in learning.items():
            fill(parameter, weights[name])


def is_sharded(tensor: Tensor) -> bool:
    """Whether it is a DTensor, without importing that class, which takes 0.7 seconds of a core."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor, *, copy: bool = True, dtype: torch.dtype | None = None) -> Tensor:
    """A copy on the CPU; without `copy` the tensor itself if it is there, in that type.

    A sharded tensor is gathered to the first rank, after each rank has converted its part; all ranks must call this.
    """
    value, mesh = gathered(tensor, dtype), getattr(tensor, "device_mesh", None)
    if mesh is not None and mesh.get_rank():
        return torch.empty(0, dtype=value.dtype, device=value.device)
    return value.to("cpu", copy=copy)


def gathered(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The whole tensor on this rank's device, in that type; not copied if it is there. All ranks must call this."""
    value: Any = tensor.detach().to(dtype)
    whole_value: Tensor = value.full_tensor() if is_sharded(value) else value
    return whole_value


def fill(tensor: Tensor, value: Tensor) -> None:
    """Copies the whole value into a tensor of its shape; into a sharded one, this rank's part."""
    with torch.no_grad():
        if is_sharded(tensor):
            from torch.distributed.tensor import distribute_tensor

            target: Any = tensor
            value = distribute_tensor(
                value.to(target.device), target.device_mesh, target.placements, src_data_rank=None
            )
        tensor.copy_(value)
