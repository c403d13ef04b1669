"""What a round plays: tasks by number, and groups shared out over interfaces."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seal_ray.rollout.groups import PLAIN_ARM, GroupPlan, TaskStream, number_arms, plain_share_at, plan_round

from envs.dialogue import Protocol
from envs.errors import UserError
from envs.interface import Interface
from envs.sources import find_task
from envs.task import Category
from seal_ray.config.sections import Curator, Environment
from seal_ray.rollout.planner import Planner
from tests.seal_ray.algorithm.rounds import sparse_config

SHOWN = (Interface(guidelines=("Ask.",)), Interface(guidelines=("Abstain.",)))


def planned(groups: int, interfaces: tuple[Interface, ...], share: float, *, first: int = 0) -> list[GroupPlan]:
    return plan_round(
        [f"task {number}" for number in range(groups)],
        number_arms(interfaces),
        first_number=first,
        plain_share=share,
        group_size=3,
        protocol=Protocol.SEAL,
        temperature=1.0,
        seed=5,
    )


@given(st.integers(1, 40), st.floats(0, 1), st.integers(0, 2))
def test_shares_of_a_round(groups: int, share: float, shown: int) -> None:
    plans = planned(groups, SHOWN[:shown], share)
    arms = Counter(plan.arm.number for plan in plans)
    assert arms[0] == (max(1, round(share * groups)) if shown else groups)
    assert max(arms[1], arms[2]) - min(arms[1], arms[2] if shown == 2 else arms[1]) <= 1
    for plan in plans:
        assert plan.arm.interface == (Interface.plain() if plan.arm.plain else SHOWN[plan.arm.number - 1])
        assert len(set(plan.seeds)) == 3
    assert [plan.number for plan in plans] == list(range(groups))


def test_the_plain_interface_among_the_proposals_is_the_plain_arm() -> None:
    assert {plan.arm for plan in planned(6, (Interface.plain(),), 0.0)} == {PLAIN_ARM}


def test_rounds_differ_and_repeat() -> None:
    assert planned(12, SHOWN, 0.5) == planned(12, SHOWN, 0.5)
    first, second = planned(12, SHOWN, 0.5), planned(12, SHOWN, 0.5, first=12)
    assert [plan.arm for plan in first] != [plan.arm for plan in second]
    assert not {seed for plan in first for seed in plan.seeds} & {seed for plan in second for seed in plan.seeds}


@pytest.mark.parametrize("protocol", [Protocol.SEAL, Protocol.UNTIL_FAILURE, Protocol.OFFICIAL])
def test_groups_are_played_by_the_rules_that_the_environment_names(protocol: Protocol) -> None:
    plans = Planner(sparse_config(environment={"protocol": str(protocol)})).plan(number_arms(SHOWN), 0)
    assert {plan.protocol for plan in plans} == {protocol}


def test_the_plain_share_fades_from_a_point_to_the_end() -> None:
    fading, constant = (Curator(plain_share=0.2, plain_share_end=end, fade_from=0.5) for end in (1.0, None))
    shares = [plain_share_at(at, 11, fading) for at in range(11)]
    assert shares[:6] == [0.2] * 6
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    assert [plain_share_at(at, 11, constant) for at in (0, 10)] == [0.2, 0.2]


def test_the_toolworld_has_no_end_and_other_seeds_other_tasks() -> None:
    stream, other = TaskStream(Environment(), 0), TaskStream(Environment(), 1)
    names = [stream.task_id(number) for number in range(40)]
    assert len(set(names)) == 40
    assert Counter(find_task(name).category for name in names) == dict.fromkeys(Category, 10)
    assert not set(names) & {other.task_id(number) for number in range(40)}


def test_a_finite_set_is_gone_through_in_epochs_of_other_orders() -> None:
    stream = TaskStream(Environment(tasks=12), 0)
    epochs = [[stream.task_id(12 * epoch + place) for place in range(12)] for epoch in range(3)]
    assert {tuple(sorted(epoch)) for epoch in epochs} == {tuple(sorted(epochs[0]))}
    assert len(set(map(tuple, epochs))) == 3
    assert [TaskStream(Environment(tasks=12), 0).task_id(25), TaskStream(Environment(tasks=12), 0).task_id(3)] == [
        epochs[2][1],
        epochs[0][3],
    ]


def test_the_benchmark_s_train_split_is_played_and_no_other() -> None:
    from envs.bfcl.splits import get_split

    stream = TaskStream(Environment(source="bfcl", categories=[Category.MISS_FUNC]), 0)
    train = {task.id for task in get_split("scenario").train if task.category is Category.MISS_FUNC}
    assert {stream.task_id(number) for number in range(len(train))} == train
    with pytest.raises(UserError, match="has no tasks"):
        TaskStream(Environment(source="bfcl", split="dev", division="category"), 0)
