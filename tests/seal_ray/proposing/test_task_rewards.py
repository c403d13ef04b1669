"""What a written task is worth, and that a task writer which learns from that moves to the middle."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from envs.errors import UserError
from envs.specifications import Specification, likeness
from envs.task import Category
from envs.toolworld.specification import TaskSpecification
from seal_ray.grpo.advantages import regression_weights
from seal_ray.grpo.losses import LOSSES
from seal_ray.proposing.task_rewards import (
    TASK_REWARDS,
    AlphaTaskReward,
    HeldOutOutcome,
    HeldOutSuccessReward,
    LearningProgressReward,
    TaskOutcome,
    WindowOutcomes,
    success_near,
)


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


def test_neighbours_are_alike_and_of_the_category() -> None:
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


def test_an_unknown_reward_gets_the_nearest_name() -> None:
    with pytest.raises(UserError, match="'alfa' is not known; did you mean 'alpha'"):
        TASK_REWARDS.make("alfa")


RATES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.9)
"""Success on the kinds of tasks that the task writer below can write."""


def course(seed: int, *, windows: int = 40, written: int = 32, rollouts: int = 4) -> list[float]:
    """Mean success of the tasks of each window, of a task writer that chooses among `RATES` and is paid by alpha.

    Its first policy writes the hardest kinds most; two in ten of its specifications are rejected.
    """
    rng = np.random.default_rng(seed)
    logits = torch.tensor([1.5, 1.5, 1.0, 0.5, 0.0, -0.5, -0.5, -0.5], dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(logits.detach().clone(), dim=0)
    optimizer = torch.optim.Adam([logits], lr=0.3)
    reward, loss = AlphaTaskReward(), LOSSES.make("rwr", {"kl": 0.01})
    means = []
    for _ in range(windows):
        probabilities = torch.softmax(logits.detach(), dim=0).numpy()
        kinds = rng.choice(len(RATES), size=written, p=probabilities / probabilities.sum())
        rejected = rng.random(written) < 0.2
        successes = rng.binomial(rollouts, [RATES[kind] for kind in kinds])
        values = reward(WindowOutcomes([TaskOutcome(SHOW, float(count), rollouts) for count in successes]))
        means.append(float(np.mean([RATES[kind] for kind in kinds])))
        weights = regression_weights([value or 0.0 for value in values], rejected.tolist())
        if weights is None:
            continue
        chosen = torch.as_tensor(kinds)
        logprobs_M = torch.log_softmax(logits, dim=0)[chosen]
        losses = loss(logprobs_M, logprobs_M.detach(), torch.as_tensor(weights), reference_logprobs_M=reference[chosen])
        optimizer.zero_grad()
        (losses.loss_sum / written).backward()
        optimizer.step()
    return means


def test_a_task_writer_that_is_paid_for_the_middle_moves_there() -> None:
    courses = np.array([course(seed) for seed in range(20)])
    first, last = courses[:, 0], courses[:, -3:].mean(axis=1)
    nearer = np.abs(first - 0.5) - np.abs(last - 0.5)
    error = nearer.std(ddof=1) / math.sqrt(len(nearer))
    assert nearer.mean() > 3 * error
    assert nearer.mean() > 0.05
