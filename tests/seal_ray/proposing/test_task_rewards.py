"""What a writer of tasks is paid for, and how it learns from that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom  # type: ignore[import-untyped]
from seal_ray.algorithm.objects import make_writer_update
from seal_ray.algorithm.tasks.rewards import WRITER_REWARDS, Probe, TaskOutcome, WindowOutcomes, success_near
from seal_ray.algorithm.tasks.rewards.alpha import AlphaTaskReward
from seal_ray.algorithm.tasks.rewards.probe import ProbeReward
from seal_ray.algorithm.tasks.rewards.progress import LearningProgressReward
from seal_ray.grpo.writer_updates import WRITER_UPDATES
from seal_ray.grpo.writer_updates.grpo import GRPOUpdate
from seal_ray.grpo.writer_updates.rwr import RWRUpdate

from envs.errors import UserError
from envs.specifications import Specification, likeness
from envs.task import Category
from envs.toolworld.specification import TaskSpecification
from seal_ray.config.sections import Writer
from seal_ray.grpo.losses import LOSSES


def spec(*turns: str, scenes: Sequence[str] = ("files",), category: str = "base") -> Specification:
    return TaskSpecification(Category(category), tuple(scenes), tuple((each,) for each in turns))


SHOW, COPY = spec("files.show"), spec("files.show", "files.copy")
LIKE = spec("files.show", "files.copy", "files.sort")
OTHER = spec("trading.quote", scenes=("trading",))


def test_alpha_is_genenvs_formula_and_at_its_top_at_alpha() -> None:
    reward = AlphaTaskReward()
    written = [TaskOutcome(SHOW, successes, 4) for successes in range(5)]
    assert reward(WindowOutcomes([*written, TaskOutcome(COPY, 0, 0)])) == [
        pytest.approx(math.exp(-0.5)),
        pytest.approx(math.exp(-0.125)),
        1.0,
        pytest.approx(math.exp(-0.125)),
        pytest.approx(math.exp(-0.5)),
        None,
    ]
    assert WRITER_REWARDS.make("alpha").settings == AlphaTaskReward.Settings(alpha=0.5, beta=2.0)


@pytest.mark.parametrize("alpha", [0.25, 0.5, 0.75])
@pytest.mark.parametrize("rollouts", [4, 8])
def test_a_pool_at_alpha_is_paid_most(alpha: float, rollouts: int) -> None:
    """Over what rollouts may come to: the expected reward of a pool by its tasks' success is largest near alpha.

    p̂ of a few rollouts varies most in the middle, so that the top is flat and lies a little further out for an alpha
    beside the middle.
    """
    reward = AlphaTaskReward(AlphaTaskReward.Settings(alpha=alpha))
    rates = np.linspace(0, 1, 101)
    paid = [sum(binom.pmf(k, rollouts, rate) * reward.of(k / rollouts) for k in range(rollouts + 1)) for rate in rates]
    best = float(rates[int(np.argmax(paid))])
    assert best == pytest.approx(alpha, abs=0.001 if alpha == 0.5 else 0.25)
    exact = [reward.of(float(rate)) for rate in rates]
    assert float(rates[int(np.argmax(exact))]) == pytest.approx(alpha)


def test_neighbours_are_of_the_category_and_alike() -> None:
    outcomes = [TaskOutcome(SHOW, 4, 4), TaskOutcome(LIKE, 0, 4), TaskOutcome(OTHER, 4, 4)]
    assert likeness(COPY, SHOW) == pytest.approx(3 / 5)
    assert likeness(COPY, LIKE) == pytest.approx(5 / 7)
    assert likeness(COPY, OTHER) == pytest.approx(1 / 7)
    weights = (3 / 5, 5 / 7)
    assert success_near(COPY, outcomes) == pytest.approx(weights[0] / sum(weights))
    assert success_near(spec("files.show", category="long_context"), outcomes) is None
    assert success_near(OTHER, outcomes) == 1.0
    assert success_near(COPY, [TaskOutcome(COPY, 0, 0)]) is None


def test_progress_is_the_change_near_a_specification() -> None:
    window = WindowOutcomes(
        written=[TaskOutcome(COPY, 3, 4), TaskOutcome(OTHER, 4, 4), TaskOutcome(COPY, 0, 0)],
        earlier=[TaskOutcome(SHOW, 1, 4), TaskOutcome(LIKE, 1, 4)],
        now=[TaskOutcome(SHOW, 0, 0), TaskOutcome(LIKE, 3, 4)],
    )
    found = LearningProgressReward()(window)
    assert found == [pytest.approx(0.5), None, None], "what was not played is paid nothing"
    strict = LearningProgressReward(LearningProgressReward.Settings(near=0.7))(window)
    assert strict[0] == pytest.approx(0.5)
    assert LearningProgressReward(LearningProgressReward.Settings(near=0.9))(window) == [None, None, None]


def test_probe_is_the_gain_on_held_out_tasks_that_are_alike() -> None:
    probes = [Probe(SHOW, 0.25, 0.75), Probe(spec("tickets.read", scenes=("tickets",)), 0.5, 0.25)]
    window = WindowOutcomes([TaskOutcome(COPY, 1, 4), TaskOutcome(OTHER, 1, 4), TaskOutcome(SHOW, 0, 0)], probes=probes)
    close, far, unplayed = ProbeReward()(window)
    assert close == pytest.approx((3 / 5 * 0.5 - 1 / 7 * 0.25) / (3 / 5 + 1 / 7))
    assert far is not None
    assert far < close  # type: ignore[operator]
    assert unplayed is None
    assert ProbeReward()(WindowOutcomes([TaskOutcome(COPY, 1, 4)])) == [None]
    nothing = ProbeReward()(
        WindowOutcomes([TaskOutcome(spec("files.show", category="long_context"), 1, 4)], probes=probes)
    )
    assert nothing == [pytest.approx(0.125)]


def test_grpo_compares_and_a_rejection_costs() -> None:
    rewards, rejected = [1.0, 0.6, 0.0], [False, False, True]
    centred = GRPOUpdate()(rewards, rejected)
    assert centred is not None
    assert centred.tolist() == pytest.approx([0.3, -0.1, -0.2])
    group = GRPOUpdate(GRPOUpdate.Settings(advantage="group"))(rewards, rejected)
    assert group is not None
    assert group.sum() == pytest.approx(0.0)
    assert group[2] < group[1] < group[0]
    assert GRPOUpdate()([0.5, 0.5], [False, False]) is None
    assert GRPOUpdate()([0.5], [False]) is None


def test_regression_weighs_by_reward_and_imitates_no_rejection() -> None:
    weights = RWRUpdate(RWRUpdate.Settings(reward_temperature=0.5))([1.0, 0.5, 0.0], [False, False, True])
    assert weights is not None
    assert weights.mean() == pytest.approx(1.0)
    assert weights[2] == 0.0
    assert weights[0] / weights[1] == pytest.approx(math.e)
    assert RWRUpdate()([0.5, 0.5], [False, False]) is None
    assert RWRUpdate()([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1], [False, False]) is None
    both = RWRUpdate()([0.5, 0.0], [False, True])
    assert both is not None
    assert both.tolist() == [2.0, 0.0]
    assert RWRUpdate()([0.0, 0.0], [True, True]) is None
    huge = RWRUpdate(RWRUpdate.Settings(reward_temperature=1e-3))([900.0, 0.0], [False, False])
    assert huge is not None
    assert np.isfinite(huge).all()
    with pytest.raises(ValueError, match="finite"):
        RWRUpdate()([math.nan, 0.0], [False, False])


def test_the_regressions_temperature_is_not_that_of_the_sampling() -> None:
    section = Writer(kind="learning", update="rwr", temperature=0.3)
    for own, expected in (({}, 1.0), ({"reward_temperature": 0.5}, 0.5)):
        rule = make_writer_update(section.model_copy(update={"update_settings": own}))
        weights = rule([1.0, 0.5], [False, False])
        assert weights is not None
        assert weights[0] / weights[1] == pytest.approx(math.exp(0.5 / expected))


@pytest.mark.parametrize(
    ("registry", "name", "own", "sentence"),
    [
        (WRITER_REWARDS, "alfa", {}, "writer.reward: 'alfa' is not known; did you mean 'alpha'?"),
        (WRITER_REWARDS, "alpha", {"alpha": 2.0}, "writer.reward: alpha: alpha: 2.0"),
        (WRITER_UPDATES, "rwr", {"reward_temperature": 0.0}, "writer.update: rwr: reward_temperature: 0.0"),
        (WRITER_UPDATES, "grpo", {"kl": 1}, "writer.update: setting of grpo: 'kl' is not known"),
    ],
)
def test_what_does_not_fit_is_one_sentence(registry: Any, name: str, own: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as found:
        registry.make(name, {}, own)
    assert str(found.value).startswith(sentence)


RATES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.9)
"""Success on the kinds of tasks that the writer below can write."""


def moved(
    update: str, seed: int, settings: dict[str, Any], *, windows: int = 10, written: int = 16, rollouts: int = 4
) -> list[float]:
    """Mean success of the tasks of each window, of a writer that chooses among `RATES` and is paid by alpha.

    Its first policy writes the hardest kinds most; two in ten of its specifications are rejected.
    """
    rng = np.random.default_rng(seed)
    logits = torch.tensor([1.5, 1.5, 1.0, 0.5, 0.0, -0.5, -0.5, -0.5], dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(logits.detach().clone(), dim=0)
    optimizer = torch.optim.Adam([logits], lr=0.3)
    reward, rule = AlphaTaskReward(), WRITER_UPDATES.make(update, own=settings)
    loss = LOSSES.make(rule.loss, own={"kl": 0.01})
    means = []
    for _ in range(windows):
        probabilities = torch.softmax(logits.detach(), dim=0).numpy()
        kinds = rng.choice(len(RATES), size=written, p=probabilities / probabilities.sum())
        rejected = rng.random(written) < 0.2
        played = rng.binomial(rollouts, [RATES[kind] for kind in kinds]) / rollouts
        rewards = [0.0 if no else reward.of(float(p)) for p, no in zip(played, rejected, strict=True)]
        means.append(float(np.mean([RATES[kind] for kind in kinds])))
        weights = rule(rewards, rejected.tolist())
        if weights is None:
            continue
        chosen = torch.as_tensor(kinds)
        logprobs_M = torch.log_softmax(logits, dim=0)[chosen]
        found = loss(
            logprobs_M,
            logprobs_M.detach(),
            torch.as_tensor(weights),
            reference_logprobs_M=reference[chosen],
        )
        optimizer.zero_grad()
        (found.loss_sum / written).backward()
        optimizer.step()
    return means


@pytest.mark.parametrize(("update", "settings"), [("grpo", {}), ("rwr", {"reward_temperature": 0.2})])
def test_a_writer_paid_for_the_middle_moves_there_within_ten_windows(update: str, settings: dict[str, Any]) -> None:
    courses = np.array([moved(update, seed, settings) for seed in range(20)])
    first, last = courses[:, 0], courses[:, -3:].mean(axis=1)
    nearer = np.abs(first - 0.5) - np.abs(last - 0.5)
    error = nearer.std(ddof=1) / math.sqrt(len(nearer))
    assert nearer.mean() > 3 * error
    assert nearer.mean() > 0.07
    assert first.mean() < 0.25 < last.mean()
