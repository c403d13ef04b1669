"""`SealLearnerGroup`: distributes a round's rows over the learners, and collects, writes and restores their state."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import ray
from ray.exceptions import RayActorError
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_OPTIMIZER, COMPONENT_RL_MODULE

from envs.errors import SealError
from policies.engine.buckets import BUCKET, Bucket, bucket_names
from policies.engine.stored import StoredWeights
from policies.models import ModelFolder
from seal_ray.config.resolve import Resolved
from seal_ray.grpo.packing import shard
from seal_ray.grpo.rows import Minibatch, Row
from seal_ray.rllib import RowsLearnerGroup, cause_of, learner_index, minibatch_batch
from seal_ray.state import read_state, write_state
from seal_ray.training.hint_stripped import Internalisation
from seal_ray.training.learner import LEARNT
from seal_ray.training.weights import DTYPES

_SHARDS = "shards"
"""Folder of a checkpoint with sharded weights and optimizer, written by all learners."""
GRACE = 10.0
"""Seconds that learners have to end a call in which another one failed."""

R = TypeVar("R")


class LearnerTimeout(SealError, TimeoutError):
    """Learners did not end a call in time."""


class SealLearnerGroup(RowsLearnerGroup):
    """RLlib's group of learners, for rows of tokens.

    An exception of one learner is raised at once. Learners that block on it are killed, and the group becomes unusable.
    """

    config: Resolved  # type: ignore[assignment] # RLlib declares its own class
    _saving_to: Path | None = None
    """The folder to which learners write their shards at present."""

    def learn(self, module_id: str, minibatches: Sequence[Minibatch]) -> dict[str, float]:
        """One gradient step for each minibatch. Returns the metrics `LEARNT`, over all learners."""
        tokens = sum(each.global_tokens for each in minibatches)
        batches = [minibatch_batch(module_id, share, tokens=tokens) for share in self._shares(minibatches)]
        results = self._on_each(lambda learner, batch: learner.update(batch=batch), batches)
        return {key: float(results[0][module_id][key].peek()) for key in LEARNT}

    def loss_of(self, module_id: str, rows: Sequence[Row]) -> float:
        """The negative log-likelihood (nats a token) of the sampled tokens of these rows, without an update."""
        batch = Minibatch.of([[row] for row in rows])
        shares = [each.groups for (each,) in self._shares([batch])]
        total, *_ = self._on_each(lambda learner, groups: learner.total_logprob(module_id, groups), shares)
        return -float(total) / batch.global_tokens

    def internalisation(self, module_id: str) -> dict[str, Internalisation]:
        """Arm → how the log-probs of its hint-stripped rows changed in the module's last update."""
        first: dict[str, Internalisation] = self._on_all(lambda learner: learner.internalisation(module_id))[0]
        return first

    def _shares(self, minibatches: Sequence[Minibatch]) -> list[list[Minibatch]]:
        """Each learner's part of each minibatch. A row is the same object in all epochs."""
        learners = max(1, len(self))
        parts = [shard(each.groups, learners) for each in minibatches]
        return [
            [Minibatch(part[learner], each.global_tokens) for each, part in zip(minibatches, parts, strict=True)]
            for learner in range(learners)
        ]

    def module_weights(self, module_id: str) -> Mapping[str, Any]:
        """A module's trainable parameters, as whole tensors on the CPU."""
        state = self._state_of_first([f"{COMPONENT_RL_MODULE}/{module_id}"], None)
        weights: Mapping[str, Any] = state[COMPONENT_RL_MODULE][module_id]["weights"]
        return weights

    def store(
        self, module_id: str, shapes: Mapping[str, tuple[int, ...]], dtype: str, *, learns_on: bool = False
    ) -> None:
        """Stores a module's weights for an engine in shared memory of the first learner's machine.

        They stay there until the call after the next. Only with `learns_on` may learners learn before `stored`.
        """
        self._on_all(lambda learner: learner.store(module_id, shapes, dtype, learns_on=learns_on))

    def stored(self, module_id: str) -> StoredWeights:
        """The weights that `store` has stored last."""
        first: StoredWeights | None = self._on_all(lambda learner: learner.stored(module_id))[0]
        assert first is not None, "the first learner has it"
        return first

    def buckets(self, module_id: str, shapes: Mapping[str, tuple[int, ...]], dtype: str) -> Iterator[Bucket]:
        """A module's weights for engines on the learners' devices. A bucket is there until the next is requested.

        Raises `SealError` if learners do not hold the same weights.
        """
        parts = bucket_names(shapes, DTYPES[dtype].itemsize, BUCKET)
        try:
            for names in parts:
                part = {name: shapes[name] for name in names}
                values = [part] * max(1, len(self))
                shared = self._on_each(lambda learner, part: learner.share(module_id, part, dtype), values)
                devices, handles, checksums = zip(*shared, strict=True)
                if len(set(checksums)) > 1:
                    raise SealError("learner: the learners do not hold the same weights.")
                yield Bucket(part, dtype, checksums[0], dict(zip(devices, handles, strict=True)), names is parts[-1])
        finally:
            with suppress(RayActorError):  # learners that were killed, whose error is on its way
                self._on_all(lambda learner: learner.share(module_id, {}, dtype))

    def copied(self, stored: StoredWeights, wrap: Callable[[dict[str, Any]], Any]) -> ray.ObjectRef[Any]:
        """A reference to `wrap` of copies of the stored weights, for any machine; the first learner holds them."""

        def copies(learner: Any) -> ray.ObjectRef[Any] | None:
            if learner_index(learner):
                return None
            return ray.put(wrap({name: tensor.clone() for name, tensor in stored.items()}))

        first, *_ = self._on_all(copies)
        assert first is not None, "the first learner has them"
        return first

    def export(self, module_id: str, base: ModelFolder, out: Path, *, dtype: str, adapter: Path | None = None) -> None:
        """The first learner writes a module as a model folder in `dtype`, and what LoRA has learnt to `adapter` too.

        The weights do not pass through this process. Raises `SealError` if the folder is not shared.
        """
        out, adapter = out.resolve(), None if adapter is None else adapter.resolve()
        self._on_all(lambda learner: learner.export(module_id, base, out, adapter, dtype=dtype))
        if not (out / "config.json").is_file():
            raise SealError(f"learner: the first learner does not see this machine's folder {out}; share it.")

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """As RLlib's. Sharded weights and their optimizer are left out unless they are named.

        One process may lack the memory for them; in `save_to_path` each learner writes its part.
        """
        if not self.wants(COMPONENT_LEARNER, components, not_components):
            return {}
        inner = self.inside(COMPONENT_LEARNER, components)
        outer = self.inside(COMPONENT_LEARNER, not_components)
        if self._sharded and inner is None:
            outer = [*(outer or ()), COMPONENT_RL_MODULE, COMPONENT_OPTIMIZER]
        return {COMPONENT_LEARNER: self._state_of_first(inner, outer, **kwargs)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse, on all learners. Missing parts stay unchanged."""
        if COMPONENT_LEARNER in state:
            value = state[COMPONENT_LEARNER] if self.is_local else ray.put(state[COMPONENT_LEARNER])
            self._on_each(lambda learner, own: learner.set_state(own), [value] * max(1, len(self)))

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """Empty: RLlib would write the state of the first learner only; `save_to_path` writes all of it."""
        return []

    def save_to_path(self, path: Any, *, wait: bool = True, **_: Any) -> str:  # type: ignore[override] # RLlib's others
        """Writes the state. Learners with sharded weights write their parts to a folder inside, which they share.

        Without `wait` they learn on while they write, and `finish_saving` must follow.
        """
        self.finish_saving()
        write_state(Path(path), self.get_state())
        if self._sharded:
            folder = Path(path, _SHARDS).resolve()
            shutil.rmtree(folder, ignore_errors=True)
            self._on_all(lambda learner: learner.begin_shards(folder))
            self._saving_to = folder
        if wait:
            self.finish_saving()
        return str(path)

    @property
    def is_saving(self) -> bool:
        """Whether learners write shards that `finish_saving` has not waited for."""
        return self._saving_to is not None

    def finish_saving(self) -> None:
        """Blocks until all that was saved is in its folder. Raises `SealError` if the folder is not shared."""
        folder, self._saving_to = self._saving_to, None
        if folder is None:
            return
        self._on_all(lambda learner: learner.finish_shards())
        if not _is_whole(folder):
            raise SealError(f"learner: the learners do not see the checkpoint's folder, {folder}; share it.")

    def restore_from_path(self, path: Any, *, component: str | None = None, **_: Any) -> None:
        """Restores any number of learners from `save_to_path`.

        Raises `ValueError` for a component: a group is restored as a whole.
        """
        if component is not None:
            raise ValueError(f"a learner group is restored as a whole, not its {component}")
        state, folder = read_state(Path(path)), Path(path, _SHARDS).resolve()
        self.set_state(state)
        if folder.is_dir():
            self._on_all(lambda learner: learner.read_shards(folder))
        elif COMPONENT_RL_MODULE not in state.get(COMPONENT_LEARNER, {}):
            raise SealError(f"learner: the checkpoint's weights are not there: {folder} is missing.")

    @property
    def _sharded(self) -> bool:
        return bool(self.config.spec.learners.fsdp)

    def _state_of_first(self, components: Any, not_components: Any, **kwargs: Any) -> dict[str, Any]:
        sharded = self._sharded

        def state(learner: Any) -> Any:
            if learner_index(learner) and not sharded:  # all learners take part in gathering sharded weights
                return None
            own = learner.get_state(components, not_components=not_components, **kwargs)
            return None if learner_index(learner) else own

        first: dict[str, Any] = self._on_all(state)[0]
        return first

    def _on_all(self, do: Callable[[Any], R]) -> list[R]:
        """Calls `do` with each learner."""
        return self._on_each(lambda learner, _: do(learner), [None] * max(1, len(self)))

    def _on_each(self, do: Callable[[Any, Any], R], values: Sequence[Any]) -> list[R]:
        """Calls `do` with each learner and its value, or the value that its reference points to."""
        if self.is_local:
            return [do(self.local, values[0])]
        calls = [actor.apply.remote(do, value) for actor, value in zip(self.actors, values, strict=True)]
        waiting, limit = calls, self.config.spec.fault_tolerance.learner_timeout
        deadline = monotonic() + limit
        try:
            while waiting:
                done, waiting = ray.wait(waiting, timeout=max(0.0, deadline - monotonic()))
                if not done:
                    raise LearnerTimeout(f"learner: no answer within {limit:g} s (fault_tolerance.learner_timeout).")
                ray.get(done)
        except Exception as error:
            _, stuck = ray.wait(waiting, num_returns=len(waiting), timeout=GRACE) if waiting else ([], [])
            if stuck:
                for actor in self.actors:
                    ray.kill(actor)
            cause = cause_of(error)
            if isinstance(cause, SealError) and cause is not error:
                raise cause from error
            raise
        results: list[R] = ray.get(calls)
        return results


def _is_whole(folder: Path) -> bool:
    """Whether this process can read all parts that the learners have written."""
    from seal_ray.training.shards import DESCRIPTION, ShardReader  # it takes half a second

    if not (folder / DESCRIPTION).is_file():
        return False
    parts = ShardReader(folder).read_metadata().storage_data.values()
    return all((folder / part.relative_path).is_file() for part in parts)
