"""Comparisons on Ray Tune: stopped, killed and resumed as if undisturbed; failures are reported."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from seal_ray.report.files import RunFolder
from tests.processes import read_until
from tests.tuning.comparison.driver import KNOWN, ROUNDS
from tests.tuning.comparison.folders import report_of, table_rows
from tests.tuning.processes import drive, ended, kill
from tuning.comparison.collect import ComparisonManifest, collect
from tuning.comparison.report import INTERFACES, TABLE
from tuning.record import State
from tuning.running import check_resumable

pytestmark = pytest.mark.long

DRIVER = "tests.tuning.comparison.driver"


def without_times(folder: Path) -> list[dict[str, Any]]:
    rows = RunFolder(folder).metrics.rows()
    return [{name: value for name, value in row.items() if not name.startswith("perf/")} for row in rows]


def test_killed_it_goes_on_to_the_table_of_one_that_was_not(cluster: str, tmp_path: Path) -> None:
    # The trial of `cues` is left alone; that of `twin`, which has the same settings, is killed with its driver.
    out = tmp_path / "comparison"
    process = drive(DRIVER, "start", out)
    said = read_until(process, "twin-seed0 round 2")
    assert "Trial" not in said, "Tune's own tables are not wanted"
    kill(process)
    assert [each.state for each in collect(out).trials] == [State.FINISHED, State.UNFINISHED]

    said = ended(drive(DRIVER, "resume", out, cluster=cluster))
    assert "cues-seed0: started" not in said, "what is finished is not run again"
    assert "twin-seed0: finished" in said
    assert "2 of 2 trials done, 0 s left" in said

    table = table_rows(out)
    values = {each: [row["value"] for row in table if row["arm"] == each] for each in ("cues", "twin")}
    assert values["cues"] == values["twin"]
    assert any(float(value) > 0 for value in values["cues"])
    assert {row["difference"] for row in table if row["arm"] == "twin" and row["seed"] == "all"} == {"0.000000"}
    assert "### cues-seed0\n\nFrom round 1:" in (out / INTERFACES).read_text("utf-8")
    assert without_times(out / "trials" / "cues-seed0") == without_times(out / "trials" / "twin-seed0")
    for trial in ("cues-seed0", "twin-seed0"):
        folder = RunFolder(out / "trials" / trial)
        rows = folder.metrics.rows()
        assert [row["round"] for row in rows] == list(range(ROUNDS + 1))
        assert ("perf/evaluation_seconds" in rows[0]) == (trial == "cues-seed0"), "the model as it is, evaluated once"
        # At the begin, by the interval, and at the end though it is not of the interval.
        assert [row["round"] for row in rows if "evaluation/success" in row] == [0, 2, 3]
        evaluations = {row["round"]: row["suites"]["plain"] for row in folder.evaluations.rows()}
        assert list(evaluations) == [0, 2, 3]
        for number, by_category in evaluations.items():
            found = [each for outcomes in by_category.values() for each in outcomes.values()]
            assert len(found) == 4
            assert sum(found) / 4 == rows[number]["evaluation/success"]
        assert [row["round"] for row in folder.interfaces.rows()] == list(range(1, ROUNDS + 1))
        assert [row["round"] for row in folder.profiles.rows()] == list(range(1, ROUNDS + 1))
        assert all(folder.log_of("round", number).is_file() for number in range(1, ROUNDS + 1))
        assert folder.curves.stat().st_size > 10_000
        assert json.loads((folder.checkpoints / f"round_{ROUNDS:06d}/model/config.json").read_text("utf-8"))


@pytest.mark.only_by(target="long")
def test_ctrl_c_lets_the_round_end_and_says_how_to_go_on(tmp_path: Path) -> None:
    """On a cluster of its own, which has room for one trial at a time."""
    out = tmp_path / "comparison"
    process = drive(DRIVER, "start", out)
    read_until(process, "cues-seed0 round 1")
    process.send_signal(signal.SIGINT)
    said = ended(process)
    assert "stopping after the current rounds" in said
    assert f"resume with: seal-ray compare --resume {out}" in said.replace("\n", "")
    assert [each.state for each in collect(out).trials] == [State.UNFINISHED, State.NOT_STARTED]
    assert "in no number below" in report_of(out)
    check_resumable(out, ComparisonManifest)


def test_a_trial_that_stays_failed_is_retried_listed_and_a_fault(cluster: str, tmp_path: Path) -> None:
    out = tmp_path / "failing"
    said = ended(drive(DRIVER, "fail", out, cluster=cluster), code=1)
    assert said.count("strict-seed0: failed (RatioError: learner: before its first step") == 1
    assert said.count("strict-seed0: failed and given up (RatioError") == 1
    assert "failed: 1 of 1 trials were given up (strict-seed0)" in said
    (trial,) = collect(out).trials
    assert trial.state is State.FAILED
    assert "RatioError" in (trial.failure or "")
    assert "strict,0,failed,0,final,," in (out / TABLE).read_text("utf-8")
    assert "**1 failed after retries, and in no number below:** strict-seed0." in report_of(out)
    # The known evaluation before training was not repeated.
    folder = RunFolder(trial.folder)
    assert folder.metrics.rows() == [{"round": 0, **KNOWN["metrics"]}]
    assert folder.evaluations.rows() == [{"round": 0, "suites": KNOWN["suites"]}]
