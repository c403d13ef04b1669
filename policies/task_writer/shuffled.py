"""`ShuffledTaskWriter`: a placebo. It writes the specifications of another run, each window those of another window.

Specifications, pool and budget of the whole run are the same, but no window fits the profile that its writer had read.
"""

import json
import random
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from envs.errors import UserError
from envs.profile import FailureProfile
from envs.specifications import Specification, Writable
from envs.task import JSON
from policies.proposer import Proposal
from policies.task_writer.base import Check, Known, Proposals, TaskWriter

_UNREADABLE = "specification: what was recorded in its place could not be read."


class ShuffledTaskWriter(TaskWriter):
    """Writes recorded `windows` of texts, in an order by `seed` that leaves none in its place, then nothing.

    None is a text that could not be read when it was recorded.
    """

    kind = "shuffled"
    replays = True

    def __init__(
        self, source: Writable, check: Check, *, windows: Sequence[Sequence[str | None]] = (), seed: int = 0
    ) -> None:
        self._source = source
        self._check = check
        self._windows = tuple(windows)
        self._order = elsewhere(len(windows), seed)
        self._written = 0

    async def propose(self, profile: FailureProfile, *, known: Sequence[Known], n: int, seed: int) -> Proposals:
        del profile, known, seed
        if self._written >= len(self._windows):
            return ()
        texts = self._windows[self._order[self._written]]
        self._written += 1
        return tuple(map(self._proposal, texts[:n]))

    def get_state(self) -> dict[str, JSON]:
        return {**super().get_state(), "written": self._written, "recorded": self._digest()}

    def set_state(self, state: Mapping[str, JSON]) -> None:
        super().set_state(state)
        if state["recorded"] != self._digest():
            raise UserError("task_writer.recorded: it does not hold the specifications that this run began with.")
        self._written = int(state["written"])

    def _proposal(self, text: str | None) -> Proposal[Specification]:
        if text is None:
            return Proposal(None, _UNREADABLE)
        try:
            specification = self._source.read(text)
        except UserError as error:
            return Proposal(None, str(error))
        return Proposal(specification, self._check(specification))

    def _digest(self) -> str:
        return blake2b(json.dumps(self._windows).encode(), digest_size=8).hexdigest()


def elsewhere(count: int, seed: int) -> list[int]:
    """An order of 0 to `count` - 1 in which none keeps its place, if there are two or more (Sattolo's algorithm)."""
    rng = random.Random(f"shuffled {seed}")
    order = list(range(count))
    for place in range(count - 1, 0, -1):
        other = rng.randrange(place)
        order[place], order[other] = order[other], order[place]
    return order
