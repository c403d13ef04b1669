"""`SealLearnerGroup`: shares a round's rows out over the learners, and collects, writes and restores their state."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_OPTIMIZER, COMPONENT_RL_MODULE
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

from envs.errors import SealError
from policies.engine.stored import StoredWeights
from seal_ray.config.resolve import Resolved
from seal_ray.grpo.packing import shard
from seal_ray.grpo.rows import Minibatch, Row
from seal_ray.rllib import RowsLearnerGroup, cause_of, learner_index
from seal_ray.state import read_state, write_state
from seal_ray.training.arm_gradients import cosines
from seal_ray.training.hint_stripped import Internalisation
from seal_ray.training.learner import LEARNT, columns

_SHARDS = "shards"
"""Folder of a checkpoint with sharded weights and optimizer, written by all learners."""
_GRACE = 10.0
"""Seconds that learners have to end a call in which another one failed."""

R = TypeVar("R")


class SealLearnerGroup(RowsLearnerGroup):
    """RLlib's group of learners, for rows of tokens.

    A failure of one learner is raised at once, although the others may wait for that one in vain; these are ended, and
    the group cannot be used any more.
    """

    config: Resolved  # type: ignore[assignment] # RLlib declares its own class
    _has_weights = True
    """Whether the state that was set last had the weights, or had left them to shards."""

    def learn(self, module_id: str, minibatches: Sequence[Minibatch]) -> dict[str, float]:
        """One gradient step for each minibatch. Returns what `SealLearner` counted, over all learners."""
        tokens = sum(each.global_tokens for each in minibatches)
        batches = [
            MultiAgentBatch({module_id: SampleBatch(columns(share))}, env_steps=tokens)
            for share in self._shares(minibatches)
        ]
        results = self._on_each(lambda learner, batch: learner.update(batch=batch), batches)
        return {key: float(results[0][module_id][key].peek()) for key in LEARNT}

    def alignments(self, module_id: str, arms: Sequence[str]) -> tuple[list[list[float]], float]:
        """The cosines between the module's policy gradients on the rows of each two arms in what it learnt last.

        0 for an arm without rows. And the seconds that these gradients took the slowest learner.
        """
        found = self._on_each(lambda learner, asked: learner.alignments(module_id, asked), [arms] * max(1, len(self)))
        return cosines(found[0][0]).tolist(), max(seconds for _, seconds in found)

    def loss_of(self, module_id: str, rows: Sequence[Row]) -> float:
        """The negative log-likelihood (nats a token) of the sampled tokens of these rows. Nothing is learnt."""
        batch = Minibatch.of([[row] for row in rows])
        shares = [(module_id, each.groups) for (each,) in self._shares([batch])]
        total, *_ = self._on_each(lambda learner, asked: learner.total_logprob(*asked), shares)
        return -float(total) / batch.global_tokens

    def internalisation(self, module_id: str) -> dict[str, Internalisation]:
        """Arm → how the log-probs of its hint-stripped rows changed in the module's last update."""
        found = self._on_each(lambda learner, asked: learner.internalisation(asked), [module_id] * max(1, len(self)))
        of_all: dict[str, Internalisation] = found[0]
        return of_all

    def _shares(self, minibatches: Sequence[Minibatch]) -> list[list[Minibatch]]:
        """Each learner's part of each minibatch. A row of several epochs is the same object in all of them."""
        learners = max(1, len(self))
        parts = [shard(each.groups, learners) for each in minibatches]
        return [
            [Minibatch(part[learner], each.global_tokens) for each, part in zip(minibatches, parts, strict=True)]
            for learner in range(learners)
        ]

    def module_weights(self, module_id: str) -> Mapping[str, Any]:
        """What learns of a module, as whole tensors on the CPU."""
        state = self._state_of_first([f"{COMPONENT_RL_MODULE}/{module_id}"], None)
        weights: Mapping[str, Any] = state[COMPONENT_RL_MODULE][module_id]["weights"]
        return weights

    def store(self, module_id: str, shapes: Mapping[str, tuple[int, ...]], dtype: str) -> StoredWeights:
        """What learns of a module as an engine takes it, in shared memory of the first learner's machine.

        It is there until the call after the next.
        """
        everyone = [(module_id, shapes, dtype)] * max(1, len(self))
        found: list[StoredWeights | None] = self._on_each(lambda learner, asked: learner.store(*asked), everyone)
        first, *_ = found
        assert first is not None, "the first learner has it"
        return first

    def copied(self, stored: StoredWeights) -> dict[str, Any]:
        """What `store` has given, as copies that travel to any machine."""

        def copies(learner: Any, asked: StoredWeights) -> dict[str, Any] | None:
            return None if learner_index(learner) else {name: tensor.clone() for name, tensor in asked.items()}

        first, *_ = self._on_each(copies, [stored] * max(1, len(self)))
        assert first is not None, "the first learner has them"
        return first

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """As RLlib's. Sharded weights and their optimizer are left out unless asked for by name.

        No one process may have room for them; `save_to_path` has each learner write its part.
        """
        if not self.wants(COMPONENT_LEARNER, components, not_components):
            return {}
        inner = self.inside(COMPONENT_LEARNER, components)
        outer = self.inside(COMPONENT_LEARNER, not_components)
        if self._sharded and inner is None:
            outer = [*(outer or ()), COMPONENT_RL_MODULE, COMPONENT_OPTIMIZER]
        return {COMPONENT_LEARNER: self._state_of_first(inner, outer, **kwargs)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse, on all learners. What is missing is left as it is."""
        self._has_weights = COMPONENT_RL_MODULE in state.get(COMPONENT_LEARNER, {})
        if COMPONENT_LEARNER in state:
            value = state[COMPONENT_LEARNER] if self.is_local else ray.put(state[COMPONENT_LEARNER])
            self._on_each(lambda learner, found: learner.set_state(found), [value] * max(1, len(self)))

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """None: the group writes its learners' state itself. RLlib would write that of the first learner alone."""
        return []

    def save_to_path(self, path: Any, **_: Any) -> str:  # type: ignore[override] # RLlib's other options are not used
        """Writes the state, and with sharded weights has all learners write their parts into a folder inside.

        That folder must be the same one for all of them.
        """
        write_state(Path(path), self.get_state())
        if self._sharded:
            folder = Path(path, _SHARDS)
            shutil.rmtree(folder, ignore_errors=True)
            self._on_each(lambda learner, each: learner.write_shards(each), [folder] * len(self))
            if not _is_whole(folder):
                raise SealError(f"learner: the learners do not see the checkpoint's folder, {folder}; share it.")
        return str(path)

    def restore_from_path(self, path: Any, *, component: str | None = None, **_: Any) -> None:
        """Restores all learners, as many as there are, from what as many or others have written.

        Raises `ValueError` for a component: a group is restored as a whole.
        """
        if component is not None:
            raise ValueError(f"a learner group is restored as a whole, not its {component}")
        self.set_state(read_state(Path(path)))
        folder = Path(path, _SHARDS)
        if folder.is_dir():
            self._on_each(lambda learner, each: learner.read_shards(each), [folder] * max(1, len(self)))
        elif not self._has_weights:
            raise SealError(f"learner: the checkpoint's weights are not there: {folder} is missing.")

    @property
    def _sharded(self) -> bool:
        return bool(self.config.spec.learners.fsdp)

    def _state_of_first(self, components: Any, not_components: Any, **kwargs: Any) -> dict[str, Any]:
        def state(learner: Any, everyone: bool) -> Any:
            if learner_index(learner) and not everyone:
                return None
            found = learner.get_state(components, not_components=not_components, **kwargs)
            return None if learner_index(learner) else found

        # Sharded weights are put together by all learners.
        first, *_ = self._on_each(state, [self._sharded] * max(1, len(self)))
        found: dict[str, Any] = first
        return found

    def _on_each(self, do: Callable[[Any, Any], R], values: Sequence[Any]) -> list[R]:
        """Calls `do` with each learner and its value, or the value that its reference points to."""
        if self.is_local:
            return [do(self.local, values[0])]
        calls = [actor.apply.remote(do, value) for actor, value in zip(self.actors, values, strict=True)]
        waiting = calls
        try:
            while waiting:
                done, waiting = ray.wait(waiting)
                ray.get(done)
        except Exception as error:
            _, stuck = ray.wait(waiting, num_returns=len(waiting), timeout=_GRACE) if waiting else ([], [])
            if stuck:
                for actor in self.actors:
                    ray.kill(actor)
            cause = cause_of(error)
            if isinstance(cause, SealError):
                raise cause from error
            raise
        results: list[R] = ray.get(calls)
        return results


def _is_whole(folder: Path) -> bool:
    """Whether all that the learners have written is seen from here."""
    from seal_ray.training.shards import DESCRIPTION, ShardReader  # it takes half a second

    if not (folder / DESCRIPTION).is_file():
        return False
    parts = ShardReader(folder).read_metadata().storage_data.values()
    return all((folder / part.relative_path).is_file() for part in parts)
