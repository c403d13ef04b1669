"""Comparisons that were computed in pieces become one, small enough to be kept; pieces must fit."""

import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from seal_ray.algorithm.config import make_config
from seal_ray.report.files import RunFolder, as_json
from tests.command_line import RunMain
from tests.refusal import refusal
from tests.tuning.comparison.folders import ROUNDS, constant, drawn, make_comparison, play, report_of
from tuning.comparison.collect import ComparisonManifest, collect, trial_folder
from tuning.comparison.merge import initial_evaluations, merge
from tuning.comparison.plan import make_plan
from tuning.comparison.report import INTERFACES, TABLE, write_results
from tuning.recipe import Sections
from tuning.record import State, mark_failed

LEVELS = {"vanilla": {"base": 0.5}, "rules": {"base": 0.8}}
TASKS = 20
Settings = Mapping[str, Mapping[str, object]]


def piece(
    out: Path,
    arms: tuple[str, ...] = ("vanilla", "rules"),
    *,
    first_seed: int = 0,
    seeds: int = 2,
    tasks: int = TASKS,
    settings: Settings | None = None,
) -> Path:
    """A comparison that has come to its end, with a trial's other files next to the small ones."""
    make_comparison(out, arms=arms, seeds=seeds, first_seed=first_seed, settings=settings)
    for place, arm in enumerate(arms):
        for seed in range(first_seed, first_seed + seeds):
            levels = LEVELS.get(arm, {"base": 0.6})
            play(out, arm, seed, constant(0.5), solved=drawn(levels, 100 * place + seed, tasks=tasks))
            folder = RunFolder(trial_folder(out, arm, seed))
            (folder.checkpoints / "weights").write_bytes(b"0" * 1000)
            folder.log_of("round", 1).write_bytes(b"a log")
    return out


def table(out: Path) -> list[str]:
    return (out / TABLE).read_text("utf-8").splitlines()


def test_seeds_in_pieces_are_what_they_would_have_been_in_one(tmp_path: Path) -> None:
    whole = piece(tmp_path / "whole", seeds=4)
    write_results(whole)
    pieces = [piece(tmp_path / "first"), piece(tmp_path / "second", first_seed=2)]
    out = tmp_path / "merged"
    merge(pieces, out)
    merged = write_results(out)
    assert table(out) == table(whole)
    assert (out / INTERFACES).read_bytes() == (whole / INTERFACES).read_bytes()
    text = report_of(out)
    assert "Merged from first, second." in text
    assert text.replace("Merged from first, second.\n\n", "") == report_of(whole)
    changes = {"folder": "", "merged": ("first", "second")}
    assert merged.manifest == ComparisonManifest.read(whole).model_copy(update=changes)


def packed(folder: Path, name: str | None = None) -> Path:
    """The folder as an archive next to it."""
    path = folder.with_name(f"{folder.name}.tar.xz")
    with tarfile.open(path, "w:xz") as archive:
        archive.add(folder, name or folder.name)
    return path


def test_pieces_can_be_packed_and_can_have_one_name(tmp_path: Path) -> None:
    pieces = [piece(tmp_path / f"machine{seed}" / "part", seeds=1, first_seed=seed) for seed in (0, 1)]
    archives = [packed(folder) for folder in pieces]
    for name, parts in (("one", pieces), ("other", archives)):
        merge(parts, tmp_path / name)
        write_results(tmp_path / name)
    assert table(tmp_path / "one") == table(tmp_path / "other")
    manifest = ComparisonManifest.read(tmp_path / "other")
    assert (manifest.seeds, manifest.merged) == ((0, 1), ("part", "part"))


