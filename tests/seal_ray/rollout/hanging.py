"""Env runners whose environment does not come back from some completions, in one way or another."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from envs.dialogue import Dialogue
from envs.errors import EnvironmentFault
from policies import solver
from seal_ray.rollout import runner
from seal_ray.rollout.runner import SealEnvRunner
from tests.seal_ray.algorithm.engines import HANG


def hang() -> None:
    """Waits for ever, or computes for ever."""
    if os.getpid() % 2:
        time.sleep(10**6)
    while True:
        pass


def sleep() -> None:
    time.sleep(10**6)


def fault() -> None:
    raise EnvironmentFault("it would hang")


def die() -> None:
    os._exit(1)


def runner_that(hangs: Callable[[], None]) -> type[SealEnvRunner]:
    """The class of a runner over whose dialogues `HANG` has this effect."""

    class HangingDialogue(Dialogue):
        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            if action == HANG:
                hangs()
            return super().step(action)

    class HangingRunner(SealEnvRunner):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            solver.Dialogue = HangingDialogue  # type: ignore[attr-defined]
            if self.worker_index:  # its steps must not be late because other tests of this machine come first
                runner.lower_process_priority = lambda: None  # type: ignore[attr-defined]

    return HangingRunner


RUNNERS: Mapping[str, type[SealEnvRunner]] = {each.__name__: runner_that(each) for each in (hang, sleep, fault, die)}
