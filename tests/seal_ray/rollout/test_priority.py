"""The front end of an engine has a lower priority than what computes; env runners too, as `test_seal_rounds` sees."""

import os
import subprocess
import sys
import textwrap
from functools import partial
from typing import Any

import pytest
import ray

from policies.engine import Engine
from seal_ray.rollout.engine_actor import EngineActor, EngineSpec
from seal_ray.rollout.priority import LOWEST
from tests.policies.scripted_engine import ScriptedEngine
from tests.seal_ray.algorithm.configs import ROUNDS_IN_RAY

pytestmark = [*ROUNDS_IN_RAY, pytest.mark.long]


def niceness(pid: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, pid)


def test_all_threads_have_the_lowest_priority_and_those_that_start_later() -> None:
    program = """
        import os, threading
        from pathlib import Path
        from seal_ray.rollout.priority import lower_process_priority

        def found():
            return sorted(os.getpriority(os.PRIO_PROCESS, int(each.name)) for each in Path("/proc/self/task").iterdir())

        end = threading.Event()
        threading.Thread(target=end.wait).start()
        print(*found())
        lower_process_priority()
        threading.Thread(target=end.wait).start()
        print(*found())
        end.set()
    """
    said = subprocess.check_output([sys.executable, "-c", textwrap.dedent(program)], text=True)
    before = niceness(0)
    assert said.splitlines() == [f"{before} {before}", " ".join([str(LOWEST)] * 3)]


class _Noting(ScriptedEngine):
    """Notes the priority that it was started with, which an engine's core has too."""

    def __init__(self, cores: list[int]) -> None:
        super().__init__(lambda request: (0,))
        self.began, self.cores = niceness(0), cores

    def processes(self) -> list[int]:
        return self.cores


async def _started(cores: list[int], _: EngineSpec) -> Engine:
    return _Noting(cores)


@pytest.mark.parametrize("lowered", [False, True])
def test_a_front_end_lowered_where_its_engine_computes_in_another_process(lowered: bool) -> None:
    factory = partial(_started, [1] * lowered)
    spec = EngineSpec("", "", None, context=64, dtype="float32", concurrent=1, factory=factory)
    actor: Any = ray.remote(EngineActor).remote(spec)
    ray.get(actor.versions.remote())
    began, now = ray.get(actor.__ray_call__.remote(lambda self: (self.engine.began, niceness(0))))
    assert began == niceness(0), "a cluster of a run's own gives workers the usual priority"
    assert now == (LOWEST if lowered else began)
    ray.kill(actor)
