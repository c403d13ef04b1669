"""The pool of written tasks, and what a task is worth."""

import json
import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from envs.sources import find_task
from envs.specifications import Rejected, Specification, writable
from envs.task import Category, Task
from envs.toolworld.specification import TaskSpecification
from seal_ray.proposing import task_pool
from seal_ray.proposing.task_pool import DISCOUNT, Provenance, WrittenTaskPool, difficulty, story_of, written_slots
from seal_ray.proposing.task_rewards import (
    AlphaTaskReward,
    HeldOutOutcome,
    HeldOutSuccessReward,
    LearningProgressReward,
    TaskOutcome,
    WindowOutcomes,
)
from tests.envs.test_toolworld import content

SOURCE = writable("toolworld")


def some(count: int, *, seed: int = 0) -> list[tuple[Task, Specification]]:
    """Tasks of specifications at random."""
    found: list[tuple[Task, Specification]] = []
    number = 0
    while len(found) < count:
        specification = SOURCE.draw(random.Random(f"{seed} {number}"))
        task = SOURCE.compose(specification, number)
        if not isinstance(task, Rejected):
            found.append((task, specification))
        number += 1
    return found


def filled(count: int) -> WrittenTaskPool:
    pool = WrittenTaskPool()
    for place, (task, specification) in enumerate(some(count)):
        assert pool.add(task, specification, Provenance("random", "none", place // 10)) is None
    return pool


def play(pool: WrittenTaskPool, rates: list[float], rollouts: int = 8, round_number: int = 0) -> None:
    for entry, rate in zip(pool.entries, rates, strict=True):
        pool.observe(entry.task, successes=rate * rollouts, rollouts=rollouts, round_number=round_number)


def test_a_task_is_added_once_with_where_it_comes_from() -> None:
    pool = WrittenTaskPool()
    (task, specification), (other, another) = some(2)
    assert pool.add(task, specification, Provenance("llm", "abc", 3)) is None
    again = pool.add(task, specification, Provenance("llm", "abc", 4))
    assert again == "specification: it stands in the pool already."
    assert pool.add(task, another, Provenance("llm", "abc", 4)) == (
        "specification: its task tells the story of another one of the pool."
    )
    assert pool.add(other, another, Provenance("llm", "abc", 4)) is None
    assert [each.provenance.round for each in pool.entries] == [3, 4]
    assert task.id in pool
    assert pool.known(specification) is pool.entries[0]
    row = pool.rows()[0]
    assert (row["writer"], row["profile"], row["written"], row["p"]) == ("llm", "abc", 3, None)
    assert json.loads(json.dumps(pool.rows())) == pool.rows()


def test_counts_age() -> None:
    pool = filled(4)
    play(pool, [0.0, 0.5, 0.5, 1.0])
    assert [each.difficulty.p for each in pool.entries] == [0.0, 0.5, 0.5, 1.0]
    wide = pool.entries[1].difficulty
    pool.age()
    assert [each.counted for each in pool.entries] == [DISCOUNT * 8] * 4
    assert [each.rollouts for each in pool.entries] == [8] * 4
    assert pool.entries[1].difficulty.p == 0.5
    assert pool.entries[1].difficulty.low < wide.low < 0.5 < wide.high < pool.entries[1].difficulty.high
    pool.observe(pool.entries[1].task, successes=8, rollouts=8, round_number=2)
    assert pool.entries[1].difficulty.p == pytest.approx((0.9 * 4 + 8) / (0.9 * 8 + 8)), "later rollouts count more"


def test_the_easiest_and_the_hardest_tenth_are_left_out() -> None:
    pool = filled(30)
    play(pool, [place / 29 for place in range(30)], rollouts=29)
    entries = pool.entries
    assert pool.left_out() == {entries[at].task for at in (0, 1, 2, 27, 28, 29)}
    drawn = pool.draw(30, seed="0 1")
    assert sorted(drawn) == sorted(each.task for each in entries[3:27])
    assert drawn == pool.draw(30, seed="0 1") != pool.draw(30, seed="0 2")
    assert set(pool.draw(5, seed="0 1")) <= set(drawn)
    assert not filled(9).left_out()


def test_tasks_that_were_not_played_come_first() -> None:
    pool = filled(12)
    for entry in pool.entries[:8]:
        pool.observe(entry.task, successes=2, rollouts=4, round_number=0)
    fresh = [each.task for each in pool.entries[8:]]
    assert pool.draw(3, seed="0") == fresh[:3]
    assert pool.draw(6, seed="0")[:4] == fresh
    assert len(set(pool.draw(100, seed="0"))) == 12
    first = pool.entries[8]
    pool.observe(first.task, successes=0, rollouts=0, round_number=1)
    assert pool.draw(3, seed="0") == fresh[1:], "one that was played under an arm alone is not fresh"
    assert first.difficulty.p is None


def test_a_full_pool_retires_what_is_filtered_then_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_pool, "CAPACITY", 15)
    pool = filled(20)
    rates = [0.5] * 20
    rates[5], rates[6], rates[12], rates[13] = 0.0, 0.0, 1.0, 1.0
    play(pool, rates)
    entries = pool.entries
    pool.trim()
    retired = {entries[at].task for at in (0, 5, 6, 12, 13)}
    assert {each.task for each in entries} - {each.task for each in pool.entries} == retired
    assert (len(pool), pool.retired) == (15, 5)


def test_a_pool_continues_from_its_state_and_its_tasks_replay_bit_equal() -> None:
    pool = filled(100)
    tasks = {task.id: content(task) for task, _ in some(100)}
    play(pool, [place % 9 / 8 for place in range(100)])
    pool.age()
    state = json.loads(json.dumps(pool.get_state()))
    again = WrittenTaskPool()
    again.set_state(state, SOURCE)
    assert again.get_state() == pool.get_state()
    assert again.entries == pool.entries
    assert again.rows() == pool.rows()
    for each in (pool, again):
        play(each, [0.25] * 100, round_number=1)
        each.age()
    assert again.draw(60, seed="3") == pool.draw(60, seed="3")
    assert again.left_out() == pool.left_out()
    assert again.metrics() == pool.metrics()
    for entry in again.entries:
        task = find_task(entry.task)
        assert content(task) == tasks[entry.task]
        assert story_of(task) == entry.story
        assert SOURCE.specification_in(entry.task) == entry.specification
    empty = WrittenTaskPool()
    empty.set_state({}, SOURCE)
    assert len(empty) == 0
    assert empty.metrics()["pool/tasks"] == 0


def test_metrics_are_of_all_tasks() -> None:
    pool = filled(4)
    play(pool, [0.0, 0.5, 0.5, 1.0])
    (task, specification), *_ = some(1, seed=9)
    pool.add(task, specification, Provenance("random", "none", 9))
    found = pool.metrics()
    assert found["pool/tasks"] == 5
    assert found["pool/unplayed"] == 1
    assert found["pool/success"] == 0.5
    assert found["pool/middle"] == 0.5


@pytest.mark.parametrize("share", [0.0, 0.1, 1 / 3, 0.5, 1.0])
def test_the_share_of_written_tasks_is_kept_over_rounds(share: float) -> None:
    whole = written_slots(share, range(480))
    assert len(whole) == pytest.approx(480 * share, abs=1e-6)
    parts = [written_slots(share, range(at, at + 16)) for at in range(0, 480, 16)]
    assert [number for part in parts for number in part] == whole
    assert all(abs(len(part) - 16 * share) < 1 for part in parts)


@pytest.mark.parametrize("rollouts", [4, 32])
def test_the_interval_covers(rollouts: int) -> None:
    """Over success rates the interval holds the true one as often as it says; at no rate far less often."""
    rng = np.random.default_rng(rollouts)
    rates = np.linspace(0.02, 0.98, 25)
    found = [difficulty(k, rollouts) for k in range(rollouts + 1)]
    covered = []
    for rate in rates:
        drawn = rng.binomial(rollouts, rate, 4_000)
        covered.append(np.mean([found[k].low <= rate <= found[k].high for k in drawn]))
    assert np.mean(covered) == pytest.approx(0.9, abs=0.035)
    assert np.mean(covered) > 0.885
    assert min(covered) > 0.75


def test_the_interval_of_aged_counts_is_on_the_safe_side() -> None:
    rng = np.random.default_rng(7)
    covered = []
    for rate in np.linspace(0.05, 0.95, 10):
        for _ in range(400):
            successes = counted = 0.0
            for _ in range(10):
                successes, counted = (successes + rng.binomial(8, rate)) * 0.8, (counted + 8) * 0.8
            found = difficulty(successes, counted)
            covered.append(found.low <= rate <= found.high)
    assert np.mean(covered) > 0.9


def test_the_ends_of_the_interval() -> None:
    assert difficulty(0, 0) == difficulty(0.0, 0.0)
    assert (difficulty(0, 0).p, difficulty(0, 0).low, difficulty(0, 0).high) == (None, 0.0, 1.0)
    assert difficulty(0, 4).low == 0.0
    assert 0.3 < difficulty(0, 4).high < 0.6
    assert difficulty(4, 4).high == 1.0
    assert difficulty(2, 4).p == 0.5
    assert difficulty(1, 8).high == pytest.approx(1 - difficulty(7, 8).low)
    with pytest.raises(ValueError, match="5 successes in 4"):
        difficulty(5, 4)


def spec(*turns: str, scenes: Sequence[str] = ("files",), category: str = "base") -> Specification:
    return TaskSpecification(Category(category), tuple(scenes), tuple((each,) for each in turns))


SHOW, COPY = spec("files.show"), spec("files.show", "files.copy")
LIKE = spec("files.show", "files.copy", "files.sort")
OTHER = spec("trading.quote", scenes=("trading",))


def test_alpha_is_genenvs_formula_and_largest_at_one_half() -> None:
    written = [TaskOutcome(SHOW, successes, 4) for successes in range(5)]
    assert AlphaTaskReward()(WindowOutcomes([*written, TaskOutcome(COPY, 0, 0)])) == [
        pytest.approx(math.exp(-0.5)),
        pytest.approx(math.exp(-0.125)),
        1.0,
        pytest.approx(math.exp(-0.125)),
        pytest.approx(math.exp(-0.5)),
        None,
    ]


def test_progress_is_the_change_near_a_specification() -> None:
    window = WindowOutcomes(
        written=[TaskOutcome(COPY, 3, 4), TaskOutcome(OTHER, 4, 4), TaskOutcome(COPY, 0, 0)],
        earlier=[TaskOutcome(SHOW, 1, 4), TaskOutcome(LIKE, 1, 4)],
        now=[TaskOutcome(SHOW, 0, 0), TaskOutcome(LIKE, 3, 4)],
    )
    assert LearningProgressReward()(window) == [pytest.approx(0.5), None, None], "a task that was not played has none"


def test_held_out_success_is_the_gain_on_tasks_that_are_alike() -> None:
    held_out = [
        HeldOutOutcome(SHOW, 0.25, 0.75),
        HeldOutOutcome(spec("tickets.read", scenes=("tickets",)), 0.5, 0.25),
    ]
    reward = HeldOutSuccessReward()
    written = [TaskOutcome(COPY, 1, 4), TaskOutcome(OTHER, 1, 4), TaskOutcome(SHOW, 0, 0)]
    close, far, unplayed = reward(WindowOutcomes(written, held_out=held_out))
    assert close == pytest.approx((3 / 5 * 0.5 - 1 / 7 * 0.25) / (3 / 5 + 1 / 7))
    assert far is not None
    assert far < close  # type: ignore[operator]
    assert unplayed is None
    assert reward(WindowOutcomes([TaskOutcome(COPY, 1, 4)])) == [None]
    unlike = TaskOutcome(spec("files.show", category="long_context"), 1, 4)
    assert reward(WindowOutcomes([unlike], held_out=held_out)) == [pytest.approx(0.125)]
