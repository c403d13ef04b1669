"""`SealLearner`: the gradient steps of a round, on one process or shared out over several."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from envs.errors import SealError
from policies.engine.stored import StoredWeights, store
from seal_ray.config.resolve import Resolved
from seal_ray.config.schema import TrainingSection
from seal_ray.grpo.losses import global_mean
from seal_ray.grpo.packing import Groups, Packed, collate, pack
from seal_ray.grpo.rows import Minibatch, Row, make_row
from seal_ray.grpo.schedule import Schedule
from seal_ray.rllib import RowsLearner
from seal_ray.training.arm_gradients import ArmGradients
from seal_ray.training.heap import release_memory
from seal_ray.training.hint_stripped import Counts, Internalisation, RowLoss, internalisation, logprob_gaps
from seal_ray.training.module import LOGPROBS, PACKED, REFERENCE, LMModule, fill, is_sharded, whole
from seal_ray.training.weights import full_weights

MINIBATCHES = "minibatches"
"""Column: a learner's share of each minibatch of the round, in the order of the gradient steps."""
PROXIMAL = "proximal_logprobs_M"
"""The learner's own log-probs of a micro-batch's sampled tokens before the round's first step, where they are asked
for; None where none is."""

LEARNT = (
    *("steps", "tokens", "loss", "kl", "kl_sampler", "clip_fraction", "capped_fraction"),
    *("ratio_first", "ratio_first_error", "gradient_norm", "learning_rate"),
    *("hint_stripped_tokens", "hint_stripped_ratio_first", "hint_stripped_clip_fraction", "off_policy_weight"),
    "gpu_memory_gib",
)
"""What a round's update counts; `seal_ray/metrics.py` defines each."""

_STEPS = "gradient_steps"

T = TypeVar("T")


class _Agent:
    """How one module learns, and the gradient steps that it has taken."""

    def __init__(self, training: TrainingSection) -> None:
        self.training = training
        self.loss = RowLoss(training)
        self.schedule = Schedule(training.schedule, training.warm_up, training.gradient_steps)
        self.steps = 0
        self.internalisation: dict[str, Internalisation] = {}


