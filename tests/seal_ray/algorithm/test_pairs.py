"""Pairs: half of a group plain, half under an arm; which of them are played, compared and learnt from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from seal_ray.algorithm.curation.window import CuratorWindow
from seal_ray.algorithm.objects import make_advantages
from seal_ray.grpo.rewards.success import SuccessReward
from seal_ray.rollout.groups import GroupPlan, PlayedGroup, TaskStream, number_arms, of_rollouts
from seal_ray.rollout.sampler import SuccessSampler
from seal_ray.training.advantages_to_rows import (
    ComparedGroup,
    Dropped,
    GroupScorer,
    Reweighter,
    RoundRows,
    make_rows,
)

from envs.diagnosis import Label
from envs.interface import Interface
from policies.plain_view import NoView, PlainView
from policies.rollouts import Fault
from policies.trajectory import Trajectory
from seal_ray.config.sections import Environment, Reweighting, Training
from seal_ray.rollout.planner import Planner
from seal_ray.rollout.waves import play_on_demand, play_waves
from tests.seal_ray.algorithm.rounds import ARMS, COMPARE, Solver, sparse_config
from tests.seal_ray.grpo.diagnoses import diagnosed

PLAIN_VIEW = Training(view="plain")
Outcome = float | NoView | None
"""A success or failure with a plain view; a success without one, for this reason; a fault."""


def planned(number: int = 0, *, members: int = 4) -> GroupPlan:
    """A pair, the plain half first."""
    plan = Planner(sparse_config(group_size=members)).plan(ARMS, 0)[0]
    return replace(plan, number=number, arm=ARMS[1], plain_members=members // 2)


def played(plan: GroupPlan, outcomes: Sequence[Outcome]) -> PlayedGroup:
    found: list[Trajectory | Fault] = []
    views: list[PlainView | NoView | None] = []
    for seed, arm, outcome in zip(plan.seeds, plan.arms, outcomes, strict=True):
        if outcome is None:
            found.append(Fault(plan.task, seed, "EnvironmentFault", "broken"))
            views.append(None)
            continue
        success = outcome if isinstance(outcome, float) else 1.0
        (group,) = Solver(lambda _, success=success: success).play([replace(plan, seeds=(seed,), plain_members=0)])  # type: ignore[misc]
        trajectory = replace(
            group.trajectories[0], diagnosis=diagnosed(Label.PASS if success else Label.STATE_MISMATCH)
        )
        # The view has one token less to read, and the same one sampled.
        view = PlainView(
            seed=seed,
            token_ids_T=(7, 2),
            mask_T=(False, True),
            sampled_logprobs_T=(0.0, -1.0),
            versions_T=(-1, 0),
            sampled=(),
        )
        found.append(trajectory)
        views.append(None if arm.plain else outcome if isinstance(outcome, NoView) else view)
    return PlayedGroup(plan, tuple(found), tuple(views))


def rows_of(
    groups: Sequence[PlayedGroup], training: Training = PLAIN_VIEW, *, round_number: int = 0, mode: str = "none"
) -> RoundRows:
    return make_rows(
        groups,
        compare=GroupScorer(SuccessReward(), make_advantages(training), 0.5),
        training=training,
        reweighter=Reweighter(Reweighting(mode=mode, low=0.5, high=2.0, budget=1.0)),  # type: ignore[arg-type]
        round_number=round_number,
        compare_arms=True,
    )


def flat(rows: RoundRows) -> list[tuple[float, int | None, int | None]]:
    """Advantage, arm and anchor of each row."""
    found = [row for each in rows.minibatches for group in each.groups for row in group]
    return [(round(row.advantage, 4), row.arm, row.anchored) for row in found]


def test_with_pairs_groups_that_are_not_plain_are_half_plain() -> None:
    config = sparse_config(group_size=4).curator(pairs=True)
    plans = Planner(config).plan(ARMS, 0)
    alone = Planner(sparse_config(group_size=4)).plan(ARMS, 0)
    assert [(p.number, p.task, p.arm, p.seeds) for p in plans] == [(p.number, p.task, p.arm, p.seeds) for p in alone]
    for plan in plans:
        numbers = [arm.number for arm in plan.arms]
        assert numbers == ([0] * 4 if plan.plain else [0, 0, plan.arm.number, plan.arm.number])
        assert plan.plain == plan.arm.plain
        assert [part.seeds for part in plan.parts] == ([plan.seeds] if plan.plain else [plan.seeds[:2], plan.seeds[2:]])
    assert sum(not plan.plain for plan in plans) == 6
    # A group that takes a pair's place is one too.
    planner = Planner(config)
    pairs = [plan for plan in planner.plan(ARMS, 0) if not plan.plain]
    assert [(each.arm, each.plain_members) for each in planner.replace(pairs)] == [(each.arm, 2) for each in pairs]


def test_a_pair_is_one_pool_of_which_guided_successes_are_anchored() -> None:
    # Plain: a success and a failure; guided: a success, and a failure that gives no row.
    rows = rows_of([played(planned(), [1.0, 0.0, 1.0, 0.0])])
    assert flat(rows) == [(1.0, 0, None), (-1.0, 0, None), (1.0, 1, 1)]
    assert (rows.anchored, rows.groups_kept) == (1, 1)
    (view,) = [row for row in rows.minibatches[0].groups[0] if row.anchored]
    assert view.token_ids_T.tolist() == [7, 2]
    # As it was shown, all are learnt from, and nothing is anchored.
    shown = rows_of([played(planned(), [1.0, 0.0, 1.0, 0.0])], Training())
    assert flat(shown) == [(1.0, 0, None), (-1.0, 0, None), (1.0, 1, None), (-1.0, 1, None)]


def test_plain_failures_and_guided_successes_teach_together() -> None:
    group = played(planned(), [0.0, 0.0, 1.0, 1.0])
    assert flat(rows_of([group])) == [(-1.0, 0, None), (-1.0, 0, None), (1.0, 1, 1), (1.0, 1, 1)]
    assert flat(rows_of([group], Training(view="plain", baseline="pooled", advantage="dr-grpo"))) == [
        *[(-0.5, 0, None)] * 2,
        *[(0.5, 1, 1)] * 2,
    ]
    # Against what plain does alone, its own failures are as they were, and guided ones are all gain.
    assert flat(rows_of([group], Training(view="plain", baseline="plain", advantage="dr-grpo"))) == [
        *[(0.0, 0, None)] * 2,
        *[(1.0, 1, 1)] * 2,
    ]
    # The other way round there is nothing to learn from guidance.
    assert flat(rows_of([played(planned(), [1.0, 1.0, 0.0, 0.0])])) == [(1.0, 0, None), (1.0, 0, None)]


def test_rollouts_are_counted_by_labels_tokens_and_reward() -> None:
    (first, second, *others) = played(planned(), [1.0, 0.0, 0.0, 0.0]).trajectories
    labels = (Label.PASS, Label.CORRECT_ABSTENTION, Label.STATE_MISMATCH)
    changed = [replace(first, diagnosis=diagnosed(*labels)), replace(second, diagnosis=diagnosed(Label.PASS)), *others]
    group = PlayedGroup(planned(), tuple(changed))
    counted = of_rollouts([group], lambda each: 0.75 if each is changed[0] else 0.25, ["base"])
    assert counted["solver/reward"] == pytest.approx((0.75 + 3 * 0.25) / 4)
    assert counted["solver/success"] == 0.25
    assert counted["solver/tokens_sampled"] == sum(sum(each.mask_T) for each in changed) > 0
    turns = [label for each in changed for label in each.diagnosis.labels]
    for label in Label:
        assert counted[f"diagnosis/share/{label}"] == pytest.approx(turns.count(label) / len(turns))
    assert counted["diagnosis/share/state_mismatch"] > 0


def test_successes_without_a_view_give_no_row_and_are_counted() -> None:
    crutch = NoView.CRUTCH_QUOTE
    groups = [played(planned(), [0.0, 0.0, crutch, 1.0]), played(planned(1), [0.0, 1.0, crutch, NoView.CONTEXT])]
    assert [anchored for *_, anchored in flat(rows_of(groups))] == [None, None, 1, None, None]
    counted = of_rollouts(groups, SuccessReward(), ["base"])
    assert counted["solver/views"] == 1
    assert counted["solver/views/crutch_quote"] == 2
    assert counted["solver/views/context"] == 1
    assert counted["solver/views/trace"] == 0
    assert "solver/views" not in of_rollouts([replace(each, views=()) for each in groups], SuccessReward(), ["base"])
    # Without pairs a group can be left without any row.
    guided = replace(planned(), plain_members=0)
    rows = rows_of([played(guided, [0.0, 0.0, crutch, crutch]), played(guided, [0.0, 0.0, crutch, 1.0])])
    assert (rows.groups_kept, rows.dropped_unseen, rows.anchored) == (1, 1, 1)
    assert rows.measured["solver/groups_dropped_unseen"] == 1


def test_weights_are_those_of_the_rows_that_are_learnt_from() -> None:
    """The budget's mean of 1 is over rows, not over rollouts that give none."""
    groups = [played(planned(), [1.0, 0.0, 1.0, 0.0]), played(planned(1), [0.0, 0.0, 1.0, 0.0])]
    rows = rows_of(groups, mode="fixed")
    assert rows.weight_mean == pytest.approx(1.0)
    assert len(flat(rows)) == 6


