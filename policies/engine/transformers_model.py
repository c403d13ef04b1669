"""The model inside the transformers engine: its forward pass, its adapters, and weights in with proof of delivery."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, DynamicCache

from policies.engine import Adapter, DeliveryError
from policies.engine.delivery import stale_modules
from policies.models.folder import DATA_ONLY

BASE_SLOT = "__base__"
"""PEFT's name, among the adapters of a batch, for rows without an adapter."""


class ServedModel:
    """A causal language model with any number of LoRA adapters; each row of a batch names the one that it uses.

    Every adapter has a slot with a name of its own, so that running rows keep a policy's old adapter.
    """

    def __init__(self, folder: Path, dtype: str, device: str) -> None:
        options = {"dtype": getattr(torch, dtype), "local_files_only": True, **DATA_ONLY}
        net = AutoModelForCausalLM.from_pretrained(folder, **options)
        self.net: nn.Module = net.eval()
        self.net.to(device)
        self._peft: Any = None
        self._names = itertools.count()
        self.device = torch.device(device)
        self.adaptable = {
            name: (module.out_features, module.in_features)
            for name, module in self.net.named_modules()
            if isinstance(module, nn.Linear) and name != "lm_head"
        }
        """Module that an adapter can change → its weight's shape (out, in)."""

    def forward(
        self,
        ids_BT: torch.Tensor,
        slots_B: Sequence[str],
        *,
        keep: int,
        cache: DynamicCache | None,
        mask_BT: torch.Tensor,
    ) -> torch.Tensor:
        """Logits of the last `keep` positions (B, keep, V). `mask_BT` covers the cache too and is 0 at left padding."""
        positions_BT = (mask_BT.cumsum(-1) - 1).clamp(min=0)[:, -ids_BT.shape[1] :]
        inputs: dict[str, Any] = {
            "input_ids": ids_BT,
            "attention_mask": mask_BT,
            "position_ids": positions_BT,
            "past_key_values": cache,
            "use_cache": cache is not None,
            "logits_to_keep": keep,
        }
        # Rows of different adapters go through the base's layers together.
        net = self.net if self._peft is None else self._peft
        if self._peft is not None:
            inputs["adapter_names"] = list(slots_B)
        logits_BKV: torch.Tensor = net(**inputs).logits
        return logits_BKV

    @torch.no_grad()
    def load(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Copies checkpoint tensors into the model. Raises `DeliveryError` if it then holds anything else."""
        for name, parameter in self.net.named_parameters(remove_duplicate=False):
            source = name.replace(".base_layer.", ".")
            if source in weights:
                parameter.copy_(weights[source])
        sent = {name: tensor.to(self.device) for name, tensor in weights.items()}
        _check_delivered(sorted(stale_modules(self.net, sent)), version)

    def add(self, adapter: Adapter, version: int) -> str:
        """Puts a checked adapter into a new slot and returns its name. Raises `DeliveryError` if it differs there."""
        from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict

        slot = f"slot{next(self._names)}"
        modules = {name.removeprefix("base_model.model.").rpartition(".lora_")[0] for name in adapter.tensors}
        config = LoraConfig(
            r=adapter.config["r"],
            lora_alpha=adapter.config["lora_alpha"],
            use_rslora=bool(adapter.config.get("use_rslora")),
            target_modules=sorted(modules),
            inference_mode=True,
        )
        if self._peft is None:
            self._peft = get_peft_model(self.net, config, adapter_name=slot, autocast_adapter_dtype=False)
        else:
            self._peft.add_adapter(slot, config, autocast_adapter_dtype=False)
        self._peft.eval()  # new layers start in training mode
        sent = dict(adapter.tensors)
        set_peft_model_state_dict(self._peft, sent, adapter_name=slot)
        loaded = get_peft_model_state_dict(self._peft, adapter_name=slot, save_embedding_layers=False)
        same = {name for name in loaded.keys() & sent if torch.equal(loaded[name], sent[name].to(loaded[name]))}
        _check_delivered(sorted((loaded.keys() | sent.keys()) - same), version)
        self._peft.set_adapter(slot)  # PEFT warns if the active adapter is removed
        return slot

    def keep_slots(self, used: set[str]) -> None:
        """Removes the adapters of all other slots."""
        if self._peft is not None:
            for slot in set(self._peft.peft_config) - used:
                self._peft.delete_adapter(slot)


def _check_delivered(stale: Sequence[str], version: int) -> None:
    if stale:
        raise DeliveryError(f"the engine does not compute with version {version} in: {', '.join(stale)}")
