"""The report of a round: callbacks get it and cannot change or end the run; an evaluation is a part of it."""

import dataclasses
from collections import Counter

import pytest

from policies.trajectory import Trajectory
from seal_ray.algorithm.report import RoundReport
from seal_ray.grpo import rewards
from seal_ray.rollout.types import PLAIN_ARM
from tests.seal_ray.algorithm.configs import ROUNDS_IN_RAY, small_config
from tests.seal_ray.algorithm.engines import Half
from tests.seal_ray.algorithm.runs import assert_equal, built, measured, same

pytestmark = [*ROUNDS_IN_RAY, pytest.mark.long]


def test_a_callback_gets_the_report_and_cannot_change_or_end_the_run(caplog: pytest.LogCaptureFixture) -> None:
    with built(small_config(Half())) as run:
        expected, weights = run.play(2), run.weights
        undisturbed = list(map(measured, run.reports))
    reports: list[RoundReport] = []

    def write(report: RoundReport) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            report.round = 7  # type: ignore[misc]
        with pytest.raises(dataclasses.FrozenInstanceError):
            report.groups[0].plan.task = "another"  # type: ignore[misc]
        with pytest.raises(TypeError):
            report.metrics["solver/success"] = 1.0  # type: ignore[index]
        raise RuntimeError("a mistake in a callback")

    with built(small_config(Half()).on_round(write).on_round(reports.append)) as run:
        assert run.play(2) == expected
        assert_equal(run.weights, weights)
    assert reports == run.reports
    assert [report.round for report in reports] == [1, 2]
    assert all(map(same, map(measured, reports), undisturbed))
    assert [len(report.groups) for report in reports] == [4, 4]
    assert {report.arms for report in reports} == {(PLAIN_ARM,)}
    assert not any(report.evaluation for report in reports)
    logged = [record for record in caplog.records if record.name == "seal_ray" and record.levelname == "ERROR"]
    assert [record.getMessage() for record in logged] == [f"a callback of round {number} raised" for number in (1, 2)]
    assert "a mistake in a callback" in caplog.text


def test_a_round_that_is_followed_by_an_evaluation_reports_it() -> None:
    config = small_config(Half(evaluated=4)).evaluation(interval=2, tasks=4)
    with built(config) as run:
        before = run.algorithm.play_evaluation()
        first, second = run.round(), run.round()
        assert (first.evaluation, len(run.reports)) == (None, 2)
        assert second.evaluation is not None
        assert second.evaluation.metrics.keys() == before.metrics.keys()
        assert second.evaluation.metrics["dialogues"] == 4


def test_a_reward_is_computed_once_for_each_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Counter[int]()

    def counting(trajectory: Trajectory) -> float:
        calls[trajectory.seed] += 1
        return trajectory.reward

    monkeypatch.setattr(rewards, "success", counting)
    # A registry stores what it has found; this one has found nothing yet.
    monkeypatch.setattr(rewards, "REWARDS", dataclasses.replace(rewards.REWARDS))
    with built(small_config(Half()).training(dynamic_sampling=True).reweighting(mode="dynamic")) as run:
        run.play(2)
        seeds = [each.seed for report in run.reports for group in report.groups for each in group.trajectories]
    assert calls == Counter(seeds)
