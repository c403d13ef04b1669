"""`SealLearner`: the gradient steps of a round, on one process or shared out over several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from envs.errors import SealError
from seal_ray.algorithm.alignment import ArmGradients
from seal_ray.algorithm.module import LOGPROBS, PACKED, REFERENCE, LMModule, fill, whole
from seal_ray.config.agents import learning_agents, training_of
from seal_ray.config.objects import make_loss
from seal_ray.config.sections import Learners, Solver, Training
from seal_ray.grpo.losses.sums import LossSums, global_mean
from seal_ray.grpo.packing import Packed, collate, pack
from seal_ray.grpo.rows import Row, make_row
from seal_ray.grpo.schedule import Schedule

if TYPE_CHECKING:
    from seal_ray.config.settings import Settings

ROWS = "rows"
"""Column of `Row`s."""
STEP = "step"
"""Column: the gradient step of the round, from 0, that the row belongs to."""
TOKENS = "tokens"
"""Column: sampled tokens of that step in all learners together."""
PROXIMAL = "proximal_logprobs_M"
"""The learner's own log-probs of a micro-batch's sampled tokens before the round's first step, or None."""

LEARNT = (
    *("steps", "tokens", "loss", "kl", "kl_sampler", "clip_fraction", "capped_fraction"),
    *("ratio_first", "ratio_first_error", "gradient_norm", "learning_rate"),
)
"""What a round's update counts; `seal_ray/report/metrics.py` says what each is."""

_STEPS = "gradient_steps"


class RatioError(SealError, RuntimeError):
    """The learner does not hold the weights that the rollouts were sampled with."""


