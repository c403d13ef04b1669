"""The last line of defence: a dialogue whose step does not come back is given up, and does not hold the others up.

The world bounds what a step costs. Should one hang all the same, no exception and no signal gets it out of the process:
the runner returns which dialogue it is and is replaced; its other dialogues are played again with their seeds.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from threading import Thread
from typing import TypeVar

from policies.rollouts import Fault
from policies.watch import Watch

STEP_TIMEOUT = "StepTimeout"
"""Kind of the fault that a stuck dialogue becomes."""

_SILENCE = 2.0
"""Time limits of a step after which a process that does not even run this guard ends itself."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Stuck:
    """A dialogue whose step took more than `limit` seconds. Its process must not be used any more."""

    task: str
    seed: int
    limit: float

    @property
    def fault(self) -> Fault:
        return Fault(
            self.task,
            self.seed,
            STEP_TIMEOUT,
            f"a step did not come back within {self.limit:g} s (fault_tolerance.step_timeout)",
        )


def unless_stuck(work: Callable[[], R], watch: Watch, *, limit: float, replaceable: bool) -> R | Stuck:
    """What `work` returns or raises, which runs in a thread; or `Stuck`, with the thread left behind.

    A step that holds Python's lock leaves this guard no turn. A `replaceable` process is then ended from outside of
    Python, after twice the limit.
    """
    done: Future[R] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is asked for
            done.set_exception(error)

    def still_here() -> None:
        if replaceable:
            faulthandler.dump_traceback_later(_SILENCE * limit, exit=True, file=2)

    still_here()
    Thread(target=run, daemon=True).start()
    try:
        while not wait([done], timeout=min(1.0, limit / 4)).done:
            still_here()
            late = watch.overdue(limit)
            if late is not None:
                return Stuck(late.task, late.seed, limit)
    finally:
        if replaceable:
            faulthandler.cancel_dump_traceback_later()
    return done.result()
