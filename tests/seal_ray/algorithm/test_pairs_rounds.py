"""Whole rounds with pairs and plain views on scripted engines: repeatable, resumable, and the same on other runners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from envs.roles import CURATOR
from envs.sources import find_task
from policies.models import open_model
from policies.plain_view import PlainView, plain_view
from policies.prompting import ChatFormat
from policies.solver import Budgets
from seal_ray.algorithm.config import SealConfig
from tests.seal_ray.algorithm.configs import ROUNDS_IN_RAY
from tests.seal_ray.algorithm.engines import Half
from tests.seal_ray.algorithm.test_coevolution import TWO, writing_config
from tests.seal_ray.algorithm.test_seal_rounds import built, measured, played, same, weights

pytestmark = [*ROUNDS_IN_RAY, pytest.mark.long]


def pairs_config(**settings: Any) -> SealConfig:
    """Pairs under the proposals of a curator whose reward compares gradients."""
    found = {"reward": "transfer", "update_every": 2, "plain_share": 0.25, "pairs": True, **settings}
    return writing_config(*TWO, **found).training(view="plain", anchor_weight="shaped", epochs=2)


@pytest.mark.parametrize("show", ["always", "when_failing"])
def test_a_restored_run_of_pairs_goes_on_to_the_last_bit(show: str, tmp_path: Path) -> None:
    def config() -> SealConfig:
        return pairs_config(show=show).training(fill="resample", fill_limit=2).reweighting(mode="dynamic")

    with built(config()) as algorithm:
        results, rounds = [], []
        for number in range(3):
            results.append(measured(algorithm.train()))
            rounds.append(played(algorithm))
            if number == 0:
                algorithm.save_to_path(str(tmp_path / "state"))
            check_views(algorithm)
        expected = weights(algorithm)
    assert sum(result["solver/anchored_rows"] for result in results) > 0, results
    for result in results:
        if result.get("solver/anchored_tokens"):
            assert result["solver/anchored_ratio_first"] in (0.0, pytest.approx(1.0, abs=1e-4))
            assert result["solver/anchored_rows"] <= result["solver/views"]
            assert result["solver/internalised_before"] != result["solver/internalised_after"]
    # From the state on; where pairs are played on demand, in an order that the timing makes, elsewhere too.
    moved = config()
    if show == "when_failing":
        moved.env_runners(num_env_runners=2).engine(num_engines=2)
        moved.engine_factory = Half(writes={CURATOR: TWO}, pause=0.02)
    with built(moved) as algorithm:
        algorithm.restore_from_path(str(tmp_path / "state"))
        for result, dialogues in zip(results[1:], rounds[1:], strict=True):
            assert same(measured(algorithm.train()), result)
            assert played(algorithm) == dialogues
        assert all(torch.equal(weights(algorithm)[name], tensor) for name, tensor in expected.items())


def check_views(algorithm: Any) -> None:
    """Views are those of `plain_view`; plain members have none, and on demand only failing pairs have any."""
    model = open_model("tiny")
    form = ChatFormat.load(model.path, model.dialect)
    budgets = Budgets(prompt=2048, response=128, context=3072, steps=20)
    for group in algorithm.last_round:
        task = find_task(group.plan.task)
        for member in group.members:
            if member.arm.plain:
                assert member.view is None
            else:
                assert member.view == plain_view(member.trajectory, task, form, budgets)
                assert isinstance(member.view, PlainView)
                assert len(member.view.token_ids_T) < len(member.trajectory.token_ids_T), "it has no guideline"
        plain = [each.trajectory.reward for each in group.members if each.arm.plain]
        if algorithm.config.curator_show == "when_failing" and not group.plan.plain:
            assert plain == [0.0, 0.0]


def test_with_the_published_settings_nothing_has_changed_but_the_names() -> None:
    """A run with neither pairs nor plain views asks for no view, and has no anchored row."""
    config = writing_config(*TWO, plain_share=0.5)
    with built(config) as algorithm:
        result = measured(algorithm.train())
        assert [group.views for group in algorithm.last_round] == [()] * 4
    assert "solver/views" not in result or result["solver/views"] != result["solver/views"]
    assert result["solver/anchored_rows"] == 0


def test_a_curator_is_paid_for_what_was_internalised(tmp_path: Path) -> None:
    def config() -> SealConfig:
        return pairs_config(reward="internalised", choose="posterior", update_every=1)

    with built(config()) as algorithm:
        results = []
        for number in range(3):
            before = measured(algorithm.train())
            results.append(before)
            if number == 0:
                algorithm.save_to_path(str(tmp_path / "state"))
            arms = {row["id"]: row for row in algorithm.curation.last_arms}
            assert arms
            for arm in algorithm.curation.arms[1:]:
                name = f"solver/internalised_after/{arm.number}"
                expected = [before[name] - before[f"solver/internalised_before/{arm.number}"]] if name in before else []
                found = algorithm.curation.window.internalised.get(arm.number, {})
                assert list(found.values()) == pytest.approx(expected)
    assert any("solver/internalised_after/1" in result for result in results), results
    with built(config()) as algorithm:
        algorithm.restore_from_path(str(tmp_path / "state"))
        for expected_result in results[1:]:
            assert same(measured(algorithm.train()), expected_result)
