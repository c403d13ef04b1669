"""From played groups to rows: pairs, plain views, weights, minibatches; and what a round's rollouts count."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from envs.diagnosis import Label
from policies.plain_view import NoView, PlainView
from policies.rollouts import Fault
from policies.trajectory import Trajectory
from seal_ray.config.schema import ReweightingSection, TrainingSection
from seal_ray.grpo.advantages import dr_grpo
from seal_ray.grpo.rewards import find_reward, success
from seal_ray.grpo.reweighting import Reweighter
from seal_ray.rollout.dispatch import TooManyFaults, check_faults
from seal_ray.rollout.metrics import rollout_metrics
from seal_ray.rollout.planner import Planner
from seal_ray.rollout.types import PLAIN_ARM, REWARD_FAULT, Group, GroupPlan, Member
from seal_ray.training.rows import Dropped, GroupScorer, RoundRows, ScoredGroup, even_parts, make_rows
from tests.seal_ray.grpo.diagnoses import diagnosed
from tests.seal_ray.rollout.rounds import ARMS, SCORE, Allocator, Solver, sparse_spec

PLAIN_VIEW = TrainingSection(view="plain")
GUIDED = ARMS[1].id
Played = float | NoView | None
"""A success or failure with a plain view; a success without one, for this reason; a fault."""


def pair(number: int = 0, *, members: int = 4) -> GroupPlan:
    """A pair, the plain half first."""
    plan = Planner(sparse_spec(group_size=members)).plan(ARMS, 0, Allocator())[0]
    return replace(plan, number=number, category="base", arm=ARMS[1], plain_members=members // 2)


def played(plan: GroupPlan, outcomes: Sequence[Played]) -> Group:
    members = []
    for seed, arm, outcome in zip(plan.seeds, plan.arms, outcomes, strict=True):
        if outcome is None:
            members.append(Member(arm, Fault(plan.task, seed, "EnvironmentFault", "broken")))
            continue
        skill = outcome if isinstance(outcome, float) else 1.0
        (group,) = Solver(lambda _, skill=skill: skill).play([replace(plan, seeds=(seed,), plain_members=0)])  # type: ignore[misc]
        # The view has another token to read, and the same one sampled.
        view = PlainView(seed, (7, 2), (False, True), (0.0, -1.0), (-1, 0), sampled=())
        shown = outcome if isinstance(outcome, NoView) else view
        members.append(Member(arm, group.trajectories[0], None if arm.plain else shown))
    return Group(plan, tuple(members)).scored(success)


def rows_of(
    groups: Sequence[Group],
    training: TrainingSection = PLAIN_VIEW,
    *,
    score: GroupScorer = SCORE,
    reweighting: ReweightingSection | None = None,
) -> RoundRows:
    reweighter = Reweighter(reweighting or ReweightingSection(mode="none"))
    return make_rows(groups, score=score, training=training, reweighter=reweighter)


def flat(rows: RoundRows) -> list[tuple[float, str | None]]:
    """Advantage, and the arm that was stripped, of each row."""
    return [
        (round(row.advantage, 4), row.stripped_of)
        for minibatch in rows.minibatches
        for group in minibatch.groups
        for row in group
    ]


def test_a_pair_is_one_pool_whose_guided_successes_are_learnt_from_on_their_plain_views() -> None:
    # Plain: a success and a failure; guided: a success, and a failure that gives no row.
    group = played(pair(), [1.0, 0.0, 1.0, 0.0])
    rows = rows_of([group])
    assert flat(rows) == [(1.0, None), (-1.0, None), (1.0, GUIDED)]
    assert (rows.metrics["solver/hint_stripped_rows"], rows.metrics["solver/groups_kept"]) == (1, 1)
    (view,) = [row for row in rows.minibatches[0].groups[0] if row.stripped_of]
    assert view.token_ids_T.tolist() == [7, 2]
    shown = rows_of([group], TrainingSection(view="shown"))
    assert flat(shown) == [(1.0, None), (-1.0, None), (1.0, None), (-1.0, None)]


def test_plain_failures_and_guided_successes_teach_together() -> None:
    group = played(pair(), [0.0, 0.0, 1.0, 1.0])
    assert flat(rows_of([group])) == [(-1.0, None)] * 2 + [(1.0, GUIDED)] * 2
    assert flat(rows_of([group], score=GroupScorer(dr_grpo, 0.5))) == [(-0.5, None)] * 2 + [(0.5, GUIDED)] * 2
    # The other way round there is nothing to learn from guidance.
    assert flat(rows_of([played(pair(), [1.0, 1.0, 0.0, 0.0])])) == [(1.0, None)] * 2


def test_successes_without_a_view_give_no_row_and_are_counted() -> None:
    crutch = NoView.CRUTCH_QUOTE
    groups = [played(pair(), [0.0, 0.0, crutch, 1.0]), played(pair(1), [0.0, 1.0, crutch, NoView.CONTEXT])]
    assert [stripped for *_, stripped in flat(rows_of(groups))] == [None, None, GUIDED, None, None]
    metrics = rollout_metrics(groups, ["base"])
    assert metrics["solver/views"] == 1
    assert metrics[f"solver/views/{crutch}"] == 2
    assert metrics[f"solver/views/{NoView.CONTEXT}"] == 1
    assert metrics[f"solver/views/{NoView.TRACE}"] == 0
    bare = [Group(group.plan, tuple(replace(each, view=None) for each in group.members)) for group in groups]
    assert "solver/views" not in rollout_metrics(bare, ["base"])
    # Without pairs a group can be left without any row.
    guided = replace(pair(), plain_members=0)
    rows = rows_of([played(guided, [0.0, 0.0, crutch, crutch]), played(guided, [0.0, 0.0, crutch, 1.0])])
    assert rows.metrics["solver/groups_dropped_unseen"] == rows.metrics["solver/groups_kept"] == 1


def test_the_mean_weight_of_the_rows_is_1_under_a_budget() -> None:
    """The mean is over rows, not over rollouts that give none."""
    groups = [played(pair(), [1.0, 0.0, 1.0, 0.0]), played(pair(1), [0.0, 0.0, 1.0, 0.0])]
    settings = ReweightingSection(mode="fixed", budget=1.0, rho="default", high=1.6)
    spurious = replace(groups[0].members[0].trajectory, diagnosis=diagnosed(Label.SPURIOUS_TOOL_CALL))
    changed = (replace(groups[0].members[0], outcome=spurious), *groups[0].members[1:])
    rows = rows_of([Group(groups[0].plan, changed), groups[1]], reweighting=settings)
    assert rows.metrics["solver/weight_mean"] == pytest.approx(1.0)
    assert rows.metrics["solver/weight_max"] == pytest.approx(1.6 / ((1.6 + 5) / 6))
    assert len(flat(rows)) == 6


def test_each_half_of_a_pair_must_have_been_played() -> None:
    def scored(*outcomes: Played) -> ScoredGroup | Dropped:
        return SCORE(played(pair(members=len(outcomes)), outcomes))

    assert isinstance(scored(1.0, None, 1.0, 0.0), ScoredGroup)
    assert scored(None, None, 1.0, 0.0) is Dropped.SHORT
    assert scored(1.0, 0.0, None, None) is Dropped.SHORT
    assert scored(None, None, None, None) is Dropped.SHORT
    assert scored(1.0, None) is Dropped.SHORT
    assert scored(1.0, None, 1.0, None) is Dropped.EQUAL


@pytest.mark.parametrize(("share", "kept"), [(0.75, True), (1.0, False)])
def test_a_group_that_faults_made_short_is_dropped(share: float, kept: bool) -> None:
    group = played(replace(pair(), arm=PLAIN_ARM, plain_members=0), [1.0, 0.0, None, 1.0])
    rows = rows_of([group], score=GroupScorer(dr_grpo, share))
    assert rows.metrics["solver/groups_kept"] == kept
    assert rows.metrics["solver/groups_dropped_short"] == (not kept)


def test_a_pair_counts_for_both_of_its_arms() -> None:
    groups = [played(pair(), [1.0, 0.0, 1.0, 1.0]), played(pair(1), [0.0, None, 1.0, 0.0])]
    metrics = rollout_metrics(groups, ["base", "miss_func"])
    assert metrics["solver/success_plain"] == pytest.approx(1 / 3)
    assert metrics["solver/success_shown"] == pytest.approx(3 / 4)
    assert metrics["solver/success"] == metrics["solver/success/base"] == pytest.approx(4 / 7)
    assert (metrics["interface/plain_share"], metrics["solver/groups_shown"]) == (0.0, 2)
    assert (metrics["solver/rollouts"], metrics["diagnosis/faults"]) == (7, 1)


def test_rollouts_are_counted_by_labels_tokens_and_reward() -> None:
    first, *others = played(pair(), [1.0, 0.0, 0.0, 0.0]).members
    labels = (Label.PASS, Label.CORRECT_ABSTENTION, Label.STATE_MISMATCH)
    changed = replace(first, outcome=replace(first.trajectory, diagnosis=diagnosed(*labels)))
    group = Group(pair(), (changed, *others)).scored(lambda each: 0.75 if len(each.diagnosis.labels) == 3 else 0.25)
    metrics = rollout_metrics([group], ["base"])
    assert metrics["solver/reward"] == pytest.approx((0.75 + 3 * 0.25) / 4)
    assert metrics["solver/success"] == 0.25
    assert metrics["solver/tokens_sampled"] == 4
    turns = Counter(label for each in group.trajectories for label in each.diagnosis.labels)
    for label in Label:
        assert metrics[f"diagnosis/share/{label}"] == pytest.approx(turns[label] / turns.total())
    assert metrics["diagnosis/share/state_mismatch"] == pytest.approx(4 / 6)


def test_minibatches_are_as_few_and_as_even_as_can_be() -> None:
    assert [len(part) for part in even_parts(range(11), most=4)] == [3, 4, 4]
    assert [item for part in even_parts(range(11), most=4) for item in part] == list(range(11))
    assert list(even_parts([], most=4)) == []
    groups = [played(pair(number), [1.0, 0.0, 1.0, 0.0]) for number in range(5)]
    rows = rows_of(groups, TrainingSection(groups=5, minibatch_groups=2, epochs=2))
    assert [len(each.groups) for each in rows.minibatches] == [1, 2, 2] * 2
    assert [each.global_tokens for each in rows.minibatches[:3]] == [3, 6, 6]


def none(_: Trajectory) -> None:
    return None


def not_a_number(_: Trajectory) -> float:
    return float("nan")


def raising(_: Trajectory) -> float:
    raise PermissionError


@pytest.mark.parametrize("name", ["not_a_number", "raising"])
def test_a_reward_that_fails_is_a_fault_that_names_reward_and_task(name: str) -> None:
    reward = find_reward(f"{__name__}:{name}")
    group = played(pair(), [1.0, 0.0, 1.0, 0.0]).scored(lambda each: reward(each) if each.reward else 0.0)
    assert [fault.kind for fault in group.faults] == [REWARD_FAULT] * 2
    assert all(
        fault.message.startswith(f"{group.plan.task}: its reward '{__name__}:{name}' ") for fault in group.faults
    )
    assert [member.reward for member in group.played] == [0.0, 0.0]
    check_faults([group], max_share=0.5)
    with pytest.raises(TooManyFaults, match=f"2 of 4 dialogues were lost to faults .*{name}"):
        check_faults([group], max_share=0.4)


def test_a_reward_of_none_leaves_the_dialogue_out_and_is_no_fault() -> None:
    reward = find_reward(f"{__name__}:none")
    group = played(pair(), [1.0, 0.0, 1.0, 0.0]).scored(lambda each: reward(each) if each.reward else 0.0)
    check_faults([group], max_share=0.0)
    metrics = rollout_metrics([group], ["base"])
    assert (metrics["solver/left_out"], metrics["diagnosis/faults"], metrics["solver/rollouts"]) == (2, 0, 2)
    assert [member.reward for member in group.played] == [0.0, 0.0]
