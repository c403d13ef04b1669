"""Dialogues that do not come back: they are lost one by one, and all the others come out as if nothing had happened."""

import asyncio
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import pytest

from policies import solver
from policies.rollouts import Fault
from policies.watchdog import Watchdog
from seal_ray.algorithm.config import SealConfig
from seal_ray.rollout import dispatch
from seal_ray.rollout.dispatch import Chunk
from seal_ray.rollout.runner import STEP_TIMEOUT, StuckDialogue, run_with_watchdog
from tests.seal_ray.algorithm.configs import ROUNDS_IN_RAY, small_config
from tests.seal_ray.algorithm.engines import Half
from tests.seal_ray.algorithm.runs import Played, built, measured, same
from tests.seal_ray.rollout.hanging import RUNNERS

pytestmark = [*ROUNDS_IN_RAY, pytest.mark.long]


@pytest.fixture(autouse=True)
def dialogues_are_restored() -> Iterator[None]:
    before = solver.Dialogue  # type: ignore[attr-defined]
    yield
    solver.Dialogue = before  # type: ignore[attr-defined]


def hanging(kind: str, *, runners: int, share: float = 0.15) -> SealConfig:
    """A config of runs in which a share of all completions hangs."""
    config = small_config(Half(hangs=share)).env_runners(num_env_runners=runners, env_runner_cls=RUNNERS[kind])
    return config.fault_tolerance(step_timeout=2.0, max_fault_share=0.5)


def rounds_of(config: SealConfig, count: int) -> tuple[list[Played], list[dict[str, float]], list[Fault], float]:
    """The dialogues of each round, its metrics, the faults, and the restarts of runners."""
    with built(config) as run:
        dialogues = run.play(count)
    faults = [fault for report in run.reports for group in report.groups for fault in group.faults]
    return dialogues, list(map(measured, run.reports)), faults, run.reports[-1].metrics["perf/runner_restarts"]


def test_a_run_with_hanging_dialogues_is_the_run_without_them() -> None:
    share = 0.02  # of completions, so that about one dialogue in twenty hangs
    expected = rounds_of(hanging("fault", runners=0, share=share), 2)
    dialogues, results, faults, restarts = rounds_of(hanging("hang", runners=2, share=share), 2)
    assert len(faults) >= 2
    assert {fault.kind for fault in faults} == {STEP_TIMEOUT}
    assert [(each.task, each.seed) for each in faults] == [(each.task, each.seed) for each in expected[2]]
    assert "within 2 s (fault_tolerance.step_timeout)" in faults[0].message
    assert dialogues == expected[0]
    assert all(same(*pair) for pair in zip(results, expected[1], strict=True))
    assert restarts >= 2


@pytest.mark.only_by(target="long")
def test_without_runners_of_its_own_a_run_goes_on_too() -> None:
    expected = rounds_of(hanging("fault", runners=0), 1)
    dialogues, _, faults, _ = rounds_of(hanging("sleep", runners=0), 1)
    assert dialogues == expected[0]
    assert [(each.seed, each.kind) for each in faults] == [(each.seed, STEP_TIMEOUT) for each in expected[2]]
    assert faults


def test_a_group_that_kills_each_runner_is_lost_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "MAX_DEATHS", 1)
    expected = rounds_of(hanging("fault", runners=0, share=0.04), 1)
    dialogues, _, faults, restarts = rounds_of(hanging("die", runners=1, share=0.04), 1)
    groups = {fault.task for fault in expected[2]}
    assert {fault.task for fault in faults} == groups
    assert {fault.kind for fault in faults} == {"RunnerDied"}
    killed = {number for number, seed, *_ in expected[0][0]} - {number for number, seed, *_ in dialogues[0]}
    assert dialogues[0] == [each for each in expected[0][0] if each[0] not in killed]
    assert restarts >= 1


def test_a_chunk_is_split_before_a_group_is_given_up() -> None:
    plans: Any = ["a", "b", "c"]
    whole = Chunk(plans)
    (again,) = whole.after_death()
    (again,) = again.after_death()
    assert again.plans == plans
    singles = again.after_death()
    assert [list(map(str, each.plans)) for each in singles] == [["a"], ["b"], ["c"]]
    assert [each.deaths for each in singles] == [0, 0, 0]
    ((last,),) = [each.after_death() for each in singles[0].after_death()]
    assert last.after_death() == []


def test_a_process_that_cannot_even_look_at_the_clock_ends_itself() -> None:
    script = """
        import sys
        from policies.watchdog import Watchdog
        from seal_ray.rollout.runner import run_with_watchdog
        watch = Watchdog()
        def work():
            with watch.over("task", 7):
                sum(range(10**13))  # one instruction, which lets no other thread run
        run_with_watchdog(work, watch, limit=1.0, replaceable=True)
    """
    started, command = time.monotonic(), [sys.executable, "-c", textwrap.dedent(script)]
    ended = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert b"Timeout" in ended.stderr
    assert time.monotonic() - started < 60


def test_waiting_for_an_engine_is_no_work() -> None:
    watch = Watchdog()

    async def patient() -> str:
        with watch.over("task", 7):
            pass
        await asyncio.sleep(1.0)
        return "done"

    assert run_with_watchdog(lambda: asyncio.run(patient()), watch, limit=0.3, replaceable=False) == "done"


def test_what_the_work_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        run_with_watchdog(lambda: 1 / 0, Watchdog(), limit=5.0, replaceable=False)


def test_the_one_at_work_is_named() -> None:
    watch = Watchdog()

    def work() -> None:
        with watch.over("first", 1):
            pass
        with watch.over("second", 2):
            time.sleep(3.0)

    found = run_with_watchdog(work, watch, limit=0.5, replaceable=False)
    reason = "a step did not come back within 0.5 s (fault_tolerance.step_timeout)"
    assert found == StuckDialogue(Fault("second", 2, STEP_TIMEOUT, reason))
