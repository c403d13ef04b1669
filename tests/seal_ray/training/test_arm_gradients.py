"""Inner products of policy gradients: those of a plain reference, and what a real step does, to first order."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from envs.roles import SOLVER
from seal_ray.grpo.packing import Minibatch, Row, make_row
from seal_ray.training.learner_group import SealLearnerGroup
from tests.seal_ray.grpo.models import random_rows
from tests.seal_ray.grpo.reference import scores
from tests.seal_ray.training.learners import (
    PREFIX,
    PlainLearner,
    build_group,
    disturb,
    learner_config,
    set_weights,
)

pytestmark = pytest.mark.usefixtures("cluster")

KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"lora_rank": 4},
    "checkpointed": {"gradient_checkpointing": True},
}


LENGTHS = (9, 21, 28, 12, 17)


def compared(weights: dict[str, Tensor]) -> list[str]:
    """What gradients are compared on: the adapter, or the MLP of the second of two layers."""
    return [name for name in weights if "lora_" in name] or [name for name in weights if ".layers.1.mlp." in name]


def alignments(group: SealLearnerGroup, *arms: Sequence[Row]) -> list[list[float]]:
    """The cosines of the arms, from a step on the rows of all of them."""
    groups = [[replace(row, arm=f"arm {place}") for row in members] for place, members in enumerate(arms) if members]
    group.learn(SOLVER, [Minibatch.of(groups)])
    found, seconds = group.alignments(SOLVER, [f"arm {place}" for place in range(len(arms))])
    assert seconds > 0
    return found


def plain_loss(plain: PlainLearner, rows: Sequence[Row]) -> Tensor:
    """Advantage times log-prob, summed with a minus and divided by the number of sampled tokens, in float64."""
    found = [-row.advantage * score for row in rows for score in scores(plain.model, row, plain.solver.temperature)]
    return torch.stack(found).sum() / len(found)


def plain_gradient(plain: PlainLearner, rows: Sequence[Row]) -> Tensor:
    parameters = [plain.learning[name] for name in compared(dict(plain.learning))]
    parts = torch.autograd.grad(plain_loss(plain, rows), parameters)
    return torch.cat([part.flatten() for part in parts])


@pytest.mark.parametrize(("learners", "kind"), [(0, "full"), (0, "lora"), (2, "lora"), (0, "checkpointed")])
def test_cosines_are_those_of_a_plain_reference(learners: int, kind: str, model: Path) -> None:
    config = learner_config(model, solver=KINDS[kind], num_learners=learners)
    group = build_group(config)
    disturb(group)
    weights = dict(group.module_weights(SOLVER))
    begun = group.get_state()
    plain = PlainLearner(config, model, weights)
    arms = [random_rows(seed, LENGTHS) for seed in range(3)]
    found = torch.tensor(alignments(group, *arms, []), dtype=torch.float64)
    gradients = torch.stack([plain_gradient(plain, rows) for rows in arms])
    directions = gradients / gradients.norm(dim=1, keepdim=True)
    assert torch.allclose(found[:3, :3], directions @ directions.T, atol=1e-5)
    assert found[3].abs().max() == 0
    # Nothing else is learnt for looking.
    looked = dict(group.module_weights(SOLVER))
    group.set_state(begun)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in group.module_weights(SOLVER).items())
    group.learn(SOLVER, [Minibatch.of(arms)])
    assert all(torch.equal(tensor, looked[name]) for name, tensor in group.module_weights(SOLVER).items())
    assert any(not torch.equal(tensor, weights[name]) for name, tensor in looked.items())
    group.shutdown()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_small_step_changes_the_plain_loss_as_estimated(kind: str, model: Path) -> None:
    config = learner_config(model, solver=KINDS[kind])
    group = build_group(config)
    disturb(group)
    weights = dict(group.module_weights(SOLVER))
    plain = PlainLearner(config, model, weights)
    shown, hidden = random_rows(1, LENGTHS), random_rows(5, LENGTHS)
    along, across = plain_gradient(plain, shown), plain_gradient(plain, hidden)
    ((_, cosine), _) = alignments(group, shown, hidden)
    before = plain_loss(plain, hidden).item()
    step = 1e-4 / float(along.norm())
    with torch.no_grad():
        place = 0
        for name in compared(weights):
            parameter = plain.learning[name]
            parameter.sub_(step * along[place : place + parameter.numel()].view_as(parameter))
            place += parameter.numel()
    measured = plain_loss(plain, hidden).item() - before
    estimated = -step * float(along.norm() * across.norm()) * cosine
    assert abs(measured - estimated) < 0.02 * abs(estimated)


def taught(prefix: Sequence[int], question: int, answers: Sequence[tuple[int, float]]) -> list[Row]:
    """Rows in which a question, behind a prefix, was answered, each answer with its advantage."""
    return [
        make_row([*prefix, question, answer], [False] * (len(prefix) + 1) + [True], [0.0] * (len(prefix) + 2), worth)
        for answer, worth in answers
    ]


def transfer_of(group: SealLearnerGroup, seed: int) -> tuple[float, float]:
    """How a cue whose skill survives it and one that is a crutch align with the plain interface."""
    numbers = np.random.default_rng(seed)
    skill, crutch, *rest = numbers.permutation(np.arange(10, 200))
    right, wrong, copied, *questions = rest[:19]
    plain: list[Row] = []
    with_skill: list[Row] = []
    with_crutch: list[Row] = []
    for place, question in enumerate(questions):
        # Other tasks under each arm. The skill is the one that the plain interface needs; the crutch is to say what
        # the cue says, which is right while it is shown and wrong without it.
        if place % 3 == 0:
            plain += taught([5], question, [(right, 1.0), (wrong, -0.5), (copied, -0.5)])
        elif place % 3 == 1:
            with_skill += taught([5, skill], question, [(right, 1.0), (wrong, -1.0)])
        else:
            with_crutch += taught([5, crutch, copied], question, [(copied, 1.0), (right, -1.0)])
    cosines = alignments(group, plain, with_skill, with_crutch)
    return cosines[0][1], cosines[0][2]


def test_transfer_prefers_a_skill_that_survives_its_cue_to_a_crutch(model: Path) -> None:
    group = build_group(learner_config(model))
    weights = dict(group.module_weights(SOLVER))
    for seed in range(5):
        torch.manual_seed(seed)
        noise = {name: w + 0.05 * torch.randn(w.shape) for name, w in weights.items()}
        set_weights(group, noise)
        survives, crutch = transfer_of(group, seed)
        assert survives > 0 > crutch
    assert all(name.startswith(PREFIX) for name in weights)