def test_an_archive_without_its_piece_is_refused(tmp_path: Path) -> None:
    folder = piece(tmp_path / "third")
    (broken := tmp_path / "broken.tar.xz").write_bytes(b"no archive")
    hostile = packed(folder, "../outside")
    for file, words in ((hostile, "holds no folder third"), (broken, "cannot")):
        assert f"{file.name} {words}" in refusal(merge, [file], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_nothing_large_is_taken_and_no_path_of_this_machine(tmp_path: Path) -> None:
    out = tmp_path / "merged"
    first = piece(tmp_path / "first")
    curator = {name: json.dumps({"round": 2, name: []}) for name in ("proposals", "arms")}
    for name, row in curator.items():
        (first / "trials" / "rules-seed0" / f"{name}.jsonl").write_text(row, "utf-8")
    merge([first, piece(tmp_path / "second", first_seed=2)], out)
    found = {path.name for path in (out / "trials").rglob("*") if path.is_file()}
    read = {"config.yaml", "metrics.jsonl", "evaluations.jsonl", "interfaces.jsonl"}
    assert found == {*read, *(f"{name}.jsonl" for name in curator)}
    for name, row in curator.items():
        assert (out / "trials" / "rules-seed0" / f"{name}.jsonl").read_text("utf-8") == row
    assert str(tmp_path) not in (out / "comparison.yaml").read_text("utf-8")


def test_arms_in_pieces_and_merging_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    merge([piece(tmp_path / "a"), piece(tmp_path / "b", first_seed=2)], first)
    merge([first, piece(tmp_path / "c", arms=("fixed",), seeds=4)], second)
    comparison = write_results(second)
    assert list(comparison.manifest.arms) == ["vanilla", "rules", "fixed"]
    assert comparison.manifest.seeds == (0, 1, 2, 3)
    assert comparison.manifest.merged == ("first", "c")
    assert len([each for each in comparison.trials if each.state is State.FINISHED]) == 12
    assert "over 4 pairs and 20 tasks" in report_of(second)


def test_baseline_and_threshold_are_the_first_pieces_or_as_given(tmp_path: Path) -> None:
    fixed = piece(tmp_path / "fixed", arms=("fixed",))
    vanilla = piece(tmp_path / "vanilla", arms=("vanilla",))
    merge([fixed, vanilla], tmp_path / "one")
    assert ComparisonManifest.read(tmp_path / "one").baseline == "fixed"
    merge([fixed, vanilla], tmp_path / "other", baseline="vanilla", threshold=0.4)
    manifest = ComparisonManifest.read(tmp_path / "other")
    assert (manifest.baseline, manifest.threshold) == ("vanilla", 0.4)
    said = refusal(merge, [fixed, vanilla], tmp_path / "third", baseline="rules")
    assert "--baseline: 'rules' is not known" in said
    assert not (tmp_path / "third").exists()


def test_failed_and_missing_trials_stay_so(tmp_path: Path) -> None:
    first = tmp_path / "first"
    make_comparison(first, seeds=2)
    play(first, "vanilla", 0, constant(0.5))
    mark_failed(trial_folder(first, "rules", 0), "it broke")
    # What never started in one piece may have run in another.
    second = piece(tmp_path / "second", arms=("rules",), first_seed=1, seeds=2)
    merge([first, second], tmp_path / "merged")
    comparison = write_results(tmp_path / "merged")
    assert {each.name: each.state for each in comparison.trials} == {
        "vanilla-seed0": State.FINISHED,
        "vanilla-seed1": State.NOT_STARTED,
        "rules-seed0": State.FAILED,
        "rules-seed1": State.FINISHED,
        "rules-seed2": State.FINISHED,
    }
    assert comparison.arm_trials("rules")[0].failure == "it broke"
    text = report_of(tmp_path / "merged")
    assert "2 arms × up to 3 seeds" in text
    assert "**1 not started, and in no number below:** vanilla-seed1." in text, "vanilla-seed2 was not planned"
    assert "| `curator.kind` | none | rules |" in text
    merge([tmp_path / "merged", piece(tmp_path / "third", arms=("vanilla",), first_seed=1)], tmp_path / "again")
    assert all(each.state is State.FINISHED for each in collect(tmp_path / "again").arm_trials("vanilla"))


def training(groups: int = 4, lr: float = 0.1) -> Settings:
    return {"training": {"groups": groups, "lr": lr}}


def test_a_piece_that_lacks_a_later_setting_has_its_default(tmp_path: Path) -> None:
    first = piece(tmp_path / "first", settings={"engine": {"concurrent": 9}})
    second = piece(tmp_path / "second", first_seed=2, settings={"engine": {"dtype": "bfloat16"}})
    merge([first, second], tmp_path / "both")
    assert len(ComparisonManifest.read(tmp_path / "both").seeds) == 4
    third = piece(tmp_path / "third", first_seed=4, settings={"engine": {"dtype": "float32"}})
    said = refusal(merge, [first, third], tmp_path / "more")
    assert re.search(r"engine.dtype is 'bfloat16' in .* and 'float32' in vanilla-seed4", said)


def test_pieces_may_have_run_in_different_places_and_the_report_says_so(tmp_path: Path) -> None:
    engine = {"concurrent": 9, "num_gpus_per_engine": 0.5}
    first = piece(tmp_path / "first", settings={"engine": {"concurrent": 9}})
    second = piece(tmp_path / "second", first_seed=2, settings={"engine": engine, "learners": {"num_learners": 1}})
    merge([first, second], tmp_path / "both")
    merge([first], tmp_path / "alone")
    places = "engine.num_gpus_per_engine 0.0 in 4, 0.5 in 4; learners.num_learners 0 in 4, 1 in 4."
    assert places in report_of(write_results(tmp_path / "both").folder)
    assert "different places" not in report_of(write_results(tmp_path / "alone").folder)


def test_pieces_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    first = piece(tmp_path / "first", settings=training())
    make_comparison(tmp_path / "rounds", first_seed=2, settings=training(), rounds=ROUNDS + 1)
    same = piece(tmp_path / "same", settings=training())
    lr = piece(tmp_path / "lr", first_seed=2, settings=training(lr=0.2))
    groups = piece(tmp_path / "groups", arms=("fixed",), settings=training(5))
    tasks = piece(tmp_path / "tasks", first_seed=2, tasks=TASKS + 1, settings=training())
    cases = {
        "vanilla-seed0 is in .*first and in .*same; a trial is taken from one piece": same,
        "first has 8 rounds and .*rounds has 9": tmp_path / "rounds",
        "training.lr is 0.1 in vanilla-seed0 of .*first and 0.2 in vanilla-seed2 of .*lr; an arm has the same": lr,
        "training.groups: it is 4 in the arm vanilla and 5 in fixed; arms are compared at equal": groups,
        "were evaluated on other tasks; pieces have the same": tasks,
        "is no comparison": tmp_path / "nowhere",
    }
    for words, other in cases.items():
        assert re.search(words, refusal(merge, [first, other], tmp_path / "out"))
        assert not (tmp_path / "out").exists()


def test_the_command_merges_draws_again_and_refuses(tmp_path: Path, run_main: RunMain) -> None:
    first, second = str(piece(tmp_path / "first")), str(piece(tmp_path / "second", first_seed=2))
    out = str(tmp_path / "merged")
    named = ("--runs", str(tmp_path), "--name")
    assert "4 of 4" in run_main("compare", "--merge", first, second, *named, "merged", "--threshold", "60")
    assert ComparisonManifest.read(Path(out)).threshold == 0.6
    before = table(Path(out))
    run_main("compare", "--report", out)
    assert table(Path(out)) == before
    run_main("compare", "--report", out, "--threshold", "10")
    assert table(Path(out)) != before
    said = run_main("compare", "--merge", first, second, *named, "merged", code=2)
    assert "exists; resume it with seal-ray compare --resume" in said
    assert "was merged from first, second; resume these" in run_main("compare", "--resume", out, code=2)


SOLVED = drawn({"base": 0.5}, 0)


def sections(*overrides: str) -> Sections:
    return make_config(["rules"], overrides=overrides).to_sections()


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """A comparison whose second trial has been evaluated before training."""
    settings = {name: as_json(found) for name, found in sections().items() if name != "curator"}
    make_comparison(tmp_path / "piece", settings=settings)
    play(tmp_path / "piece", "rules", 0, constant(0.5), solved=SOLVED)
    return tmp_path / "piece"


def test_it_is_what_came_of_round_0(started: Path) -> None:
    found = initial_evaluations(started, {"fixed": sections("training.lr=0.5"), "other": sections("curator.kind=none")})
    assert found["fixed"] == found["other"]
    assert found["fixed"]["suites"] == {"plain": SOLVED(0)}
    outcomes = [each for tasks in SOLVED(0).values() for each in tasks.values()]
    assert found["fixed"]["metrics"]["evaluation/success"] == sum(map(bool, outcomes)) / len(outcomes)
    plan = make_plan(["vanilla", "fixed"], seeds=1, like=started)
    assert plan.starts == dict.fromkeys(("vanilla", "fixed"), found["fixed"])


def test_another_evaluation_is_refused(started: Path) -> None:
    said = refusal(initial_evaluations, started, {"fixed": sections("solver.response=7")})
    assert re.match("--start: solver.response is .* in .*piece and 7 in the arm fixed", said)


def test_a_comparison_without_one_is_refused(tmp_path: Path) -> None:
    make_comparison(tmp_path / "empty")
    said = refusal(initial_evaluations, tmp_path / "empty", {"fixed": sections()})
    assert re.search(r"no trial of .*empty was evaluated before its training", said)
    assert "is no comparison" in refusal(make_plan, ["vanilla"], seeds=1, like=tmp_path / "none")