class _Agent:
    """How one module learns, and the gradient steps that it has taken."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.loss = make_loss(training)
        self.schedule = Schedule(training.schedule, training.warm_up, training.gradient_steps)
        self.steps = 0


class SealLearner(TorchLearner):
    """GRPO with AdamW. One `update` is a round: some gradient steps, each over micro-batches without padding.

    Where there are several learners, each has its share of every step's rows; the loss is the mean over the tokens of
    all of them.
    """

    config: Settings  # type: ignore[assignment] # RLlib knows it by all that it is
    _device: Any
    _module: Any

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self._learners = self.config.section(Learners)
        self._agents = {agent: _Agent(training_of(self.config, agent)) for agent in learning_agents(self.config)}
        self._microbatch_tokens = self.config.section(Training).microbatch_tokens
        self.counted = LossSums()
        self._arms: dict[str, ArmGradients] = {}

    def build(self) -> None:
        if self._learners.threads is not None:
            torch.set_num_threads(self._learners.threads)
        super().build()

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        del config  # the settings of our own sections say more
        module, training = self._module[module_id], self._agents[module_id].training
        params = [parameter for parameter in module.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(
            params, lr=training.lr, eps=training.adam_epsilon, weight_decay=training.weight_decay
        )
        # What AdamW would set up at its first step: so the state always has the same tensors.
        for parameter in params:
            optimizer.state[parameter] = {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=params)

    def _map_module_to_device(self, module: Any) -> None:
        if not self._learners.fsdp:
            super()._map_module_to_device(module)
            return
        # Layer by layer, so that no device ever holds all of it.
        mesh = init_device_mesh(self._device.type, (self.config.num_learners,))
        half = self.config.section(Solver).dtype == "bfloat16"
        for key in module.keys():  # noqa: SIM118 - it is no mapping
            _shard(module[key], mesh, half=half)

    def _make_modules_ddp_if_necessary(self) -> None:
        if not self._learners.fsdp:
            super()._make_modules_ddp_if_necessary()

    def _uncompiled_update(self, batch: Mapping[str, Any], **_: Any) -> tuple[Any, Any, Any]:
        for module_id, columns in batch.items():
            steps: dict[int, list[Row]] = {}
            tokens: dict[int, int] = {}
            for row, step, count in zip(columns[ROWS], columns[STEP], columns[TOKENS], strict=True):
                steps.setdefault(int(step), []).append(row)
                tokens[int(step)] = int(count)
            self._learn(module_id, [steps[step] for step in sorted(steps)], [tokens[step] for step in sorted(tokens)])
        return {}, {}, {}

    def _learn(self, module_id: str, steps: Sequence[Sequence[Row]], tokens: Sequence[int]) -> None:
        module, optimizer, agent = self._module[module_id], self.get_optimizer(module_id), self._agents[module_id]
        proximal = self._proximal(module, steps) if agent.loss.needs_proximal else {}
        self._arms[module_id] = ArmGradients(self._plain(module_id))
        total = first = LossSums()
        norm, rate = 0.0, 0.0
        for place, (rows, count) in enumerate(zip(steps, tokens, strict=True)):
            sums = self._backward(module_id, rows, count, proximal)
            if not place:
                first = sums
            total = total + sums
            rate = agent.training.lr * agent.schedule.factor(agent.steps)
            norm = self._step(module_id, optimizer, rate)
            agent.steps += 1
        values = {
            "steps": len(steps),
            "tokens": total.tokens,
            "loss": total.loss / max(1, total.tokens),
            "kl": total.reference_kl / max(1, total.tokens),
            "kl_sampler": total.sampler_kl / max(1, total.tokens),
            "clip_fraction": (total.clipped_low + total.clipped_high + total.clipped_dual) / max(1, total.tokens),
            "capped_fraction": total.capped / max(1, total.tokens),
            "ratio_first": first.ratio / max(1, first.tokens),
            # k3 is x²/2 for small x: the root mean square of the log-ratio.
            "ratio_first_error": math.sqrt(2 * max(0.0, first.sampler_kl) / max(1, first.tokens)),
            "gradient_norm": norm,
            "learning_rate": rate,
        }
        assert values.keys() == set(LEARNT)
        for key, value in values.items():
            self.metrics.log_value((module_id, key), value, reduce="mean", window=1)

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Mapping[str, Any], fwd_out: Mapping[str, Any]
    ) -> Tensor:
        """The loss of one micro-batch, summed over its sampled tokens. What is counted is added to `counted`."""
        del config  # the settings of our own sections say more
        packed: Packed = batch[PACKED]
        losses = self._agents[module_id].loss(
            fwd_out[LOGPROBS],
            packed.old_logprobs_M,
            packed.advantages_M,
            reference_logprobs_M=fwd_out.get(REFERENCE),
            proximal_logprobs_M=batch[PROXIMAL],
        )
        self.counted = self.counted + losses.sums
        return losses.loss_sum

    def _backward(
        self, module_id: str, rows: Sequence[Row], global_tokens: int, proximal: Mapping[int, Tensor]
    ) -> LossSums:
        """Adds up the gradient of one step over micro-batches. Returns the sums over all learners."""
        module, config = self._module[module_id], self.config.get_config_for_module(module_id)
        self.counted = LossSums()
        # Not the module's: after a forward pass alone, FSDP has it hold whole parameters, which have no gradients.
        self.get_optimizer(module_id).zero_grad(set_to_none=True)
        bins = pack([len(row) for row in rows], self._microbatch_tokens)
        batches = [[rows[index] for index in each] for each in bins]
        # Each forward pass is one of all ranks together, so that each must have as many micro-batches.
        batches += [[_EMPTY]] * (self._most(len(batches)) - len(batches))
        world = max(1, self.config.num_learners)
        for place, members in enumerate(batches):
            if self.distributed and not self._learners.fsdp:
                # Whole gradients are exchanged once a step; sharded ones each time, or they would be held whole.
                module.require_backward_grad_sync = place == len(batches) - 1
            packed = collate(members).to(self._device)
            batch = {
                PACKED: packed,
                PROXIMAL: torch.cat([proximal[id(row)] for row in members]).to(self._device) if proximal else None,
            }
            fwd_out = module({PACKED: packed})
            self._arms[module_id].add(members, packed, fwd_out[LOGPROBS])
            loss_sum = self.compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
            # Learners' gradients are averaged, where the loss wants their sum.
            loss = global_mean(loss_sum, global_tokens) * world
            loss.backward()  # type: ignore[no-untyped-call]
        return self._over_learners(self.counted)

    def alignments(self, module_id: str, arms: Sequence[int]) -> tuple[Tensor, float]:
        """`products_AA` of the policy gradients of A arms in the last update, over all learners; see `alignment.py`.

        And the seconds of that update that these gradients took here.
        """
        found = self._arms[module_id]
        gradients_AP = torch.stack([found.of(arm) for arm in arms])
        if self.distributed:
            dist.all_reduce(gradients_AP)
        return (gradients_AP @ gradients_AP.T).cpu(), found.seconds

    def _step(self, module_id: str, optimizer: Any, rate: float) -> float:
        """One step of the optimizer. Returns the norm of the gradient before it was clipped."""
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        found: Any = nn.utils.clip_grad_norm_(parameters, self._agents[module_id].training.grad_clip)
        norm = float(found.full_tensor() if isinstance(found, DTensor) else found)
        if not math.isfinite(norm):
            raise SealError(f"learner: the gradient of {module_id} is not finite; lower training.lr.")
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        return norm

    @torch.no_grad()
    def _proximal(self, module: nn.Module, steps: Sequence[Sequence[Row]]) -> dict[int, Tensor]:
        """The log-probs of every row's sampled tokens before the round's first step, by the row's identity."""
        rows = list({id(row): row for each in steps for row in each}.values())
        found = {id(_EMPTY): torch.empty(0)}
        bins = pack([len(row) for row in rows], self._microbatch_tokens)
        for place in range(self._most(len(bins))):
            members = [rows[index] for index in bins[place]] if place < len(bins) else [_EMPTY]
            logprobs = module({PACKED: collate(members).to(self._device)})[LOGPROBS].cpu()
            parts = logprobs.split([row.sampled_tokens for row in members])
            found |= {id(row): part for row, part in zip(members, parts, strict=True)}
        return found

    def _most(self, count: int) -> int:
        if not self.distributed:
            return count
        most = torch.tensor(count, device=self._device)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        return int(most)

    def _over_learners(self, sums: LossSums) -> LossSums:
        if not self.distributed:
            return sums
        parts: list[Any] = [None] * self.config.num_learners
        dist.all_gather_object(parts, sums)
        total = LossSums()
        for part in parts:
            total = total + part
        return total

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As RLlib's, with each agent's gradient steps so far, by which the learning rate goes."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        return {**state, _STEPS: {name: agent.steps for name, agent in self._agents.items()}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse. What is missing is left as it is."""
        if WEIGHTS_SEQ_NO in state:
            # RLlib passes over weights with a number that is no higher than its own: what is restored is always set.
            self._weights_seq_no = 0
        super().set_state(dict(state))
        for name, steps in state.get(_STEPS, {}).items():
            self._agents[name].steps = steps

    def write_shards(self, folder: Path) -> None:
        """Writes weights and optimizer, each rank its part. All ranks must call this, with one folder for all."""
        save(self._tensors(), checkpoint_id=folder)

    def read_shards(self, folder: Path) -> None:
        """The inverse, for any number of learners."""
        load(self._tensors(), checkpoint_id=folder)

    def _tensors(self) -> dict[str, Any]:
        """Weights and optimizer of each module, not copied."""
        return {
            module_id: {"weights": self._plain(module_id).learning(), "optimizer": self._of_optimizer(module_id)}
            for module_id in self._optimizer_name_to_module.values()
        }

    def _of_optimizer(self, module_id: str) -> dict[str, dict[str, Tensor]]:
        """Each parameter's moments and number of steps, by its name, not copied."""
        state = self.get_optimizer(module_id).state
        return {name: state[parameter] for name, parameter in self._plain(module_id).learning().items()}

    def _get_optimizer_state(self) -> dict[str, Any]:
        return {
            module_id: {
                parameter: {key: whole(tensor) for key, tensor in tensors.items()}
                for parameter, tensors in self._of_optimizer(module_id).items()
            }
            for module_id in self._optimizer_name_to_module.values()
        }

    def _set_optimizer_state(self, state: Mapping[str, Any]) -> None:
        for module_id, saved in state.items():
            for parameter, tensors in self._of_optimizer(module_id).items():
                for key, tensor in tensors.items():
                    fill(tensor, saved[parameter][key])

    def _plain(self, module_id: str) -> LMModule:
        module = self._module[module_id].unwrapped()
        assert isinstance(module, LMModule)
        return module


_EMPTY = make_row([0, 0], [False, False], [0.0, 0.0], 0.0)
"""A row without sampled tokens, for learners that have fewer than others."""


def columns(rows: Sequence[Sequence[Row]], tokens: Sequence[int]) -> dict[str, Any]:
    """The batch's columns of one learner: its rows of each step, and each step's sampled tokens in all learners."""
    flat = [(row, step) for step, members in enumerate(rows) for row in (members or [_EMPTY])]
    column = np.empty(len(flat), dtype=object)
    column[:] = [row for row, _ in flat]
    return {
        ROWS: column,
        STEP: np.array([step for _, step in flat]),
        TOKENS: np.array([tokens[step] for _, step in flat]),
    }


def _shard(module: nn.Module, mesh: DeviceMesh, *, half: bool) -> None:
    """Shards each layer over the learners, then what is left (FSDP2), and moves them to the mesh's devices."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if half else MixedPrecisionPolicy()
    for part in list(module.modules()):
        if isinstance(part, nn.ModuleList):
            for layer in part:
                fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(module, mesh=mesh, mp_policy=policy)
