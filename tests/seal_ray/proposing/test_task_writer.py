"""The task writer's loop: windows, the share of written tasks, rewards, learning, and its state."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from envs.errors import UserError
from envs.interface import Interface
from envs.profile import FailureProfile
from envs.sources import find_task
from envs.specifications import Rejected, Specification, writable
from envs.task import Task
from policies.proposer import Proposal
from policies.task_writer import Known, TaskWriter
from policies.trajectory import Sample
from seal_ray.algorithm.config import SealConfig
from seal_ray.config.schema import WritingTaskWriterSection
from seal_ray.proposing.curator_rewards import alpha_value
from seal_ray.proposing.loop import WindowReport
from seal_ray.proposing.task_rewards import TASKS, HeldOut, PlainRollouts
from seal_ray.proposing.task_writer import TaskWriterLoop, start_task_writer_loop
from seal_ray.report.files import RunFolder
from seal_ray.rollout.types import PLAIN_ARM, Arm, Group, GroupPlan
from tests.refusal import refusal
from tests.seal_ray.proposing.proposers import Learner, played_group

SOURCE = writable("toolworld")
GUIDED = Arm(Interface(guidelines=("Ask.",)))


def config_of(*, categories: list[str] | None = None, **section: Any) -> SealConfig:
    config = SealConfig().curator(kind="none").training(rounds=8).environment(categories=categories)
    return config.task_writer(**{"kind": "random", "specifications": 4, "depth": 2, "update_every": 2, **section})


class Scripted(TaskWriter):
    """Writes these proposals in every window, and stores what it may read."""

    kind = "scripted"

    def __init__(self, loop: TaskWriterLoop, written: Sequence[Proposal[Specification]]) -> None:
        self.check = loop.check
        self.written = written
        self.known: list[Sequence[Known]] = []

    async def propose(
        self, profile: FailureProfile, *, known: Sequence[Known], n: int, seed: int
    ) -> tuple[Proposal[Specification], ...]:
        del profile, n, seed
        self.known.append(known)
        return tuple(
            each if each.value is None else Proposal(each.value, self.check(each.value), each.sample)
            for each in self.written
        )


def loop_of(
    *,
    play: Any = None,
    written: Sequence[Proposal[Specification]] | None = None,
    agent: Any = None,
    tested: Sequence[Task] = (),
    **section: Any,
) -> TaskWriterLoop:
    """A loop with a task writer of this kind, or one that writes these."""
    spec = config_of(**section).spec
    assert isinstance(spec.task_writer, WritingTaskWriterSection)
    if written is None and section.get("kind", "random") == "random":
        made = start_task_writer_loop(spec, None, tested=(), play=play)
        assert made is not None
        return made

    def make(loop: TaskWriterLoop) -> TaskWriter:
        return Scripted(loop, proposals(4) if written is None else written)

    return TaskWriterLoop(spec, spec.task_writer, make, agent, tested=tested, play=play)


def begin(loop: TaskWriterLoop, round_number: int = 0) -> list[str]:
    """Begins a window. Returns the tasks of its accepted proposals."""
    loop.propose(FailureProfile(), round_number=round_number, heal=lambda: None)
    entries = [loop.pool.known(each.value) for each in loop.proposals if each.value is not None and each.accepted]
    return [entry.task for entry in entries if entry is not None]


def close(loop: TaskWriterLoop, round_number: int, plain: Mapping[str, Sequence[float]]) -> WindowReport:
    """Ends a round with these rewards on the plain interface; under an arm all of four rollouts succeed."""
    groups = []
    for task, rewards in plain.items():
        halves = [played_group(task, PLAIN_ARM, rewards), played_group(task, GUIDED, [1.0] * 4)]
        groups.append(Group(halves[1].plan, (*halves[0].members, *halves[1].members)))
    return loop.close_round(round_number, groups)


def proposals(count: int) -> list[Proposal[Specification]]:
    """Specifications that have tasks, each with a sample."""
    found: list[Proposal[Specification]] = []
    number = 0
    while len(found) < count:
        specification = SOURCE.draw(random.Random(number), depth=1)
        if not isinstance(SOURCE.compose(specification, 0), Rejected):
            sample = Sample(number, (1, 2, 3), (False, True, True), (0.0, -0.5, -0.25), (-1, 0, 0))
            found.append(Proposal(specification, None, sample))
        number += 1
    return found


def test_a_task_that_shares_something_with_a_tested_one_is_rejected() -> None:
    loop = loop_of(written=proposals(1))
    (written,) = begin(loop)
    loop = loop_of(written=proposals(1), tested=[find_task(written)])
    assert begin(loop) == []
    (proposal,) = loop.proposals
    assert "shares" in str(proposal.rejection)


def test_written_tasks_replace_a_share_of_the_drawn_ones() -> None:
    loop = loop_of()
    drawn = [f"drawn {number}" for number in range(16)]
    assert loop.replace_drawn(range(16), drawn) == drawn, "the pool is empty"
    written = begin(loop)
    assert len(written) == 4
    assert loop.pool.entries[0].provenance.writer == "random"
    assert [task.id for task in loop.tasks()] == written
    taken = loop.replace_drawn(range(8), drawn[:8])
    assert [task for task in taken if task not in drawn] == written
    assert [taken.index(task) for task in written] == [1, 3, 5, 7], "half of the tasks"
    assert not set(loop.replace_drawn(range(8, 16), drawn[8:])) & set(written), "not twice in a round"
    report = close(loop, 0, {written[0]: [1.0, 0.0, 0.0, 0.0], "drawn 3": [1.0] * 4})
    assert report.metrics["task_writer/proposals"] == report.metrics["pool/tasks"] == 4
    assert (report.metrics["task_writer/groups"], report.metrics["task_writer/share"]) == (1, 0.5)
    assert loop.pool.entries[0].difficulty.p == 0.25, "plain rollouts alone"
    assert report.known == ()
    assert set(loop.replace_drawn(range(16, 24), drawn[:8])) & set(written)
    report = close(loop, 1, {written[1]: [1.0, 1.0, 0.0, 0.0]})
    assert report.metrics["task_writer/proposals"] == 0
    assert len(report.known) == 4
    assert [row["reward"] is None for row in report.proposals] == [False, False, True, True]
    begin(loop, 2)
    assert [entry.provenance.round for entry in loop.pool.entries] == [1] * 4 + [3] * 4


def test_a_task_writer_is_paid_and_learns_and_imitates_no_rejection() -> None:
    learner = Learner("task_writer")
    unreadable: Proposal[Specification] = Proposal(
        None, "specification: no.", Sample(9, (1, 2), (False, True), (0.0, -1.0), (-1, 0))
    )
    loop = loop_of(kind="llm", trainable=True, update_every=1, agent=learner, written=[*proposals(3), unreadable])
    tasks = begin(loop)
    report = close(loop, 0, {tasks[0]: [1.0, 1.0, 0.0, 0.0], tasks[1]: [0.0] * 4})
    assert [row["reward"] for row in report.proposals] == [1.0, pytest.approx(0.6065, abs=1e-4), None, 0.0]
    assert [row["task"] for row in report.proposals] == [*tasks, None]
    assert report.metrics["task_writer/rejections"] == 1
    assert report.metrics["task_writer/loss"] == 0.5
    assert report.metrics["task_writer/reward_best"] == 1.0
    first, second, rejected = learner.advantages
    assert first > second > rejected == 0.0, "a task that was not played is not learnt from"
    # A specification of the pool is not added again.
    assert begin(loop, 1) == []
    report = close(loop, 1, {})
    assert "in the pool already" in str(report.proposals[0]["rejection"])
    assert report.metrics["task_writer/rejections"] == 4
    assert "task_writer/loss" not in report.metrics, "equal rewards teach nothing"
    assert isinstance(loop.task_writer, Scripted)
    assert [round(known.p, 6) for known in loop.task_writer.known[1]] == [0.5, 0.0]


def test_a_specification_that_is_too_deep_is_rejected() -> None:
    loop = loop_of(depth=1)
    deep = SOURCE.draw(random.Random(0), depth=3)
    assert loop.check(deep) == "specification: 3 turns are more than the 1 that this run has."
    begin(loop)
    assert {entry.specification.depth for entry in loop.pool.entries} == {1}


def test_written_tasks_are_of_the_categories_that_are_played() -> None:
    loop = loop_of(specifications=12, categories=["base", "miss_func"])
    begin(loop)
    assert {entry.specification.category for entry in loop.pool.entries} == {"base", "miss_func"}
    source = loop.source
    assert {source.draw(random.Random(seed)).category for seed in range(20)} == {"base", "miss_func"}
    assert source.draw(random.Random(0), category="base", depth=1).category == "base"
    assert source.specification_help.endswith("Of these categories alone: base, miss_func.")
    assert source.specification_schema["properties"]["category"] == {"enum": ["base", "miss_func"]}
    assert len(SOURCE.specification_schema["properties"]["category"]["enum"]) == 4
    other = SOURCE.draw(random.Random(0), category="miss_param", depth=1)
    assert loop.check(other) == "specification: the category miss_param is none of those that this run plays."


def held_out_player(rates: Callable[[int], float], calls: list[list[str]], *, lost: Sequence[int] = ()) -> Any:
    """Plays held-out tasks at a success rate by the number of the call; in the first, rollouts of `lost` are lost."""

    def play(plans: Sequence[GroupPlan]) -> list[Group]:
        calls.append([plan.task for plan in plans])
        return [
            Group(plan, () if len(calls) == 1 and plan.number in lost else played.members)
            for plan in plans
            for played in [played_group(plan.task, plan.arm, [rates(len(calls))] * len(plan.seeds))]
        ]

    return play


def test_held_out_success_plays_the_same_tasks_at_both_ends_of_a_window() -> None:
    calls: list[list[str]] = []
    play = held_out_player(lambda call: float(call > 1), calls)
    loop = loop_of(kind="llm", reward="held_out_success", update_every=1, play=play)
    written = begin(loop)
    report = close(loop, 0, {written[0]: [0.0] * 4})
    assert (len(calls), len(calls[0])) == (2, TASKS)
    assert calls[0] == calls[1]
    assert not set(calls[0]) & set(written)
    assert report.proposals[0]["reward"] == pytest.approx(1.0)
    begin(loop, 1)
    second = close(loop, 1, {})
    assert len(calls) == 3, "the end of a window is the beginning of the next"
    tokens = [each.metrics["task_writer/probe_tokens"] for each in (report, second)]
    assert tokens[0] == 2 * tokens[1] > 0, "each window has the tokens of its own measurements"


@pytest.mark.parametrize(("lost", "reward"), [(range(TASKS), None), ([0], 0.5), ([], 0.5)])
def test_a_held_out_task_that_was_lost_at_one_end_does_not_count(lost: Sequence[int], reward: float | None) -> None:
    calls: list[list[str]] = []
    play = held_out_player(lambda call: 0.5 * (call > 1), calls, lost=lost)
    loops = [loop_of(kind="llm", reward="held_out_success", update_every=1, play=play) for _ in range(2)]
    begin(loops[0])
    loops[1].set_state(json.loads(json.dumps(loops[0].get_state())))
    report = close(loops[1], 0, {loops[1].pool.entries[0].task: [0.0] * 4})
    assert report.proposals[0]["reward"] == (None if reward is None else pytest.approx(reward))


def test_a_source_with_too_few_tasks_for_held_out_success_is_reported() -> None:
    class Nothing:
        def draw(self, rng: random.Random) -> Specification:
            return SOURCE.draw(rng)

        def compose(self, *_: object, **__: object) -> Rejected:
            return Rejected("specification: no.")

    source: Any = Nothing()
    spec = config_of(kind="llm", reward="held_out_success").spec
    with pytest.raises(UserError, match="random specifications 0 became tasks; the reward held_out_success needs 16"):
        HeldOut(spec, source, 2, apart=SOURCE.apart([]), plain=PlainRollouts(spec, lambda plans: []))


def test_a_probed_task_has_a_value_before_it_is_drawn() -> None:
    plans: list[GroupPlan] = []

    def play(played: Sequence[GroupPlan]) -> list[Group]:
        plans.extend(played)
        return [played_group(plan.task, PLAIN_ARM, [1.0, 0.0, 0.0, 0.0], number=plan.number) for plan in played]

    loop = loop_of(kind="llm", play=play, probe_rollouts=4)
    tasks = begin(loop)
    assert [plan.task for plan in plans] == tasks
    assert all(len(set(plan.seeds)) == 4 and plan.arm == PLAIN_ARM for plan in plans)
    assert loop.pool.entries[0].difficulty.p == 0.25
    assert {(entry.provenance.round, entry.played) for entry in loop.pool.entries} == {(1, 1)}, "rounds from 1"
    first = close(loop, 0, {})
    assert first.metrics["task_writer/probe_tokens"] == 16
    report = close(loop, 1, {tasks[0]: [1.0, 1.0, 0.0, 0.0]})
    assert report.metrics["task_writer/probe_tokens"] == 0
    rewards = [row["reward"] for row in report.proposals]
    assert rewards[1:] == [pytest.approx(alpha_value(0.25))] * 3
    assert rewards[0] == pytest.approx(alpha_value(3 / 8)), "probes and rollouts count alike"


def test_a_loop_continues_from_its_state_in_the_middle_of_a_window() -> None:
    learners = [Learner("task_writer"), Learner("task_writer")]
    one, other = (loop_of(kind="llm", trainable=True, agent=learner) for learner in learners)
    tasks = begin(one)
    close(one, 0, {tasks[0]: [1.0, 0.0, 0.0, 1.0], tasks[1]: [0.0] * 4})
    state = json.loads(json.dumps(one.get_state()))
    other.set_state(state)
    assert json.loads(json.dumps(other.get_state())) == state
    drawn = [f"drawn {number}" for number in range(8)]
    outcomes = []
    for loop in (one, other):
        taken = loop.replace_drawn(range(8), drawn)
        report = close(loop, 1, {tasks[1]: [1.0] * 4, tasks[2]: [1.0, 0.0, 0.0, 0.0]})
        outcomes.append((taken, report, loop.get_state()))
    assert outcomes[0] == outcomes[1]
    assert learners[0].advantages == learners[1].advantages
    assert [find_task(task).id for task in tasks] == tasks


def record(folder: Path, *, windows: int = 4, update_every: int = 2, seed: int = 0) -> Path:
    """A run in which two specifications a window were written, one of which could not be read."""
    run = RunFolder(folder / f"run-seed{seed}")
    run.write_config({"task_writer": {"kind": "llm", "update_every": update_every}})
    for number in range(1, 1 + windows * update_every):
        rng = random.Random(f"{seed} {(number - 1) // update_every}")
        drafts = [{"specification": SOURCE.draw(rng, depth=1).dump()}, {"specification": None}]
        run.drafts.append({"round": number, "drafts": drafts})
    return run.path


def test_it_writes_the_specifications_of_another_run_in_other_windows(tmp_path: Path) -> None:
    record(tmp_path, seed=5)
    config = config_of(kind="shuffled", recorded=f"{tmp_path}/run-seed{{seed}}")
    config.seed = 5
    config.validate()
    loop = start_task_writer_loop(config.spec, None, tested=(), play=lambda _: [])
    assert loop is not None
    rows: list[Any] = RunFolder(tmp_path / "run-seed5").drafts.rows()
    texts = [row["drafts"][0]["specification"] for row in rows[::2]]
    written: list[Any] = []
    for window in range(4):
        begin(loop, 2 * window)
        assert [each.value is None for each in loop.proposals] == [False, True]
        assert all(entry.provenance.writer == "shuffled" for entry in loop.pool.entries)
        written.append(close(loop, 2 * window, {}).proposals[0]["specification"])
        close(loop, 2 * window + 1, {})
    assert sorted(written) == sorted(texts)
    assert all(one != other for one, other in zip(written, texts, strict=True))


@pytest.mark.parametrize(
    ("run", "section", "sentence"),
    [
        ({}, {"recorded": None}, "task_writer.recorded: shuffled needs the folder of a run"),
        ({}, {"recorded": "nowhere"}, "task_writer.recorded: 'nowhere' is no folder of a run in which tasks were"),
        ({"update_every": 3}, {}, "task_writer.update_every: 2; set it to the 3 rounds of the windows of "),
        ({"windows": 3}, {}, "task_writer.recorded: "),
        ({}, {"specifications": 1}, "task_writer.specifications: 1 is given, and a window of "),
    ],
)
def test_a_recorded_run_that_does_not_fit_is_one_sentence(
    run: dict[str, Any], section: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    config = config_of(kind="shuffled", **{"recorded": str(record(tmp_path, **run)), **section})
    assert refusal(config.validate).startswith(sentence)
    config = config_of(kind="shuffled", recorded=str(record(tmp_path / "whole"))).training(rounds=2)
    assert "1 window is too few" in refusal(config.validate)


@pytest.mark.parametrize(
    "line", ['{"round": 1, "drafts": [7]}', '{"round": "1", "drafts": []}', '{"round": 1, "drafts": {}}', "[1]", "{"]
)
def test_a_recorded_file_is_hostile_input(line: str, tmp_path: Path) -> None:
    folder = record(tmp_path)
    (folder / "drafts.jsonl").write_text(line + "\n", encoding="utf-8")
    assert refusal(config_of(kind="shuffled", recorded=str(folder)).validate)
