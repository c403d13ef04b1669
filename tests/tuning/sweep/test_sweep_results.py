"""Results of a sweep, from folders made by hand; importance, checked on scores of known causes."""

import csv
import io
import random
from pathlib import Path

import pytest

from envs.errors import UserError
from seal_ray.algorithm.config import make_config
from seal_ray.report.files import RunFolder
from tuning.record import State, mark_ended, mark_failed
from tuning.sweep.importance import FEWEST, importances
from tuning.sweep.parameter import SweptParameter, Value
from tuning.sweep.results import (
    BEST,
    IMPORTANCE,
    METRIC,
    PARALLEL,
    TABLE,
    SweepManifest,
    collect,
    table_of,
    write_results,
)

RATE = SweptParameter("training.lr", low=1e-5, high=1e-3, log=True)
MODE = SweptParameter("reweighting.mode", choices=("none", "fixed", "dynamic"))
EVERY = SweptParameter("curator.update_every", low=1, high=5, whole=True)
ROUNDS = 4


def make_sweep(out: Path) -> None:
    out.mkdir()
    settings = {"scheduler": "asha", "search": "random", "trials": 6, "rounds": ROUNDS, "folder": str(out.resolve())}
    SweepManifest.model_validate({"parameters": (RATE, MODE), **settings}).write(out)


def play(out: Path, name: str, rate: float, mode: str, scores: dict[int, float], *, rounds: int) -> Path:
    folder = RunFolder(out / "trials" / name)
    config = make_config(["tiny"], overrides=[f"training.lr={rate}", f"reweighting.mode={mode}"], seed=5)
    folder.write_config({"seed": config.seed, **config.to_sections()})
    for number in range(rounds + 1):
        folder.append_metrics(number, {METRIC: scores[number]} if number in scores else {})
    return folder.path


def test_the_best_is_the_best_of_those_that_came_to_their_end(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    make_sweep(out)
    play(out, "good", 1e-4, "fixed", {0: 0.2, 2: 0.4, 4: 0.6}, rounds=4)
    play(out, "flat", 3e-4, "none", {0: 0.2, 2: 0.3, 4: 0.3}, rounds=4)
    mark_ended(play(out, "early", 1e-3, "dynamic", {0: 0.2, 2: 0.9}, rounds=2))
    play(out, "running", 2e-5, "fixed", {0: 0.2}, rounds=1)
    mark_failed(out / "trials" / "broken", "ValueError: it broke")
    sweep = write_results(out)
    assert [(each.name, each.state) for each in sweep.trials] == [
        ("good", State.FINISHED),
        ("flat", State.FINISHED),
        ("early", State.STOPPED),
        ("broken", State.FAILED),
        ("running", State.UNFINISHED),
    ]
    assert sweep.best is not None
    assert sweep.best.name == "good"
    assert sweep.common_round == 2
    rows = list(csv.DictReader(io.StringIO((out / TABLE).read_text("utf-8"))))
    assert [row["success"] for row in rows] == ["0.600000", "0.300000", "0.900000", "", ""]
    assert [row["training.lr"] for row in rows] == ["0.0001", "0.0003", "0.001", "", "2e-05"]
    assert rows[3]["failure"] == "ValueError: it broke"
    preset = make_config([str(out / BEST), "vanilla"])
    assert (preset.lr, MODE.value_in(preset.to_sections())) == (1e-4, "none"), "a method goes on top of it"
    assert MODE.value_in(make_config([str(out / BEST)]).to_sections()) == "fixed"
    assert "3 trials" in (out / BEST).read_text("utf-8")
    for name in (PARALLEL, IMPORTANCE):
        assert (out / name).stat().st_size > 2_000


def test_without_a_finished_trial_there_is_no_best(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    make_sweep(out)
    assert len(list(table_of(collect(out)))) == 1
    mark_ended(play(out, "early", 1e-3, "dynamic", {0: 0.2, 2: 0.9}, rounds=2))
    assert write_results(out).best is None
    assert not (out / BEST).exists()


def test_a_broken_manifest_is_one_sentence(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    make_sweep(out)
    (out / "sweep.yaml").write_text("parameters: 3", encoding="utf-8")
    with pytest.raises(UserError, match="cannot be read as a sweep"):
        collect(out)


def test_the_decisive_parameter_is_above_chance_and_others_are_not() -> None:
    rng = random.Random(0)
    points: list[list[Value]] = []
    scores = []
    for _ in range(40):
        rate, mode, keep = 10 ** rng.uniform(-5, -3), rng.choice(["none", "fixed", "dynamic"]), rng.randint(1, 5)
        points.append([rate, mode, keep])
        scores.append(0.5 * (mode == "fixed") + 0.05 * rng.random())
    values = importances([RATE, MODE, EVERY], points, scores)
    assert next(iter(values)) == "reweighting.mode"
    assert sum(share for share, _ in values.values()) == pytest.approx(1.0)
    assert [name for name, (share, by_chance) in values.items() if share > by_chance] == ["reweighting.mode"]


def test_importances_of_random_scores_are_rarely_above_chance() -> None:
    above = 0
    for seed in range(12):
        rng = random.Random(seed)
        points: list[list[Value]] = [[10 ** rng.uniform(-5, -3), "none", rng.randint(1, 5)] for _ in range(16)]
        values = importances([RATE, MODE, EVERY], points, [rng.random() for _ in points])
        above += sum(share > by_chance for share, by_chance in values.values())
    assert above <= 1, "5 % of 24"


def test_few_trials_or_equal_ones_say_nothing() -> None:
    points: list[list[Value]] = [[1e-4 * (i + 1), "none", 1] for i in range(6)]
    assert importances([RATE, MODE, EVERY], points, [0.5] * 6) == {}
    assert importances([RATE, MODE, EVERY], points[: FEWEST - 1], [0.1, 0.2, 0.3]) == {}
    found = importances([RATE, MODE, EVERY], points, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], draws=5)
    assert found["reweighting.mode"][0] == 0.0, "a parameter that never changed explains nothing"
