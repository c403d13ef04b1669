"""Comparisons that were computed in pieces become one, small enough to be kept; pieces must fit."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from envs.errors import UserError
from seal_ray.config.earlier import converted
from seal_ray.report.files import RunFolder
from tests.command_line import run_main
from tests.tuning.comparison.folders import ROUNDS, constant, drawn, make_comparison, play
from tuning.comparison.collect import ComparisonManifest, collect, trial_folder
from tuning.comparison.merge import merge
from tuning.comparison.report import INTERFACES, REPORT, TABLE, write_results
from tuning.recipe import differences
from tuning.record import State, mark_failed

LEVELS = {"vanilla": {"base": 0.5}, "rules": {"base": 0.8}}
TASKS = 20


def piece(
    out: Path,
    arms: tuple[str, ...] = ("vanilla", "rules"),
    *,
    first_seed: int = 0,
    seeds: int = 2,
    tasks: int = TASKS,
    settings: Mapping[str, Mapping[str, object]] | None = None,
) -> Path:
    """A comparison that has come to its end, with what a trial leaves behind beside the small files."""
    make_comparison(out, arms=arms, seeds=seeds, first_seed=first_seed, settings=settings)
    for place, arm in enumerate(arms):
        for seed in range(first_seed, first_seed + seeds):
            levels = LEVELS.get(arm, {"base": 0.6})
            play(out, arm, seed, constant(0.5), solved=drawn(levels, 100 * place + seed, tasks=tasks))
            folder = RunFolder(trial_folder(out, arm, seed))
            (folder.checkpoints / "weights").write_bytes(b"0" * 1000)
            folder.trajectories_of(1).replace([{"task": "a"}])
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
    text = (out / REPORT).read_text("utf-8")
    assert "Merged from first, second." in text
    assert text.replace("Merged from first, second.\n\n", "") == (whole / REPORT).read_text("utf-8")
    assert merged.manifest == ComparisonManifest.read(whole).model_copy(
        update={"folder": "", "merged": ("first", "second")}
    )


def test_packed_pieces_can_have_one_name(tmp_path: Path) -> None:
    packed = []
    for seed in (0, 1):
        folder = piece(tmp_path / f"machine{seed}" / "part", seeds=1, first_seed=seed)
        packed.append(folder.with_name("part.tar.xz"))
        with tarfile.open(packed[-1], "w:xz") as archive:
            archive.add(folder, "part")
    merge(packed, tmp_path / "both")
    assert ComparisonManifest.read(tmp_path / "both").seeds == (0, 1)


def test_pieces_can_be_packed(tmp_path: Path) -> None:
    pieces = [piece(tmp_path / "first"), piece(tmp_path / "second", first_seed=2)]
    packed = tmp_path / "packed" / "second.tar.xz"
    packed.parent.mkdir()
    with tarfile.open(packed, "w:xz") as archive:
        archive.add(pieces[1], "second")
    for name, second in (("one", pieces[1]), ("other", packed)):
        merge([pieces[0], second], tmp_path / name)
        write_results(tmp_path / name)
    assert table(tmp_path / "one") == table(tmp_path / "other")
    assert collect(tmp_path / "other").manifest.merged == ("first", "second")
    with pytest.raises(UserError, match=r"third.tar.xz holds no folder third"):
        merge([packed.rename(packed.with_name("third.tar.xz"))], tmp_path / "none")
    (tmp_path / "broken.tar.xz").write_bytes(b"no archive")
    with pytest.raises(UserError, match=r"broken.tar.xz cannot be unpacked"):
        merge([tmp_path / "broken.tar.xz"], tmp_path / "none")
    with tarfile.open(tmp_path / "hostile.tar.xz", "w:xz") as archive:
        archive.add(packed.with_name("third.tar.xz"), "../outside")
    with pytest.raises(UserError, match=r"hostile.tar.xz holds no folder hostile"):
        merge([tmp_path / "hostile.tar.xz"], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_nothing_large_is_taken_and_no_path_of_this_machine(tmp_path: Path) -> None:
    out = tmp_path / "merged"
    merge([piece(tmp_path / "first"), piece(tmp_path / "second", first_seed=2)], out)
    found = {path.name for path in (out / "trials").rglob("*") if path.is_file()}
    assert found == {"config.yaml", "metrics.jsonl", "evaluations.jsonl", "interfaces.jsonl"}
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
    assert "over 4 pairs and 20 tasks" in (second / REPORT).read_text("utf-8")


def test_baseline_and_threshold_are_the_first_pieces_or_as_given(tmp_path: Path) -> None:
    fixed = piece(tmp_path / "fixed", arms=("fixed",))
    vanilla = piece(tmp_path / "vanilla", arms=("vanilla",))
    merge([fixed, vanilla], tmp_path / "one")
    assert ComparisonManifest.read(tmp_path / "one").baseline == "fixed"
    merge([fixed, vanilla], tmp_path / "other", baseline="vanilla", threshold=0.4)
    manifest = ComparisonManifest.read(tmp_path / "other")
    assert (manifest.baseline, manifest.threshold) == ("vanilla", 0.4)
    with pytest.raises(UserError, match="--baseline: 'rules' is not known"):
        merge([fixed, vanilla], tmp_path / "third", baseline="rules")
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
    text = (tmp_path / "merged" / REPORT).read_text("utf-8")
    assert "2 arms × up to 3 seeds" in text
    assert "**1 not started, and in no number below:** vanilla-seed1." in text, "nobody planned vanilla-seed2"
    assert "| `curator.kind` | none | rules |" in text
    merge([tmp_path / "merged", piece(tmp_path / "third", arms=("vanilla",), first_seed=1)], tmp_path / "again")
    assert all(each.state is State.FINISHED for each in collect(tmp_path / "again").arm_trials("vanilla"))


def groups(number: int) -> dict[str, dict[str, object]]:
    return {"training": {"groups": number, "lr": 0.1}}


def test_a_piece_that_lacks_a_later_setting_has_its_default(tmp_path: Path) -> None:
    first = piece(tmp_path / "first", settings={"engine": {"concurrent": 9}})
    second = piece(tmp_path / "second", first_seed=2, settings={"engine": {"dtype": "bfloat16"}})
    merge([first, second], tmp_path / "both")
    assert len(ComparisonManifest.read(tmp_path / "both").seeds) == 4
    third = piece(tmp_path / "third", first_seed=4, settings={"engine": {"dtype": "float32"}})
    with pytest.raises(UserError, match=r"engine.dtype is 'bfloat16' in .* and 'float32' in vanilla-seed4"):
        merge([first, third], tmp_path / "more")


def test_a_setting_that_had_another_name_is_the_same() -> None:
    before, now = {"environment": {"division": "category"}}, {"environment": {"split_scheme": "category"}}
    assert list(differences(converted(before), now)) == []
    assert [name for name, _ in differences(now, {"environment": {}})] == ["environment.split_scheme"]


def test_pieces_may_have_run_in_different_places_and_the_report_says_so(tmp_path: Path) -> None:
    there: dict[str, dict[str, object]] = {
        "engine": {"concurrent": 9, "num_gpus_per_engine": 0.5},
        "learners": {"num_learners": 1},
    }
    first = piece(tmp_path / "first", settings={"engine": {"concurrent": 9}})
    second = piece(tmp_path / "second", first_seed=2, settings=there)
    merge([first, second], tmp_path / "both")
    text = (write_results(tmp_path / "both").folder / REPORT).read_text(encoding="utf-8")
    assert "engine.num_gpus_per_engine 0.0 in 4, 0.5 in 4; learners.num_learners 0 in 4, 1 in 4." in text
    (alone := tmp_path / "alone").mkdir()
    merge([first], alone / "it")
    text = (write_results(alone / "it").folder / REPORT).read_text(encoding="utf-8")
    assert "different places" not in text


def test_pieces_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    first = piece(tmp_path / "first", settings=groups(4))
    other_rounds = tmp_path / "rounds"
    make_comparison(other_rounds, first_seed=2, settings=groups(4), rounds=ROUNDS + 1)
    cases = {
        "vanilla-seed0 is in .*first and in .*same; a trial is taken from one piece": piece(
            tmp_path / "same", settings=groups(4)
        ),
        "first has 8 rounds and .*rounds has 9": other_rounds,
        "training.lr is 0.1 in vanilla-seed0 of .*first and 0.2 in vanilla-seed2 of .*lr; an arm has the same": piece(
            tmp_path / "lr", first_seed=2, settings={"training": {"groups": 4, "lr": 0.2}}
        ),
        "training.groups: it is 4 in the arm vanilla and 5 in fixed; arms are compared at equal": piece(
            tmp_path / "groups", arms=("fixed",), settings=groups(5)
        ),
        "were evaluated on other tasks; pieces have the same": piece(
            tmp_path / "tasks", first_seed=2, tasks=TASKS + 1, settings=groups(4)
        ),
        "is no comparison": tmp_path / "nowhere",
    }
    for words, other in cases.items():
        with pytest.raises(UserError, match=words):
            merge([first, other], tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_the_command_merges_draws_again_and_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = str(piece(tmp_path / "first")), str(piece(tmp_path / "second", first_seed=2))
    out = str(tmp_path / "merged")

    def run(*arguments: str) -> tuple[int, str]:
        return run_main("compare", *arguments, capsys=capsys, monkeypatch=monkeypatch)

    named = ("--runs", str(tmp_path), "--name")
    code, said = run("--merge", first, second, *named, "merged", "--threshold", "60")
    assert (code, "4 of 4" in said) == (0, True)
    assert ComparisonManifest.read(Path(out)).threshold == 0.6
    before = table(Path(out))
    code, said = run("--report", out)
    assert (code, table(Path(out)) == before) == (0, True)
    code, _ = run("--report", out, "--threshold", "10")
    assert (code, table(Path(out)) == before) == (0, False)
    for arguments, words in {
        ("--merge", first, first, "--name", "x"): "is in",
        ("--merge", first, second, *named, "merged"): "exists; resume it with --resume",
        ("--merge", *named, "merged2"): "--merge: give the folders",
        ("--merge", first, "--seeds", "2", "--name", "x"): "--merge: it joins finished trials",
        ("--resume", out): "was merged from first, second; resume these",
    }.items():
        code, said = run(*arguments)
        assert (code, said.count("\n"), words in said) == (2, 1, True), said
    assert not (tmp_path / "merged2").exists()
