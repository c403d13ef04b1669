"""What settings mean, resolved once: agents, their engines and adapters, how each learns, and the arms of a round."""

from __future__ import annotations

import dataclasses

import pytest

from envs.roles import CURATOR, SOLVER, TASK_WRITER
from seal_ray.algorithm.config import SealConfig, make_config
from seal_ray.config.resolve import ArmSpec


def test_three_agents_learn_each_with_its_own_settings() -> None:
    spec = make_config(["seal-genenv"]).spec
    assert list(spec.agents) == [SOLVER, CURATOR, TASK_WRITER]
    assert spec.learning_agents == (SOLVER, CURATOR, TASK_WRITER)
    assert [agent.host for agent in spec.agents.values()] == [SOLVER, CURATOR, TASK_WRITER]
    assert spec.num_engines == 3
    assert [agent.training.loss for agent in spec.agents.values()] == ["grpo", "grpo", "rwr"]
    writer = spec.agents[TASK_WRITER]
    assert (writer.model, writer.context, writer.steps, writer.temperature) == ("tiny-writer", 3072, 1, 1.0)
    assert (writer.training.lr, writer.training.schedule, writer.training.warm_up) == (2e-4, "constant", 0)
    assert writer.training.rounds == 16, "a gradient step in each window of two of 32 rounds"
    assert writer.training.gradient_steps == 16


@pytest.mark.parametrize("trainable", [True, False])
def test_with_adapters_an_agent_without_a_model_of_its_own_samples_on_the_solvers_engines(trainable: bool) -> None:
    words = ["solver.lora_rank=4", "task_writer.model=null", f"curator.trainable={str(trainable).lower()}"]
    spec = make_config(["seal-genenv"], overrides=words).spec
    assert {agent.host for agent in spec.agents.values()} == {SOLVER}
    assert spec.num_engines == 1
    assert spec.adapters_on(SOLVER) == 2 + trainable
    curator = spec.agents[CURATOR]
    assert (curator.has_adapter, curator.lora_rank, curator.lora_alpha) == (trainable, 4, 8)
    assert curator.owns_engines is False
    assert curator.context == min(make_config().spec.solver.context, 3072)
    own = make_config(["seal-genenv"], overrides=["solver.lora_rank=4"]).spec
    assert own.agents[TASK_WRITER].owns_engines
    assert (own.num_engines, own.adapters_on(SOLVER), own.adapters_on(TASK_WRITER)) == (2, 2, 1)


def test_without_adapters_each_proposer_has_an_engine() -> None:
    spec = make_config(["llm-frozen"]).spec
    assert spec.learning_agents == (SOLVER,)
    curator = spec.agents[CURATOR]
    assert (curator.model, curator.host, curator.trainable) == (spec.solver.model, CURATOR, False)
    assert curator.concurrent == 12, "its proposals are sampled concurrently"


@pytest.mark.parametrize(
    ("words", "arms"),
    [
        (["curator.kind=none"], ArmSpec()),
        (["curator.kind=rules"], ArmSpec(pairs=True, plain_share=0.5, plain_share_end=1.0)),
        (
            ["curator.kind=llm", "curator.pairs=false"],
            ArmSpec(plain_share=0.5, plain_share_end=1.0, on_common_tasks=True),
        ),
        (
            ["curator.kind=llm", "curator.allocation=by_category", "curator.plain_share_end=null"],
            ArmSpec(pairs=True, plain_share=0.5, on_common_tasks=True, by_category=True),
        ),
    ],
)
def test_how_groups_are_divided_between_arms(words: list[str], arms: ArmSpec) -> None:
    assert make_config(overrides=words).spec.arms == arms


def test_a_spec_cannot_be_changed_and_is_resolved_once() -> None:
    config = SealConfig().training(rounds=5)
    config.freeze()
    spec = config.spec
    assert config.spec is spec
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.seed = 1  # type: ignore[misc]
    changed = config.copy(copy_frozen=False).training(rounds=6)
    assert (changed.spec.training.rounds, spec.training.rounds) == (6, 5)
