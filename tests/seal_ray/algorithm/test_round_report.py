"""The report of a round: callbacks get it and cannot change or end the run; an evaluation is a part of it."""

import dataclasses
from collections import Counter

import pytest

from envs.diagnosis import Label
from policies.trajectory import Trajectory
from seal_ray.algorithm.report import RoundReport
from seal_ray.grpo import rewards
from seal_ray.grpo.reweighting import RHO_PAPER
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
    config = small_config(Half(evaluated=4)).evaluation(interval=2, tasks=4).solver(temperature=0.7)
    with built(config) as run:
        before = run.algorithm.play_evaluation()
        first, second = run.round(), run.round()
        assert (first.evaluation, len(run.reports)) == (None, 2)
        assert second.evaluation is not None
        assert second.evaluation.metrics.keys() == before.metrics.keys()
        assert second.evaluation.metrics["dialogues"] == 4
        assert {group.plan.temperature for group in second.evaluation.groups} == {0.0}
        assert {group.plan.temperature for group in second.groups} == {0.7}


def test_diagnoses_reach_the_profile_and_the_weights_of_advantages() -> None:
    """SEAL's loop (arXiv 2605.24426), computed again from the rollouts of each round."""
    config = small_config(Half()).reweighting(mode="dynamic", beta=1.0)
    with built(config) as run:
        run.play(4)
        every = run.algorithm.run.curator.update_every
    settings, rho, seen, window = config.spec.reweighting, dict(RHO_PAPER), list[Trajectory](), list[Trajectory]()
    for report in run.reports:
        if window and report.round % every == 1 % every:
            turns = Counter(label for each in window for label in paper_labels(each))
            for label in rho.keys() - {"pass"}:
                won = [each.reward for each in window if label in paper_labels(each)]
                failing = sum(1 - reward for reward in won) / max(1, len(won))
                pressure = turns[label] / turns.total() * failing * min(1.0, turns[label] / 32)
                rho[label] = min(settings.high, RHO_PAPER[label] * (1 + settings.alpha * pressure))
            window = []
        played = [each for group in report.groups for each in group.trajectories]
        window, seen = window + played, seen + played
        for scope, rollouts in (("window", window), ("total", seen)):
            found = {key: row[0] for key, row in report.profile[scope].items() if key.startswith("label/")}
            assert found == Counter(f"label/{label}" for each in rollouts for label in each.diagnosis.labels)
            assert report.profile[scope]["all"][1:3] == [
                len(rollouts),
                sum(each.diagnosis.success for each in rollouts),
            ]
        assert {label: report.metrics[f"diagnosis/rho/{label}"] for label in rho} == pytest.approx(rho)
        for each in played:
            if each.seed in report.weighted:
                weights = [rho[label] for label in paper_labels(each)]
                mean = sum(weights) / len(weights)
                assert report.weighted[each.seed].weight == pytest.approx(min(settings.high, max(settings.low, mean)))
    assert any(report.weighted for report in run.reports)
    assert rho != RHO_PAPER, "the weights have followed the profile"


def paper_labels(trajectory: Trajectory) -> list[str]:
    return [turn.paper_label for turn in trajectory.diagnosis.turns if turn.label is not Label.NOT_REACHED]


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