def test_share_and_cap_of_the_advantage_fade_over_the_run() -> None:
    group = played(planned(), [0.0, 0.0, 1.0, 1.0])
    training = Training(
        view="plain", rounds=11, anchor_share=0.8, anchor_share_end=0.0, anchor_cap=2.0, anchor_cap_end=0.5
    )
    found = [flat(rows_of([group], training, round_number=number)) for number in (0, 5, 8, 10)]
    assert [rows[2:3] for rows in found] == [[(0.8, 1, 1)], [(0.8, 1, 1)], [(0.3556, 1, 1)], []]
    assert all(rows[:2] == [(-1.0, 0, None)] * 2 for rows in found)
    capped = flat(rows_of([group], Training(view="plain", anchor_cap=0.25)))
    assert capped[2:] == [(0.25, 1, 1)] * 2
    assert rows_of([group], training, round_number=8).measured["solver/anchor_share"] == pytest.approx(
        0.8 * (1 - 2.5 / 4.5)
    )


def test_each_half_of_a_pair_must_have_been_played() -> None:
    def compared(*outcomes: Outcome) -> ComparedGroup | Dropped:
        return COMPARE(played(planned(members=len(outcomes)), outcomes))

    assert isinstance(compared(1.0, None, 1.0, 0.0), ComparedGroup)
    assert compared(None, None, 1.0, 0.0) is Dropped.SHORT
    assert compared(1.0, 0.0, None, None) is Dropped.SHORT
    assert compared(None, None, None, None) is Dropped.SHORT
    assert compared(1.0, None, 1.0, None) is Dropped.EQUAL


