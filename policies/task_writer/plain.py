"""Writers without a model: none, a fixed set of specifications, and specifications at random."""

import random
from collections.abc import Mapping, Sequence

from envs.profile import FailureProfile
from envs.specifications import Specification, Writable
from envs.task import JSON
from policies.proposer import Proposal
from policies.task_writer.base import Check, Known, Proposals, TaskWriter

_DRAWS = 50
"""Specifications that are drawn for one with a task. More than a third have one."""


class NoTaskWriter(TaskWriter):
    """Writes nothing: all training tasks come from the source."""

    kind = "none"

    def __init__(self, source: Writable | None = None, check: Check | None = None) -> None:
        del source, check

    async def propose(self, profile: FailureProfile, *, known: Sequence[Known], n: int, seed: int) -> Proposals:
        del profile, known, n, seed
        return ()


class RandomTaskWriter(TaskWriter):
    """Writes specifications at random, and draws again if one has no task: a control with the same budget."""

    kind = "random"

    def __init__(self, source: Writable, check: Check) -> None:
        self._source = source
        self._check = check

    async def propose(self, profile: FailureProfile, *, known: Sequence[Known], n: int, seed: int) -> Proposals:
        del profile, known
        proposals: list[Proposal[Specification]] = []
        keys: set[str] = set()
        for place in range(n):
            proposal = self._draw(random.Random(f"written {seed} {place}"), keys)
            if proposal.value is not None and proposal.rejection is None:
                keys.add(proposal.value.key)
            proposals.append(proposal)
        return tuple(proposals)

    def _draw(self, rng: random.Random, keys: set[str]) -> Proposal[Specification]:
        """A specification with a task and a new key, or else the last one that was drawn."""
        for _ in range(_DRAWS):
            specification = self._source.draw(rng)
            written = specification.key in keys
            rejection = "specification: it was written twice." if written else self._check(specification)
            if rejection is None:
                break
        return Proposal(specification, rejection)


class StaticTaskWriter(RandomTaskWriter):
    """Writes a fixed set, drawn at random, in its first window, and nothing later."""

    kind = "static"

    def __init__(self, source: Writable, check: Check) -> None:
        super().__init__(source, check)
        self._done = False

    async def propose(self, profile: FailureProfile, *, known: Sequence[Known], n: int, seed: int) -> Proposals:
        if self._done:
            return ()
        self._done = True
        return await super().propose(profile, known=known, n=n, seed=seed)

    def get_state(self) -> dict[str, JSON]:
        return {**super().get_state(), "done": self._done}

    def set_state(self, state: Mapping[str, JSON]) -> None:
        super().set_state(state)
        self._done = bool(state["done"])
