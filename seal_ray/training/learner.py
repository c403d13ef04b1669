"""`SealLearner`: the gradient steps of a round, on one process or distributed over several."""

import logging
import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from envs.errors import SealError
from policies.engine.buckets import SharedBuffer, release_shared
from policies.engine.stored import StoredWeights, store
from policies.models import ModelFolder
from seal_ray.config.resolve import Resolved
from seal_ray.config.schema import TrainingSection
from seal_ray.grpo.losses import global_mean
from seal_ray.grpo.packing import Groups, collate, pack
from seal_ray.grpo.rows import Minibatch, Row, make_row
from seal_ray.grpo.schedule import rate_factor
from seal_ray.rllib import RowsLearner
from seal_ray.rollout.engine_actor import device_names
from seal_ray.training.fsdp import mesh_shape, shard_module
from seal_ray.training.heap import release_memory
from seal_ray.training.hint_stripped import (
    Counts,
    Internalisation,
    RowLoss,
    internalisation,
    logprob_gaps,
    loss_metrics,
)
from seal_ray.training.module import LOGPROBS, PACKED, REFERENCE, LMModule, fill, gathered, is_sharded, whole
from seal_ray.training.weights import DTYPES, by_checkpoint_name, export_adapter, export_model, full_weights

LEARNT = (
    *("steps", "tokens", "loss", "kl", "kl_sampler", "clip_fraction", "capped_fraction"),
    *("ratio_first", "ratio_first_error", "gradient_norm", "learning_rate"),
    *("hint_stripped_tokens", "hint_stripped_ratio_first", "hint_stripped_clip_fraction", "off_policy_weight"),
    "gpu_memory_gib",
    "out_of_memory",
)
"""Metrics of a round's update, defined in `seal_ray/metrics.py`."""

_STEPS = "gradient_steps"
_log = logging.getLogger("seal_ray")

T = TypeVar("T")


class _Agent:
    """The loss of one module, and its number of gradient steps."""

    def __init__(self, training: TrainingSection) -> None:
        self.training = training
        self.loss = RowLoss(training)
        self.steps = 0
        self.internalisation: dict[str, Internalisation] = {}