def test_one_dialogue_that_was_all_that_was_needed_is_not_short() -> None:
    """A pair of two on demand, of which the plain half has won."""
    half = replace(planned(members=2), seeds=(1,), plain_members=1)
    assert COMPARE(played(half, [1.0])) is Dropped.EQUAL
    assert COMPARE(played(half, [None])) is Dropped.SHORT
    assert COMPARE(played(planned(members=2), [1.0, None])) is Dropped.SHORT


def test_without_reweighting_all_labels_weigh_one() -> None:
    assert set(Reweighter(Reweighting(mode="none")).rho.values()) == {1.0}
    assert set(Reweighter(Reweighting(mode="fixed")).rho.values()) != {1.0}


def test_a_pair_counts_for_both_of_its_arms() -> None:
    groups = [played(planned(), [1.0, 0.0, 1.0, 1.0]), played(planned(1), [0.0, None, 1.0, 0.0])]
    window = CuratorWindow(ARMS)
    window.observe(groups, {})
    assert [(group.arm, group.category, group.success) for group in window.groups] == [
        *((0, "base", 0.5), (1, "base", 1.0)),
        *((0, "base", 0.0), (1, "base", 0.5)),
    ]
    counted = of_rollouts(groups, SuccessReward(), ["base"])
    assert counted["solver/success_plain"] == pytest.approx(1 / 3)
    assert counted["solver/success_shown"] == pytest.approx(3 / 4)
    assert (counted["interface/plain_share"], counted["solver/groups_shown"]) == (0.0, 2)
    # What is known of a task is how it goes plain.
    environment = Environment(tasks=12, sampler="success")
    sampler = SuccessSampler(TaskStream(environment, 0), floor=0.2, seed=0)
    sampler.observe(groups[:1])
    alone = SuccessSampler(TaskStream(environment, 0), floor=0.2, seed=0)
    plain = replace(planned(), plain_members=4)
    alone.observe([played(plain, [1.0, 0.0, 1.0, 0.0])])
    assert sampler.get_state() == alone.get_state()