class SealLearner(RowsLearner):
    """GRPO with AdamW. One `update` is a round: some gradient steps, each over micro-batches without padding.

    Where there are several learners, each has its share of every step's rows; the loss is the mean over the tokens of
    all of them.
    """

    config: Resolved  # type: ignore[assignment] # RLlib declares its own class

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        spec = self.config.spec
        self._learners = spec.learners
        self._agents = {name: _Agent(spec.agents[name].training) for name in spec.learning_agents}
        self._microbatch_tokens = spec.training.microbatch_tokens
        self.counted = Counts()
        self._arms: dict[str, ArmGradients] = {}
        self._stored: dict[str, deque[StoredWeights]] = defaultdict(lambda: deque(maxlen=2))

    def build(self) -> None:
        if self._learners.threads is not None:
            torch.set_num_threads(self._learners.threads)
        super().build()

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        del config  # our own sections have the settings
        module, training = self.wrapped(module_id), self._agents[module_id].training
        params = [parameter for parameter in module.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(params, lr=training.lr, eps=training.adam_epsilon, weight_decay=0.0)
        # What AdamW would set up at its first step: so the state always has the same tensors.
        for parameter in params:
            optimizer.state[parameter] = {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=params)

    def shard(self, modules: Sequence[nn.Module]) -> bool:
        if not self._learners.fsdp:
            return False
        # Layer by layer, so that no device ever holds all of it.
        mesh = init_device_mesh(self.device.type, (self.config.num_learners,))
        for module in modules:
            assert isinstance(module, LMModule)
            _shard(module, mesh)
        return True

    def learn(self, batch: Mapping[str, Any]) -> None:
        for module_id, columns in batch.items():
            self._learn(module_id, columns[MINIBATCHES])
        release_memory()  # an engine on this machine samples next

    def _learn(self, module_id: str, minibatches: Sequence[Minibatch]) -> None:
        optimizer, agent = self.get_optimizer(module_id), self._agents[module_id]
        groups = list({tuple(map(id, group)): group for each in minibatches for group in each.groups}.values())
        proximal = self._own_logprobs(module_id, groups)
        self._arms[module_id] = ArmGradients(self._plain(module_id))
        counts = first = Counts()
        norm, rate = 0.0, 0.0
        for place, minibatch in enumerate(minibatches):
            sums = self._backward(module_id, minibatch, proximal)
            if not place:
                first = sums
            counts = counts + sums
            rate = agent.training.lr * agent.schedule.factor(agent.steps)
            norm = self._step(module_id, optimizer, rate)
            agent.steps += 1
        agent.internalisation = self._measure(module_id, groups, proximal)
        total, sampled, stripped = counts.all, counts.sampled, counts.stripped
        values = {
            "steps": len(minibatches),
            "tokens": total.tokens,
            "loss": total.loss / max(1, total.tokens),
            "kl": total.reference_kl / max(1, total.tokens),
            "kl_sampler": sampled.sampler_kl / max(1, sampled.tokens),
            "clip_fraction": total.clipped / max(1, total.tokens),
            "capped_fraction": sampled.capped / max(1, sampled.tokens),
            "ratio_first": first.sampled.ratio / max(1, first.sampled.tokens),
            # k3 is x²/2 for small x: the root mean square of the log-ratio.
            "ratio_first_error": math.sqrt(2 * max(0.0, first.sampled.sampler_kl) / max(1, first.sampled.tokens)),
            "gradient_norm": norm,
            "learning_rate": rate,
            "hint_stripped_tokens": stripped.tokens,
            "hint_stripped_ratio_first": first.stripped.ratio / max(1, first.stripped.tokens),
            "hint_stripped_clip_fraction": stripped.clipped / max(1, stripped.tokens),
            "off_policy_weight": counts.weight / max(1, stripped.tokens),
            "gpu_memory_gib": _most_on_gpu(self.device) / 2**30,
        }
        assert values.keys() == set(LEARNT)
        for key, value in values.items():
            self.metrics.log_value((module_id, key), value, reduce="mean", window=1)

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Mapping[str, Any], fwd_out: Mapping[str, Any]
    ) -> Tensor:
        """The loss of one micro-batch, summed over its sampled tokens. What is counted is added to `counted`."""
        del config  # our own sections have the settings
        packed: Packed = batch[PACKED]
        loss_sum, counts = self._agents[module_id].loss(
            fwd_out[LOGPROBS], packed, reference_M=fwd_out.get(REFERENCE), proximal_M=batch[PROXIMAL]
        )
        self.counted = self.counted + counts
        return loss_sum

    def _backward(self, module_id: str, minibatch: Minibatch, proximal: Mapping[int, Tensor]) -> Counts:
        """Adds up the gradient of one step over micro-batches. Returns the sums over all learners."""
        module, config = self.wrapped(module_id), self.config.get_config_for_module(module_id)
        self.counted = Counts()
        loss_of_rows = self._agents[module_id].loss
        # Not the module's: after a forward pass alone, FSDP has it hold whole parameters, which have no gradients.
        self.get_optimizer(module_id).zero_grad(set_to_none=True)
        batches = self._micro_batches(module_id, minibatch.groups)
        world = max(1, self.config.num_learners)
        for place, groups in enumerate(batches):
            members = [row for group in groups for row in group]
            if self.distributed and not self._learners.fsdp:
                # Whole gradients are exchanged once a step; sharded ones each time, or they would be held whole.
                module.require_backward_grad_sync = place == len(batches) - 1
            packed = collate(groups).to(self.device)
            proximal_M = None
            if any(map(loss_of_rows.needs_own_logprobs, members)):
                proximal_M = torch.cat([proximal.get(id(row), _as_sampled(row)) for row in members]).to(self.device)
            packed, weight = loss_of_rows.reweight(packed, proximal_M)
            self.counted = self.counted + Counts(weight=weight)
            batch = {PACKED: packed, PROXIMAL: proximal_M}
            fwd_out = module({PACKED: packed})
            self._arms[module_id].add(members, packed, fwd_out[LOGPROBS])
            loss_sum = self.compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
            # Learners' gradients are averaged; the loss needs their sum.
            loss = global_mean(loss_sum, minibatch.global_tokens) * world
            loss.backward()  # type: ignore[no-untyped-call]
        return sum(self._all_gather(self.counted), Counts())

    def alignments(self, module_id: str, arms: Sequence[str]) -> tuple[Tensor, float]:
        """`products_AA` of the policy gradients of A arms in the last update, over all learners; see `alignment.py`.

        And the seconds of that update that these gradients took here.
        """
        found = self._arms[module_id]
        gradients_AP = torch.stack([found.gradient(arm) for arm in arms])
        if self.distributed:
            dist.all_reduce(gradients_AP)
        return (gradients_AP @ gradients_AP.T).cpu(), found.seconds

    def _step(self, module_id: str, optimizer: Any, rate: float) -> float:
        """One step of the optimizer. Returns the norm of the gradient before it was clipped."""
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        found: Any = nn.utils.clip_grad_norm_(parameters, self._agents[module_id].training.grad_clip)
        norm = float(found.full_tensor() if is_sharded(found) else found)
        if not math.isfinite(norm):
            raise SealError(f"learner: the gradient of {module_id} is not finite; lower training.lr.")
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        return norm

    def _micro_batches(self, module_id: str, groups: Sequence[Sequence[Row]]) -> list[Groups]:
        """The groups in micro-batches, as many as the other learners have: a forward pass is one of all together."""
        if not self._plain(module_id).shares_tokens:
            groups = [[row] for group in groups for row in group]
        batches = pack(groups, self._microbatch_tokens)
        return [*batches, *[[[_EMPTY]]] * (self._all_reduce_max(len(batches)) - len(batches))]

    def total_logprob(self, module_id: str, groups: Sequence[Sequence[Row]]) -> float:
        """The log-probs (nats) of all sampled tokens of these rows, added up; over all learners, each with its own."""
        own = sum(float(logprobs.double().sum()) for logprobs in self._logprobs(module_id, groups).values())
        if self._learners.fsdp:
            self.wrapped(module_id).reshard()  # see `_measure`
        return sum(self._all_gather(own))

    def _own_logprobs(self, module_id: str, groups: Sequence[Sequence[Row]]) -> dict[int, Tensor]:
        """The log-probs of the sampled tokens of rows that the learner's own are asked for, by a row's identity."""
        asks = self._agents[module_id].loss.needs_own_logprobs
        return self._logprobs(module_id, [[row for row in group if asks(row)] for group in groups])

    @torch.no_grad()
    def _logprobs(self, module_id: str, groups: Sequence[Sequence[Row]]) -> dict[int, Tensor]:
        """The log-probs of the sampled tokens of these rows, by a row's identity. Groups can be empty."""
        module = self.wrapped(module_id)
        found: dict[int, Tensor] = {}
        for batch in self._micro_batches(module_id, [group for group in groups if group]):
            members = [row for group in batch for row in group]
            logprobs = module({PACKED: collate(batch).to(self.device)})[LOGPROBS].cpu()
            parts = logprobs.split([row.sampled_tokens for row in members])
            found |= {id(row): part for row, part in zip(members, parts, strict=True)}
        return found

    def _measure(
        self, module_id: str, groups: Sequence[Sequence[Row]], before: Mapping[int, Tensor]
    ) -> dict[str, Internalisation]:
        """Arm → how the log-probs of its hint-stripped rows changed in the round, over all learners."""
        stripped = [[row for row in group if row.stripped_of is not None] for group in groups]
        rows = [row for group in stripped for row in group]
        after = logprob_gaps(rows, self._own_logprobs(module_id, stripped))
        if self._learners.fsdp:
            # It holds whole parameters after a forward pass alone, which are neither stored nor written.
            self.wrapped(module_id).reshard()
        return internalisation(self._all_gather((logprob_gaps(rows, before), after)))

    def internalisation(self, module_id: str) -> dict[str, Internalisation]:
        """The same of the last update."""
        return self._agents[module_id].internalisation

    def _all_reduce_max(self, count: int) -> int:
        if not self.distributed:
            return count
        most = torch.tensor(count, device=self.device)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        return int(most)

    def _all_gather(self, own: T) -> list[T]:
        """What each learner has of something."""
        if not self.distributed:
            return [own]
        parts: list[Any] = [None] * self.config.num_learners
        dist.all_gather_object(parts, own)
        return parts

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As RLlib's, with each agent's gradient steps so far, by which the learning rate goes."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        return {**state, _STEPS: {name: agent.steps for name, agent in self._agents.items()}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse. What is missing is left as it is."""
        super().set_state(state)
        for name, steps in state.get(_STEPS, {}).items():
            self._agents[name].steps = steps

    def store(self, module_id: str, shapes: Mapping[str, tuple[int, ...]], dtype: str) -> StoredWeights | None:
        """What learns of a module as an engine takes it (`full_weights`), in this machine's shared memory.

        All ranks must call this; the first gets it, and keeps it until the call after the next.
        """
        learning = self._plain(module_id).learning()
        state = {name: whole(parameter, copy=False) for name, parameter in learning.items()}
        if self.distributed and dist.get_rank():
            return None
        stored = store(full_weights(state, shapes, dtype))
        self._stored[module_id].append(stored)
        return stored

    def write_shards(self, folder: Path) -> None:
        """Writes weights and optimizer, each rank its part. All ranks must call this, with one folder for all."""
        # Imported here: with it an env runner, which imports this file too, would start 0.7 seconds of a core later.
        from torch.distributed.checkpoint.state_dict_saver import save

        from seal_ray.training.shards import ShardWriter

        save(self._tensors(), storage_writer=ShardWriter(folder))

    def read_shards(self, folder: Path) -> None:
        """The inverse, for any number of learners."""
        from torch.distributed.checkpoint.state_dict_loader import load

        from seal_ray.training.shards import ShardReader

        load(self._tensors(), storage_reader=ShardReader(folder))

    def _tensors(self) -> dict[str, Any]:
        """Weights and optimizer of each module, not copied."""
        return {
            module_id: {"weights": self._plain(module_id).learning(), "optimizer": self._of_optimizer(module_id)}
            for module_id in self.module_ids
        }

    def _of_optimizer(self, module_id: str) -> dict[str, dict[str, Tensor]]:
        """Each parameter's moments and number of steps, by its name, not copied."""
        state = self.get_optimizer(module_id).state
        return {name: state[parameter] for name, parameter in self._plain(module_id).learning().items()}

    def optimizer_state(self) -> dict[str, Any]:
        return {
            module_id: {
                parameter: {key: whole(tensor) for key, tensor in tensors.items()}
                for parameter, tensors in self._of_optimizer(module_id).items()
            }
            for module_id in self.module_ids
        }

    def load_optimizer_state(self, state: Mapping[str, Any]) -> None:
        for module_id, saved in state.items():
            for parameter, tensors in self._of_optimizer(module_id).items():
                for key, tensor in tensors.items():
                    fill(tensor, saved[parameter][key])

    def _plain(self, module_id: str) -> LMModule:
        module = self.wrapped(module_id).unwrapped()
        assert isinstance(module, LMModule)
        return module


_EMPTY = make_row([0, 0], [False, False], [0.0, 0.0], 0.0)
"""A row without sampled tokens, for learners that have fewer than others."""


def _as_sampled(row: Row) -> Tensor:
    """The log-probs of a row's sampled tokens as it was sampled."""
    return torch.from_numpy(row.sampled_logprobs_T[row.mask_T])


def _most_on_gpu(device: torch.device) -> int:
    """Bytes of GPU memory that this process's tensors have taken at most."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0


def columns(minibatches: Sequence[Minibatch]) -> dict[str, Any]:
    """The columns of the batch that RLlib carries to one learner."""
    column = np.empty(len(minibatches), dtype=object)
    column[:] = minibatches
    return {MINIBATCHES: column}


def _shard(module: LMModule, mesh: DeviceMesh) -> None:
    """Shards each layer over the learners, then what is left (FSDP2), and moves them to the mesh's devices."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if module.half else MixedPrecisionPolicy()
    for part in list(module.modules()):
        if isinstance(part, nn.ModuleList):
            for layer in part:
                fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(module, mesh=mesh, mp_policy=policy)
