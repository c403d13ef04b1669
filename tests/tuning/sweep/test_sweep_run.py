"""Sweeps on Ray Tune: killed and resumed; bad points are stopped early, and the best one's preset can be read."""

import csv
from pathlib import Path

import pytest

from seal_ray.algorithm.checks import check_run
from seal_ray.algorithm.config import make_config
from tests.processes import read_until
from tests.tuning.processes import drive, ended, kill
from tests.tuning.sweep.driver import ROUNDS, STEPS
from tuning.record import State
from tuning.running import check_resumable
from tuning.sweep.results import BEST, IMPORTANCE, PARALLEL, TABLE, SweepManifest, collect, score

pytestmark = pytest.mark.long

DRIVER = "tests.tuning.sweep.driver"


def test_killed_it_goes_on_and_a_bad_point_is_still_stopped(cluster: str, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    process = drive(DRIVER, "start", out)
    read_until(process, ": started", times=2)
    kill(process)
    (first,) = [each for each in collect(out).trials if each.state is State.FINISHED]
    check_resumable(out, SweepManifest)

    said = ended(drive(DRIVER, "resume", out, cluster=cluster))
    assert f"{first.name}: started" not in said, "what has ended is not run again"
    good, bad = collect(out).trials
    assert (STEPS.value_in(good.config), good.state, good.rounds) == (20, State.FINISHED, ROUNDS)
    assert (score(good) or 0) > 0
    # It is stopped for what the other reached before the kill.
    assert (STEPS.value_in(bad.config), bad.state, bad.rounds) == (1, State.STOPPED, 1)
    assert score(bad) == 0
    assert f"{bad.name}: stopped early, after 1 of 2 rounds" in said

    with (out / TABLE).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["solver.steps"] for row in rows] == ["20", "1"]
    assert f"best: {good.name}; train it with: seal-ray train --preset {out / BEST}" in said.replace("\n", "")
    preset = make_config([str(out / BEST)])
    check_run(preset.spec)
    assert preset.to_sections() == {name: values for name, values in good.config.items() if name != "seed"}
    assert (out / PARALLEL).stat().st_size > 10_000
    assert (out / IMPORTANCE).is_file()
