"""Anchored rows in the learner: their ratio begins at 1, and one pair's gradient is that of a computation by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seal_ray.algorithm.objects import make_anchor_weight

from envs.roles import SOLVER
from seal_ray.config.sections import Training
from seal_ray.grpo.advantages import group_advantages
from seal_ray.grpo.rows import Minibatch, Row, make_row
from seal_ray.training.learner_group import SealLearnerGroup
from tests.policies.models import VOCABULARY
from tests.seal_ray.algorithm.learners import (
    PlainLearner,
    build_group,
    distance,
    disturb,
    learner_config,
    moments_of,
    state_of,
)
from tests.seal_ray.grpo.reference import scores

pytestmark = pytest.mark.usefixtures("cluster")

GUIDED = 1


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
            row = make_row(tokens, mask, np.zeros(len(tokens)), float(advantage), anchored=GUIDED if guided else None)
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
        # Two epochs of two steps: the anchor is that of the round's start in all of them.
        minibatches = [Minibatch.of([pairs.pair(2 * seed + step)]) for step in range(2)] * 2
        found = pairs.group.learn(SOLVER, minibatches)
        # The pass before the round packs them otherwise, which is float32's rounding.
        assert found["anchored_ratio_first"] == pytest.approx(1.0, abs=1e-5)
        assert found["anchored_clip_fraction"] == 0.0
        # They are far from what they were sampled with, which says nothing about the sampler.
        assert found["ratio_first_error"] < 1e-4
        assert found["kl_sampler"] < 1e-8
        assert found["anchored_tokens"] == 4 * 8
        (measured,) = pairs.group.internalised(SOLVER).values()
        assert measured.rows == 2
        assert measured.after == pytest.approx(measured.before, abs=1e-5)
        if pairs.config.section(Training).importance_cap:
            # At 0.5 every row is capped that is corrected at all.
            assert found["capped_fraction"] == 1.0
    weights = {name: tensor for name, tensor in state_of(pairs.group).items() if "optimizer" not in name}
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights.items())


@pytest.mark.parametrize("pairs", [{"anchor_weight": name} for name in ("one", "shaped", "truncated")], indirect=True)
def test_the_gradient_of_a_pair_is_that_of_a_computation_by_hand(pairs: Pairs) -> None:
    rows = pairs.pair(7)
    name = pairs.config.section(Training).anchor_weight
    loss, tokens = torch.zeros((), dtype=torch.float64), 0
    for row in rows:
        for current, sampled in zip(
            scores(pairs.plain.model, row, pairs.plain.solver.temperature),
            row.sampled_logprobs_T[row.mask_T],
            strict=True,
        ):
            rho = math.exp(current.item() - float(sampled))
            weight = {"one": 1.0, "shaped": min(max(math.sqrt(rho), 0.2), 1.0), "truncated": min(rho, 1.0)}[name]
            # All ratios are 1: ∇(A·w·r) = A·w·∇ log π.
            loss = loss - row.advantage * (1.0 if row.anchored is None else weight) * current
            tokens += 1
    (loss / tokens).backward()  # type: ignore[no-untyped-call]
    found = pairs.group.learn(SOLVER, [Minibatch.of([rows])])
    assert found["tokens"] == tokens == 5 + 6 + 7 + 8
    by_hand = {
        key: 0.1 * parameter.grad for key, parameter in pairs.plain.learning.items() if parameter.grad is not None
    }
    # AdamW's first moment after one step is a tenth of the gradient.
    assert distance(moments_of(pairs.group, "exp_avg"), by_hand) < 1e-4


@pytest.mark.parametrize("pairs", [{"internalised": False}], indirect=True)
def test_what_is_internalised_is_measured_afterwards_only_where_asked(pairs: Pairs) -> None:
    rows = pairs.pair(3)
    guided = rows[3]
    own = pairs.plain.values(pairs.plain.model, [guided])[0]
    pairs.group.learn(SOLVER, [Minibatch.of([rows])])
    (measured,) = pairs.group.internalised(SOLVER).values()
    expected = float(np.mean(np.array(own) - guided.sampled_logprobs_T[guided.mask_T]))
    assert measured.before == pytest.approx(expected, abs=1e-5)
    assert measured.after is None
    # Without anchored rows there is nothing to measure.
    pairs.group.learn(SOLVER, [Minibatch.of([rows[:3]])])
    assert pairs.group.internalised(SOLVER) == {}


def test_the_weights_are_their_formulas() -> None:
    rho = torch.tensor([1e-6, 0.01, 0.04, 0.25, 1.0, 3.0], dtype=torch.float64)
    expected = {
        "one": [1.0] * 6,
        "shaped": [0.2, 0.2, 0.2, 0.5, 1.0, 1.0],
        "truncated": [1e-6, 0.01, 0.04, 0.25, 1.0, 1.0],
    }
    for name, values in expected.items():
        assert make_anchor_weight(Training(anchor_weight=name))(rho.log()).tolist() == pytest.approx(values)
    low = make_anchor_weight(Training(anchor_weight="shaped", anchor_weight_settings={"low": 0.1}))
    assert low(rho.log()).tolist() == pytest.approx([0.1, 0.1, 0.2, 0.5, 1.0, 1.0])
