"""Written tasks in whole rounds: they are played and paid for, three agents learn, and a run resumes bit for bit."""

import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from envs.roles import CURATOR, SOLVER, TASK_WRITER
from envs.specifications import Rejected, writable
from policies.trajectory import derive_seed
from seal_ray.algorithm.config import SealConfig
from seal_ray.algorithm.report import RoundReport
from seal_ray.proposing.task_rewards import HeldOut
from tests.seal_ray.algorithm.configs import ROUNDS_IN_RAY, small_config
from tests.seal_ray.algorithm.engines import Half
from tests.seal_ray.algorithm.runs import Run, built, check_resumes, measured, played, same
from tests.seal_ray.algorithm.test_coevolution import TWO

pytestmark = [*ROUNDS_IN_RAY, pytest.mark.long]

ROUNDS = 3


@cache
def specifications() -> tuple[str, ...]:
    """Specifications of one request that have a task at each round of these tests, and one that has none."""
    source = writable("toolworld")
    found: list[str] = []
    number = 0
    while len(found) < 12:
        specification = source.draw(random.Random(number), category="base", depth=1)
        if all(not isinstance(source.compose(specification, task_seed(at)), Rejected) for at in range(ROUNDS)):
            found.append(specification.dump())
        number += 1
    return (*found, found[0].replace('"turns": [[', '"turns": [["files.go_up", '))


def task_seed(round_number: int) -> int:
    return derive_seed(0, "written task", round_number) % 10**9


@cache
def written_ids() -> tuple[str, ...]:
    """The ids of all tasks that can be written."""
    source = writable("toolworld")
    made = [source.compose(source.read(text), task_seed(at)) for text in specifications()[:-1] for at in range(ROUNDS)]
    return tuple(task.id for task in made if not isinstance(task, Rejected))


MODEL = {"kind": "llm", "trainable": True, "engine": "transformers", "context": 3072, "lr": 1e-4, "kl": 0.0}
WRITER = {**MODEL, "response": 200, "update_every": 2, "specifications": 6, "share": 0.5}


def config(*, shared: bool = False, writer: Mapping[str, Any] = WRITER) -> SealConfig:
    engine = Half(known=written_ids(), writes={CURATOR: TWO, TASK_WRITER: specifications()})
    return (
        small_config(engine)
        .solver(**({"lora_rank": 2} if shared else {}))
        .task_writer(**writer)
        .fault_tolerance(engine_timeout=600.0)
    )


def three(*, shared: bool) -> SealConfig:
    model = {**MODEL, "response": 128, "proposals": 4, "played": 2, "pick": "likeliest"}
    return config(shared=shared).curator(**model, pairs=False, update_every=2, plain_share=0.5)


@pytest.fixture(scope="module")
def unwritten(cluster: str) -> Run:
    """Two rounds without a task writer."""
    with built(small_config(Half())) as run:
        run.play(2)
    return run


def tasks_of(report: RoundReport) -> list[str]:
    return [group.plan.task for group in report.groups]


def test_written_tasks_are_played_alongside_those_of_the_stream(unwritten: Run) -> None:
    random_writer = {"kind": "random", "depth": 1, "update_every": 2, "specifications": 6, "share": 0.5}
    with built(config(writer=random_writer)) as run:
        first, second = run.round(), run.round()
    both = list(zip(tasks_of(first), tasks_of(unwritten.reports[0]), strict=True))
    assert all(task == drawn for task, drawn in both if "_written_" not in task), "the others are the stream's"
    written = {task for task in tasks_of(first) if "_written_" in task}
    assert len(written) == first.metrics["task_writer/groups"] == 2
    assert first.metrics["task_writer/proposals"] == first.metrics["pool/tasks"] == 6
    assert second.metrics["pool/unplayed"] == 2
    assert len(second.task_writer.known) == 6
    played = [row["reward"] for row in second.task_writer.proposals if row["reward"] is not None]
    assert played == [pytest.approx(0.6065, abs=1e-4)] * 4, "a solver that does not know them fails"


@pytest.mark.usefixtures("wide_prior")
@pytest.mark.parametrize("shared", [False, True], ids=["engines of their own", "one engine, three adapters"])
def test_three_agents_continue_bit_for_bit_from_the_middle_of_a_window(shared: bool, tmp_path: Path) -> None:
    run = check_resumes(lambda: three(shared=shared), tmp_path, rounds=ROUNDS - 1)
    assert list(run.algorithm.agents) == [SOLVER, CURATOR, TASK_WRITER]
    assert all(agent.spec.trainable for agent in run.algorithm.agents.values())
    assert len({id(agent.engines) for agent in run.algorithm.agents.values()}) == (1 if shared else 3)
    metrics = list(map(measured, run.reports))
    for agent in (CURATOR, TASK_WRITER):
        assert any(each.get(f"{agent}/gradient_norm", 0) > 0 for each in metrics), metrics
    assert any(each["task_writer/rejections"] > 0 for each in metrics), metrics
    assert any(each["task_writer/groups"] > 0 for each in metrics)


def test_held_out_success_counts_the_updates_of_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    success, versions = HeldOut.success, []
    with built(config(writer={**WRITER, "reward": "held_out_success", "update_every": 1})) as run:

        def recorded(self: HeldOut, round_number: int) -> list[float | None]:
            versions.append(run.algorithm.solver.version)
            return success(self, round_number)

        monkeypatch.setattr(HeldOut, "success", recorded)
        run.play(2)
    assert versions == [0, 1, 2]


GARBAGE = ("", "[" * 200, "{", '{"category": "base"}', "__import__('os')")


def test_a_task_writer_of_garbage_costs_its_reward_only(unwritten: Run) -> None:
    garbage = config()
    garbage.engine_factory = Half(writes={TASK_WRITER: GARBAGE})
    with built(garbage) as run:
        assert run.play(2) == list(map(played, unwritten.reports))
    for report, expected in zip(run.reports, unwritten.reports, strict=True):
        metrics = measured(report)
        solvers = {name: value for name, value in metrics.items() if not name.startswith(("task_writer/", "pool/"))}
        assert same(solvers, measured(expected))
    assert run.reports[-1].metrics["pool/tasks"] == 0
    assert [bool(row["rejection"]) for row in run.reports[-1].task_writer.proposals] == [True] * 6
