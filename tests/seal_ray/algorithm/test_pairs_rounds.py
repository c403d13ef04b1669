"""Whole rounds with pairs and plain views on scripted engines: repeatable, resumable, and the same on other runners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envs.roles import CURATOR
from envs.sources import find_task
from policies.models import open_model
from policies.plain_view import PlainView, plain_view
from policies.prompting import ChatFormat
from policies.solver import Budgets
from seal_ray.algorithm.config import SealConfig
from seal_ray.algorithm.report import RoundReport
from tests.seal_ray.algorithm.configs import ROUNDS_IN_RAY
from tests.seal_ray.algorithm.engines import Half
from tests.seal_ray.algorithm.runs import assert_equal, built, measured, same
from tests.seal_ray.algorithm.test_coevolution import TWO, writing_config

pytestmark = [*ROUNDS_IN_RAY, pytest.mark.long]


def pairs_config(**settings: Any) -> SealConfig:
    """Pairs under the proposals of a curator whose reward compares gradients."""
    values = {"reward": "transfer", "update_every": 2, "plain_share": 0.25, "pairs": True, **settings}
    return writing_config(*TWO, **values).training(view="plain", off_policy_weight="sqrt", epochs=2)


def test_a_restored_run_of_pairs_continues_to_the_last_bit(tmp_path: Path) -> None:
    def config() -> SealConfig:
        return pairs_config().training(dynamic_sampling=True).reweighting(mode="dynamic")

    with built(config()) as run:
        rounds = run.play(1)
        run.algorithm.save_to_path(str(tmp_path / "state"))
        rounds += run.play(2)
        metrics, weights = list(map(measured, run.reports)), run.weights
    for report in run.reports:
        check_views(report)
    assert sum(each["solver/hint_stripped_rows"] for each in metrics) > 0, metrics
    for each in metrics:
        if each.get("solver/hint_stripped_tokens"):
            assert each["solver/hint_stripped_ratio_first"] in (0.0, pytest.approx(1.0, abs=1e-4))
            assert each["solver/hint_stripped_rows"] <= each["solver/views"]
            assert each["solver/internalised_before"] != each["solver/internalised_after"]
    # On other runners, whose timing differs.
    moved = config().env_runners(num_env_runners=2).engine(num_engines=2)
    moved.engine_factory = Half(writes={CURATOR: TWO}, pause=0.02)
    with built(moved) as run:
        run.algorithm.restore_from_path(str(tmp_path / "state"))
        assert run.play(2) == rounds[1:]
        assert all(map(same, map(measured, run.reports), metrics[1:]))
        assert_equal(run.weights, weights)


def check_views(report: RoundReport) -> None:
    """Views are those of `plain_view`; plain members have none."""
    model = open_model("tiny")
    form = ChatFormat.load(model.path, model.dialect)
    budgets = Budgets(prompt=2048, response=128, context=3072, steps=20)
    for group in report.groups:
        task = find_task(group.plan.task)
        for member in group.members:
            if member.arm.plain:
                assert member.view is None
                continue
            assert member.view == plain_view(member.trajectory, task, form, budgets)
            assert isinstance(member.view, PlainView)
            assert len(member.view.token_ids_T) < len(member.trajectory.token_ids_T), "it has no guideline"


def test_rollouts_that_are_learnt_from_as_they_were_shown_have_no_views() -> None:
    with built(writing_config(*TWO, plain_share=0.5, reward="transfer").training(view="shown")) as run:
        report = run.round()
    assert any(not member.arm.plain for group in report.groups for member in group.members)
    assert {member.view for group in report.groups for member in group.members} == {None}
    assert "solver/views" not in report.metrics
    assert report.metrics["solver/hint_stripped_rows"] == 0


def test_a_curator_is_paid_for_what_was_internalised(tmp_path: Path) -> None:
    def config() -> SealConfig:
        return pairs_config(reward="internalised", update_every=1)

    with built(config()) as run:
        run.round()
        run.algorithm.save_to_path(str(tmp_path / "state"))
        run.play(2)
        metrics = list(map(measured, run.reports))
    learnt = 0
    for report in run.reports:
        assert report.curator.known
        for place, (arm, row) in enumerate(zip(report.arms, report.curator.known, strict=True)):
            assert row["id"] == arm.id
            if not arm.plain and f"solver/internalised_after/{place}" in report.metrics:
                learnt += 1
                assert row["gain"] is not None
    assert learnt
    with built(config()) as run:
        run.algorithm.restore_from_path(str(tmp_path / "state"))
        run.play(2)
        assert all(map(same, map(measured, run.reports), metrics[1:]))