class SealLearner(RowsLearner):
    """GRPO with AdamW. One `update` is a round of gradient steps, each over micro-batches without padding.

    Each of several learners has a share of every step's rows; the loss is the mean over the tokens of all learners.
    """

    config: Resolved  # type: ignore[assignment] # RLlib declares its own class

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        spec = self.config.spec
        self._learners = spec.learners
        self._agents = {name: _Agent(spec.agents[name].training) for name in spec.learning_agents}
        self._microbatch_tokens = spec.training.microbatch_tokens
        self._out_of_memory = 0
        self._storing = ThreadPoolExecutor(1)
        self._stored: dict[str, deque[Future[StoredWeights]]] = defaultdict(lambda: deque(maxlen=2))
        self._shared: SharedBuffer | None = None
        self._writers: Any = None
        """The process group of ranks that write shards while they learn."""
        self._written: Any = None

    def build(self) -> None:
        if self._learners.threads is not None:
            torch.set_num_threads(self._learners.threads)
        super().build()

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        del config  # our own sections have the settings
        module, training = self.wrapped(module_id), self._agents[module_id].training
        params = [parameter for parameter in module.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(params, lr=training.lr, eps=training.adam_epsilon, weight_decay=0.0)
        # AdamW would create these at its first step; so the state always has the same tensors.
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
        # Layer by layer, so that no device holds all weights at any time.
        shape = mesh_shape([name.partition("/")[0] for name in self._all_gather(device_names()[0])])
        mesh = init_device_mesh(self.device.type, shape, mesh_dim_names=("machines", "learners")[-len(shape) :])
        for module in modules:
            assert isinstance(module, LMModule)
            shard_module(module, mesh)
        return True

    def learn(self, minibatches: Mapping[str, Sequence[Minibatch]]) -> None:
        for module_id, share in minibatches.items():
            self._learn(module_id, share)
        release_memory()  # an engine on this machine samples next

    def _learn(self, module_id: str, minibatches: Sequence[Minibatch]) -> None:
        optimizer, agent = self.get_optimizer(module_id), self._agents[module_id]
        groups = list({tuple(map(id, group)): group for each in minibatches for group in each.groups}.values())
        proximal = self._own_logprobs(module_id, groups)
        counts = first = Counts()
        norm, rate = 0.0, 0.0
        for place, minibatch in enumerate(minibatches):
            sums = self._backward_in_memory(module_id, minibatch, proximal)
            if not place:
                first = sums
            counts = counts + sums
            rate = agent.training.lr * rate_factor(agent.steps, agent.training)
            norm = self._step(module_id, optimizer, rate)
            agent.steps += 1
        agent.internalisation = self._measure(module_id, groups, proximal)
        values = {
            "steps": len(minibatches),
            "gradient_norm": norm,
            "learning_rate": rate,
            "gpu_memory_gib": torch.cuda.max_memory_allocated(self.device) / 2**30 if self.device.type == "cuda" else 0,
            "out_of_memory": self._out_of_memory,
            **loss_metrics(counts, first),
        }
        assert values.keys() == set(LEARNT)
        for key, value in values.items():
            self.metrics.log_value((module_id, key), value, reduce="mean", window=1)

    def _backward_in_memory(self, module_id: str, minibatch: Minibatch, proximal: Mapping[int, Tensor]) -> Counts:
        """As `_backward`; if memory runs out, once more with half the tokens in a micro-batch, now and later.

        Several learners run forward passes together, so that one cannot repeat its own.
        """
        try:
            return self._backward(module_id, minibatch, proximal)
        except torch.OutOfMemoryError:
            if self.distributed:
                raise
        self._out_of_memory += 1
        self._microbatch_tokens = max(1, self._microbatch_tokens // 2)
        _log.warning("out of memory: micro-batches now have %d tokens at most", self._microbatch_tokens)
        release_memory()
        return self._backward(module_id, minibatch, proximal)

    def _backward(self, module_id: str, minibatch: Minibatch, proximal: Mapping[int, Tensor]) -> Counts:
        """Accumulates the gradient of one step over micro-batches. Returns the sums over all learners."""
        module, row_loss, sums = self.wrapped(module_id), self._agents[module_id].loss, Counts()
        # Not the module's, which after a forward pass alone has FSDP's whole parameters without gradients.
        self.get_optimizer(module_id).zero_grad(set_to_none=True)
        batches = self._micro_batches(module_id, minibatch.groups)
        world = max(1, self.config.num_learners)
        for place, groups in enumerate(batches):
            members = [row for group in groups for row in group]
            is_last = place == len(batches) - 1
            if self._learners.fsdp:
                # Shards are reduced for each micro-batch, or would be held whole; between machines once a step.
                module.set_requires_all_reduce(is_last)
            elif self.distributed:
                module.require_backward_grad_sync = is_last
            packed = collate(groups).to(self.device)
            proximal_M = None
            if any(map(row_loss.needs_own_logprobs, members)):
                sampled = [torch.from_numpy(row.sampled_logprobs_T[row.mask_T]) for row in members]
                own = [proximal.get(id(row), each) for row, each in zip(members, sampled, strict=True)]
                proximal_M = torch.cat(own).to(self.device)
            packed, weight = row_loss.reweight(packed, proximal_M)
            out = module({PACKED: packed})
            loss_sum, counts = row_loss(out[LOGPROBS], packed, reference_M=out.get(REFERENCE), proximal_M=proximal_M)
            sums = sums + Counts(weight=weight) + counts
            # Learners' gradients are averaged; the loss needs their sum.
            loss = global_mean(loss_sum, minibatch.global_tokens) * world
            loss.backward()  # type: ignore[no-untyped-call]
        return sum(self._all_gather(sums), Counts())

    def _step(self, module_id: str, optimizer: Any, rate: float) -> float:
        """One step of the optimizer. Returns the norm of the gradient before clipping."""
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        total: Any = nn.utils.clip_grad_norm_(parameters, self._agents[module_id].training.grad_clip)
        norm = float(total.full_tensor() if is_sharded(total) else total)
        if not math.isfinite(norm):
            raise SealError(f"learner: the gradient of {module_id} is not finite; lower training.lr.")
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        return norm

    def _micro_batches(self, module_id: str, groups: Sequence[Sequence[Row]]) -> list[Groups]:
        """The groups in micro-batches, as many on each learner, since learners run forward passes together."""
        if not self._plain(module_id).shares_tokens:
            groups = [[row] for group in groups for row in group]
        batches = pack(groups, self._microbatch_tokens)
        return [*batches, *[[[_EMPTY]]] * (max(self._all_gather(len(batches))) - len(batches))]

    def total_logprob(self, module_id: str, groups: Sequence[Sequence[Row]]) -> float:
        """The sum of the log-probs (nats) of all sampled tokens of these rows, over all learners."""
        own = sum(float(logprobs.double().sum()) for logprobs in self._logprobs(module_id, groups).values())
        if self._learners.fsdp:
            self.wrapped(module_id).reshard()  # see `_measure`
        return sum(self._all_gather(own))

    def _own_logprobs(self, module_id: str, groups: Sequence[Sequence[Row]]) -> dict[int, Tensor]:
        """As `_logprobs`, of the rows whose loss reads the learner's own log-probs."""
        needed = self._agents[module_id].loss.needs_own_logprobs
        return self._logprobs(module_id, [[row for row in group if needed(row)] for group in groups])

    @torch.no_grad()
    def _logprobs(self, module_id: str, groups: Sequence[Sequence[Row]]) -> dict[int, Tensor]:
        """The log-probs of the sampled tokens of these rows, by a row's identity. Groups can be empty."""
        module = self.wrapped(module_id)
        by_row: dict[int, Tensor] = {}
        for batch in self._micro_batches(module_id, [group for group in groups if group]):
            members = [row for group in batch for row in group]
            logprobs = module({PACKED: collate(batch).to(self.device)})[LOGPROBS].cpu()
            parts = logprobs.split([row.sampled_tokens for row in members])
            by_row |= {id(row): part for row, part in zip(members, parts, strict=True)}
        return by_row

    def _measure(
        self, module_id: str, groups: Sequence[Sequence[Row]], before: Mapping[int, Tensor]
    ) -> dict[str, Internalisation]:
        """Arm → how the log-probs of its hint-stripped rows changed in the round, over all learners."""
        stripped = [[row for row in group if row.stripped_of is not None] for group in groups]
        rows = [row for group in stripped for row in group]
        after = logprob_gaps(rows, self._own_logprobs(module_id, stripped))
        if self._learners.fsdp:
            # After a forward pass alone it holds whole parameters, which cannot be stored or written.
            self.wrapped(module_id).reshard()
        return internalisation(self._all_gather((logprob_gaps(rows, before), after)))

    def internalisation(self, module_id: str) -> dict[str, Internalisation]:
        """The same of the last update."""
        return self._agents[module_id].internalisation

    def _all_gather(self, own: T) -> list[T]:
        """The values of all learners."""
        if not self.distributed:
            return [own]
        parts: list[Any] = [None] * self.config.num_learners
        dist.all_gather_object(parts, own)
        return parts

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As RLlib's, with each agent's number of gradient steps, for the learning rate."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        return {**state, _STEPS: {name: agent.steps for name, agent in self._agents.items()}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse. Missing parts stay unchanged."""
        super().set_state(state)
        for name, steps in state.get(_STEPS, {}).items():
            self._agents[name].steps = steps

    def store(self, module_id: str, shapes: Mapping[str, tuple[int, ...]], dtype: str, *, learns_on: bool) -> None:
        """Stores a module's weights for an engine (`full_weights`) in this machine's shared memory, in a thread.

        All ranks must call this. The first stores them, and keeps them until the call after the next. If it `learns_on`
        before `stored`, the weights are copied.
        """
        state = self._gathered(module_id, DTYPES[dtype], copy=learns_on)
        if state is not None:
            self._stored[module_id].append(self._storing.submit(store, full_weights(state, shapes, dtype)))

    def stored(self, module_id: str) -> StoredWeights | None:
        """The weights that the last `store` has stored, on the first rank."""
        return self._stored[module_id][-1].result() if self._stored[module_id] else None

    def share(
        self, module_id: str, shapes: Mapping[str, tuple[int, ...]], dtype: str
    ) -> tuple[str, Sequence[Any], int] | None:
        """Some of a module's weights in a buffer on this learner's device: its name, a handle, a checksum.

        All ranks must call this. The next call releases the buffer; without `shapes` it is all that a call does.
        """
        self._shared = None
        if not shapes:
            release_shared()
            return None
        named = by_checkpoint_name(self._plain(module_id).learning())
        self._shared = SharedBuffer({name: gathered(named[name], DTYPES[dtype]) for name in shapes})
        return device_names()[0], self._shared.handle, self._shared.checksum

    def export(self, module_id: str, base: ModelFolder, out: Path, adapter: Path | None, *, dtype: str) -> None:
        """Writes a module as a model folder in `dtype`, and what LoRA has learnt to `adapter` too.

        All ranks must call this; the first gathers the weights in `dtype`, and writes.
        """
        spec = self.config.spec.agents[module_id]
        state = self._gathered(module_id, torch.float32 if spec.lora_rank else DTYPES[dtype], copy=False)
        if state is None:
            return
        lora = {"rank": spec.lora_rank, "alpha": spec.lora_alpha}
        export_model(base, state, out, dtype=dtype, **lora)
        if spec.lora_rank and adapter is not None:
            export_adapter(base, state, adapter, **lora)

    def _gathered(self, module_id: str, dtype: torch.dtype, *, copy: bool) -> dict[str, Tensor] | None:
        """A module's weights on the CPU, on the first rank; None on others. All ranks must call this."""
        is_first = not self.distributed or not dist.get_rank()
        if not is_first and not self._learners.fsdp:
            return None
        learning = self._plain(module_id).learning()
        state = {name: whole(value, copy=copy, dtype=dtype) for name, value in learning.items()}
        return state if is_first else None

    def begin_shards(self, folder: Path) -> None:
        """Copies weights and optimizer to the host's memory, and writes them in a thread, each rank its part.

        All ranks must call this, with the same folder, and then `finish_shards`.
        """
        # Imported here, or each env runner, which imports this file too, would take 0.7 seconds longer to start.
        from torch.distributed.checkpoint.state_dict_saver import async_save

        from seal_ray.training.shards import ShardWriter

        if self._writers is None:
            self._writers = dist.new_group(backend="gloo")
        self._written = async_save(self._tensors(), storage_writer=ShardWriter(folder), process_group=self._writers)

    def finish_shards(self) -> None:
        """Blocks until the shards are written. Raises what went wrong."""
        self._written.result()

    def read_shards(self, folder: Path) -> None:
        """The inverse, for any number of learners."""
        from torch.distributed.checkpoint.state_dict_loader import load

        from seal_ray.training.shards import ShardReader

        load(self._tensors(), storage_reader=ShardReader(folder))

    def _tensors(self) -> dict[str, Any]:
        """Weights and optimizer of each module, not copied."""
        return {
            module_id: {"weights": self._plain(module_id).learning(), "optimizer": self._moments(module_id)}
            for module_id in self.module_ids
        }

    def _moments(self, module_id: str) -> dict[str, dict[str, Tensor]]:
        """Each parameter's moments and number of steps, by its name, not copied."""
        state = self.get_optimizer(module_id).state
        return {name: state[parameter] for name, parameter in self._plain(module_id).learning().items()}

    def optimizer_state(self) -> dict[str, Any]:
        return {
            module_id: {
                parameter: {key: whole(tensor) for key, tensor in tensors.items()}
                for parameter, tensors in self._moments(module_id).items()
            }
            for module_id in self.module_ids
        }

    def load_optimizer_state(self, state: Mapping[str, Any]) -> None:
        for module_id, saved in state.items():
            for parameter, tensors in self._moments(module_id).items():
                for key, tensor in tensors.items():
                    fill(tensor, saved[parameter][key])

    def _plain(self, module_id: str) -> LMModule:
        module = self.wrapped(module_id).unwrapped()
        assert isinstance(module, LMModule)
        return module


_EMPTY = make_row([0, 0], [False, False], [0.0, 0.0], 0.0)
"""A row without sampled tokens, for learners that have fewer micro-batches than others."""