def test_on_demand_the_arm_is_played_where_all_plain_members_fail() -> None:
    names = ("hard", "easy", "mixed", "broken", "plain")
    pairs = [replace(planned(number), task=task) for number, task in enumerate(names)]
    pairs[4] = replace(pairs[4], arm=ARMS[0], plain_members=0)
    asked: list[list[tuple[str, int, int]]] = []

    def play(plans: Sequence[GroupPlan]) -> list[PlayedGroup]:
        asked.append([(plan.task, plan.arms[0].number, len(plan.seeds)) for plan in plans])
        told: dict[str, list[Outcome]] = {
            "hard": [0.0, 0.0],
            "easy": [1.0, 1.0],
            "mixed": [1.0, 0.0],
            "broken": [None, None],
            "plain": [0.0, 0.0, 0.0, 1.0],
        }
        return [played(plan, [1.0, 1.0] if plan.arms[0].number else told[plan.task]) for plan in plans]

    groups = play_on_demand(pairs, play=play)
    assert asked == [
        [("hard", 0, 2), ("easy", 0, 2), ("mixed", 0, 2), ("broken", 0, 2), ("plain", 0, 4)],
        [("hard", 1, 2)],
    ]
    hard, easy, mixed, broken, plain = groups
    assert hard.plan == pairs[0]
    assert [each.seed for each in hard.trajectories] == list(pairs[0].seeds)
    assert [each.arm.number for each in hard.members] == [0, 0, 1, 1]
    assert [view is None for view in hard.views] == [True, True, False, False]
    for group, pair in ((easy, pairs[1]), (mixed, pairs[2]), (broken, pairs[3])):
        assert group.plan == pair.parts[0]
        assert group.plan.plain
        assert group.plan.arm == pair.arm, "one that takes its place may need it"
    assert plain.plan == pairs[4]
    rows = rows_of(groups)
    assert (rows.groups_kept, rows.dropped_equal, rows.dropped_short, rows.anchored) == (3, 1, 1, 2)


@pytest.mark.parametrize(("reward", "members"), [(0.0, 4), (1.0, 2)])
def test_on_demand_pairs_are_replaced_as_pairs(reward: float, members: int) -> None:
    """Resampling and guidance on demand: a pair is judged once its second half was played, if that was needed."""
    config = sparse_config(group_size=4, fill="resample", fill_limit=3).curator(pairs=True, show="when_failing")
    planner = Planner(config)
    equal = Solver(lambda _: reward)
    calls: list[int] = []

    def play(plans: Sequence[GroupPlan]) -> list[PlayedGroup]:
        calls.append(sum(len(plan.seeds) for plan in plans))
        return equal.play(plans)

    waves = play_waves(
        planner.plan(ARMS, 0),
        play=lambda plans: play_on_demand(plans, play=play),
        is_equal=COMPARE.is_equal,
        replace=planner.replace,
        most=24,
    )
    assert [len(wave) for wave in waves] == [8, 8, 8]
    # Two plain groups of 4, six pairs of 2 and, where these fail, 2.
    assert calls == ([20, 12] if members == 4 else [20]) * 3
    numbers = [group.plan.number for wave in waves for group in wave]
    assert numbers == list(range(24))
    for wave in waves:
        assert sorted(len(group.plan.seeds) for group in wave) == [members] * 6 + [4, 4]


def test_an_arm_that_is_plain_has_no_pair() -> None:
    (arm,) = number_arms([Interface.plain()])
    plan = replace(planned(), arm=arm, plain_members=0)
    assert plan.plain
    assert plan.parts == (plan,)
