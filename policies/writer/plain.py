"""Writers without a model: none, a fixed set of specifications, and specifications at random."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from envs.profile import FailureProfile
from envs.specifications import Writable
from envs.task import JSON
from policies.writer.base import Check, Draft, Known, TaskWriter

_DRAWS = 50
"""Specifications at random that are looked at for one with a task. More than a third have one."""


class NoWriter(TaskWriter):
    """Writes nothing: all training tasks are the source's own."""

    kind = "none"

    def __init__(self, source: Writable | None = None, check: Check | None = None) -> None:
        del source, check

    async def write(self, profile: FailureProfile, *, known: Sequence[Known], n: int, seed: int) -> tuple[Draft, ...]:
        del profile, known, n, seed
        return ()


class RandomWriter(TaskWriter):
    """Writes specifications at random, and draws again where there is no task: a control with the same budget."""

    kind = "random"

    def __init__(self, source: Writable, check: Check) -> None:
        self._source = source
        self._check = check

    async def write(self, profile: FailureProfile, *, known: Sequence[Known], n: int, seed: int) -> tuple[Draft, ...]:
        del profile, known
        drafts: list[Draft] = []
        keys: set[str] = set()
        for place in range(n):
            draft = self._draw(random.Random(f"written {seed} {place}"), keys)
            if draft.specification is not None and draft.rejection is None:
                keys.add(draft.specification.key)
            drafts.append(draft)
        return tuple(drafts)

    def _draw(self, rng: random.Random, keys: set[str]) -> Draft:
        """A specification with a task that is not one of `keys`; the last that was drawn where none was found."""
        for _ in range(_DRAWS):
            specification = self._source.draw(rng)
            known = specification.key in keys
            rejection = "specification: it was written twice." if known else self._check(specification)
            if rejection is None:
                break
        return Draft(specification, rejection)


class StaticWriter(RandomWriter):
    """Writes in its first window, and nothing from then on: a fixed set, drawn at random."""

    kind = "static"

    def __init__(self, source: Writable, check: Check) -> None:
        super().__init__(source, check)
        self._done = False

    async def write(self, profile: FailureProfile, *, known: Sequence[Known], n: int, seed: int) -> tuple[Draft, ...]:
        if self._done:
            return ()
        self._done = True
        return await super().write(profile, known=known, n=n, seed=seed)

    def get_state(self) -> dict[str, JSON]:
        return {**super().get_state(), "done": self._done}

    def set_state(self, state: Mapping[str, JSON]) -> None:
        super().set_state(state)
        self._done = bool(state["done"])
