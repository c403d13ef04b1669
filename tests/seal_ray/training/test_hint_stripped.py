"""Hint-stripped rows in the learner: ratios begin at 1, and a pair's gradient is that of a computation by hand."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from envs.roles import SOLVER
from seal_ray.grpo.advantages import group_advantages
from seal_ray.grpo.losses import OFF_POLICY_WEIGHTS
from seal_ray.grpo.rows import Minibatch, Row, make_row
from seal_ray.training.hint_stripped import Internalisation, internalisation, internalisation_metrics
from seal_ray.training.learner_group import SealLearnerGroup
from tests.policies.models import VOCABULARY
from tests.seal_ray.grpo.reference import scores
from tests.seal_ray.training.learners import (
    PlainLearner,
    build_group,
    distance,
    disturb,
    learner_config,
    moments_of,
    state_of,
)

pytestmark = pytest.mark.usefixtures("cluster")

GUIDED = "guided"


class Pairs:
    """A local learner, the same model written plainly, and pairs of rows that share their opening."""

    def __init__(self, model: Path, training: dict[str, Any]) -> None:
        self.config = learner_config(model, training={"warm_up": 0, "kl": 0.0, "grad_clip": 1e9, **training})
        self.group: SealLearnerGroup = build_group(self.config)
        disturb(self.group)
        self.plain = PlainLearner(self.config, model, self.group.module_weights(SOLVER))

    def close(self) -> None:
        self.group.shutdown()  # type: ignore[no-untyped-call]

    def pair(self, seed: int, *, far: float = 2.0) -> list[Row]:
        """Two plain failures and a plain success as they were sampled, and a guided success on its plain view.

        The guided one was sampled with log-probs that are `far` (nats) from those of the view.
        """
        numbers = np.random.default_rng(seed)
        opening = numbers.integers(0, VOCABULARY, 6)
        advantages = group_advantages([0.0, 0.0, 1.0, 1.0, 0.0])
        assert advantages is not None
        rows = []
        for number, advantage in enumerate(advantages[:4]):
            tokens = np.concatenate([opening, numbers.integers(0, VOCABULARY, 5 + number)])
            mask = np.arange(len(tokens)) >= 6
            guided = number == 3
            row = make_row(
                tokens, mask, np.zeros(len(tokens)), float(advantage), stripped_of=GUIDED if guided else None
            )
            own = np.zeros(len(tokens), dtype=np.float32)
            own[mask] = self.plain.values(self.plain.model, [row])[0]
            own[mask] += numbers.normal(0, far, int(mask.sum())) if guided else 0.0
            rows.append(replace(row, sampled_logprobs_T=np.minimum(own, 0.0)))
        return rows


@pytest.fixture
def pairs(model: Path, request: pytest.FixtureRequest) -> Iterator[Pairs]:
    found = Pairs(model, request.param)
    yield found
    found.close()


@pytest.mark.parametrize(
    "pairs", [{"lr": 0.0}, {"lr": 0.0, "importance_cap": 0.5}, {"lr": 0.0, "loss": "cispo"}], indirect=True
)
def test_at_zero_learning_rate_the_ratio_is_1_and_no_clip_acts(pairs: Pairs) -> None:
    before = state_of(pairs.group)
    for seed in range(3):
        # Two epochs of two steps: the old log-probs are those of the round's start in all of them.
        minibatches = [Minibatch.of([pairs.pair(2 * seed + step)]) for step in range(2)] * 2
        found = pairs.group.learn(SOLVER, minibatches)
        # The pass before the round packs them otherwise, which is float32's rounding.
        assert found["hint_stripped_ratio_first"] == pytest.approx(1.0, abs=1e-5)
        assert found["hint_stripped_clip_fraction"] == 0.0
        # They are far from what they were sampled with, which says nothing about the sampler.
        assert found["ratio_first_error"] < 1e-4
        assert found["kl_sampler"] < 1e-8
        assert found["hint_stripped_tokens"] == 4 * 8
        (measured,) = pairs.group.internalisation(SOLVER).values()
        assert measured.rows == 2
        assert measured.after == pytest.approx(measured.before, abs=1e-5)
        if pairs.config.spec.training.importance_cap:
            # At 0.5 every row is capped that is corrected at all.
            assert found["capped_fraction"] == 1.0
    weights = {name: tensor for name, tensor in state_of(pairs.group).items() if "optimizer" not in name}
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights.items())


@pytest.mark.parametrize("pairs", [{"off_policy_weight": name} for name in OFF_POLICY_WEIGHTS.built_in], indirect=True)
def test_the_gradient_of_a_pair_is_that_of_a_computation_by_hand(pairs: Pairs) -> None:
    rows = pairs.pair(7)
    name = pairs.config.spec.training.off_policy_weight
    loss, tokens = torch.zeros((), dtype=torch.float64), 0
    for row in rows:
        for current, sampled in zip(
            scores(pairs.plain.model, row, pairs.plain.solver.temperature),
            row.sampled_logprobs_T[row.mask_T],
            strict=True,
        ):
            rho = math.exp(current.item() - float(sampled))
            weight = {"none": 1.0, "sqrt": min(max(math.sqrt(rho), 0.2), 1.0), "truncated": min(rho, 1.0)}[name]
            # All ratios are 1: ∇(A·w·r) = A·w·∇ log π.
            loss = loss - row.advantage * (1.0 if row.stripped_of is None else weight) * current
            tokens += 1
    (loss / tokens).backward()  # type: ignore[no-untyped-call]
    found = pairs.group.learn(SOLVER, [Minibatch.of([rows])])
    assert found["tokens"] == tokens == 5 + 6 + 7 + 8
    by_hand = {
        key: 0.1 * parameter.grad for key, parameter in pairs.plain.learning.items() if parameter.grad is not None
    }
    # AdamW's first moment after one step is a tenth of the gradient.
    assert distance(moments_of(pairs.group, "exp_avg"), by_hand) < 1e-4


@pytest.mark.parametrize("pairs", [{"off_policy_weight": "sqrt"}], indirect=True)
def test_internalisation_is_measured_before_and_after_a_round(pairs: Pairs) -> None:
    rows = pairs.pair(3)
    guided = rows[3]

    def gap() -> float:
        own = pairs.plain.values(pairs.plain.model, [guided])[0]
        return float(np.mean(np.array(own) - guided.sampled_logprobs_T[guided.mask_T]))

    before = gap()
    pairs.group.learn(SOLVER, [Minibatch.of([rows])] * 2)
    pairs.plain.learn([rows] * 2)
    measured = pairs.group.internalisation(SOLVER)
    assert measured.keys() == {GUIDED}
    assert (measured[GUIDED].before, measured[GUIDED].after) == pytest.approx((before, gap()), abs=1e-4)
    assert measured[GUIDED].after > measured[GUIDED].before, "a success that is learnt from becomes likelier"
    # Without hint-stripped rows there is nothing to measure.
    pairs.group.learn(SOLVER, [Minibatch.of([rows[:3]])])
    assert pairs.group.internalisation(SOLVER) == {}


def test_learners_measures_are_put_together() -> None:
    before, after = {"a": (1, -1.0), "b": (2, -4.0)}, {"a": (1, -0.5), "b": (2, -4.0)}
    measured = internalisation([(before, after), ({"a": (1, -3.0)}, {"a": (1, -0.5)}), ({}, {})])
    assert measured == {"a": Internalisation(2, -2.0, -0.5), "b": Internalisation(2, -2.0, -2.0)}
    metrics = internalisation_metrics(measured, ["plain", "b", "a"])
    assert metrics == {
        "solver/internalised_before": -2.0,
        "solver/internalised_after": -1.25,
        "solver/internalised_before/1": -2.0,
        "solver/internalised_after/1": -2.0,
        "solver/internalised_before/2": -2.0,
        "solver/internalised_after/2": -0.5,
    }
    assert internalisation_metrics({}, ["plain"]) == {}


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("none", [1.0] * 6),
        ("sqrt", [0.2, 0.2, 0.2, 0.5, 1.0, 1.0]),
        ("truncated", [1e-6, 0.01, 0.04, 0.25, 1.0, 1.0]),
    ],
)
def test_off_policy_weights_are_their_formulas(name: str, weights: list[float]) -> None:
    rho = torch.tensor([1e-6, 0.01, 0.04, 0.25, 1.0, 3.0], dtype=torch.float64)
    assert OFF_POLICY_WEIGHTS.make(name)(rho.log()).tolist() == pytest.approx(weights)
