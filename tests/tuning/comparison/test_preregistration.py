"""A comparison is frozen before its runs; reports print its hash, decide by its tests, and name missing runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Refusal, RunMain
from tests.refusal import refusal
from tests.tuning.comparison.folders import ROUNDS, constant, make_comparison, play, report_of
from tuning.commands.compare import preregister
from tuning.comparison.collect import ComparisonManifest, collect, trial_folder
from tuning.comparison.merge import merge
from tuning.comparison.plan import check_plan, make_plan, preregistered_plan
from tuning.comparison.preregistration import NAME, Preregistration, deviations, preregistration_of
from tuning.comparison.report import write_results

SHAM = Path(__file__).parents[3] / "examples/experiments/curator/sham-pairs.yaml"
SETTINGS = {"vanilla": {"curator": {"kind": "none"}}, "rules": {"curator": {"kind": "rules"}}}


def frozen(seeds: int = 6, **changes: Any) -> Preregistration:
    """The preregistration of comparisons made by hand."""
    fields = {"baseline": "vanilla", "threshold": 0.5, "measures": ("final", "learnt"), "settings": SETTINGS, **changes}
    arms = dict.fromkeys(fields["settings"], "")
    return Preregistration.freeze(arms=arms, seeds=tuple(range(seeds)), rounds=ROUNDS, folder="", **fields)


def piece(out: Path, *, first_seed: int = 0, seeds: int = 6, arms: tuple[str, ...] = ("vanilla", "rules")) -> Path:
    """A finished part of it, in which the rules win with every seed."""
    make_comparison(out, arms=arms, seeds=seeds, first_seed=first_seed, threshold=0.5)
    for arm in arms:
        for seed in range(first_seed, first_seed + seeds):
            play(out, arm, seed, constant(0.2 + 0.01 * seed if arm == "vanilla" else 0.8))
    frozen().save(out / NAME)
    return out


def preregistered(out: Path) -> str:
    """The section on its tests in the report."""
    write_results(out)
    return report_of(out).partition("## Preregistered tests")[2].partition("\n## ")[0]


def test_a_plan_is_frozen_with_all_its_settings_and_read_again(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "plan.json"
    words = ["evaluation.tasks=40"]
    preregister(file, words, arms="vanilla,rules", seeds=8, rounds=4, preset="tiny-rare", threshold=50.0)
    saved = Preregistration.load(file)
    said = " ".join(capsys.readouterr().out.split())
    assert f"SHA-256 {saved.sha256}; run it with: seal-ray compare --preregistered" in said
    made = make_plan(["vanilla", "rules"], seeds=8, rounds=4, model="tiny-rare", threshold=0.5, overrides=words)
    plan = preregistered_plan(file)
    check_plan(plan, weights=False)
    assert plan.sections == made.sections == saved.settings
    assert (list(plan.seeds), plan.baseline, plan.threshold, plan.rounds) == (list(range(8)), "vanilla", 0.5, 4)
    assert "a preregistration is never replaced" in refusal(preregister, file, arms="vanilla", threshold=50.0)
    other = tmp_path / "other.json"
    said = refusal(preregister, other, arms="vanilla", threshold=50.0, measures="finals")
    assert "--measures: 'finals' is not known; did you mean 'final'" in said
    assert "--threshold: none given" in refusal(preregister, other, arms="vanilla")
    preregister(tmp_path / "new" / "few.json", arms="vanilla", seeds=5, threshold=50.0)
    assert "5 pairs are few" in capsys.readouterr().out


def test_the_hash_is_of_the_content_alone() -> None:
    one, other = frozen(), frozen(settings={arm: SETTINGS[arm] for arm in SETTINGS})
    assert one.sha256 == other.sha256 == one.digest()
    assert frozen(seeds=7).sha256 != one.sha256
    assert frozen(measures=("learnt", "final")).sha256 != one.sha256, "another primary measure is another plan"


def test_a_part_runs_with_the_settings_of_the_whole(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    make_plan(["vanilla", "rules"], seeds=8, threshold=0.5).preregistration(["final"]).save(file)
    part = preregistered_plan(file, ["rules"], first_seed=4, seeds=2, overrides=["engine.threads=1"])
    assert (list(part.arms), list(part.seeds), part.baseline) == (["rules"], [4, 5], "rules")
    assert part.sections["rules"]["engine"]["threads"] == 1, "a setting of the place"
    assert part.frozen == Preregistration.load(file)


def test_code_that_a_plan_names_needs_trust(tmp_path: Path, run_main: RunMain) -> None:
    file = tmp_path / "plan.json"
    make_plan([str(SHAM)], seeds=2, threshold=0.5).preregistration(["final"]).save(file)
    command = ("compare", "--preregistered", str(file), "--dry-run")
    said = run_main(*command, code=2)
    assert "brings code that would run (examples.experiments.curator.controls:ShamCurator)" in said
    assert "1 arms × 2 seeds" in run_main(*command, "--trust")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--arms", "fixed"], "--arms: 'fixed' is not known; allowed are vanilla, rules"),
        (["--seeds", "9"], "has the seeds 0, 1, 2"),
        (["--seeds", "-1"], "has the seeds 0, 1, 2"),
        (["--first-seed", "3"], "has the seeds 0, 1, 2"),
        (["--rounds", "2"], "--preregistered: the file has rounds"),
        (["--match", "tokens"], "--preregistered: the file has rounds"),
        (["training.lr=1"], "--preregistered: training.lr is the run's own; only places can change"),
    ],
)
def test_nothing_else_than_the_plan_can_be_run(
    arguments: list[str], sentence: str, tmp_path: Path, run_main: RunMain
) -> None:
    make_plan(["vanilla", "rules"], seeds=3, threshold=0.5).preregistration(["final"]).save(tmp_path / "plan.json")
    said = run_main("compare", "--preregistered", str(tmp_path / "plan.json"), *arguments, code=2)
    assert sentence in said


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seeds": [0, 1]}, "its content does not have its SHA-256; it was changed after it was frozen"),
        ({"sha256": ""}, "its content does not have its SHA-256"),
        ({"settings": {"vanilla": {}}}, "it lacks an arm's settings or the threshold"),
        ({"threshold": None}, "it lacks an arm's settings or the threshold"),
        ({"settings": {"vanilla": {"freeze": {}}, "rules": {}}}, "'freeze' has settings that this version does not"),
        ({"settings": {"vanilla": {"curator": {"x": 1}}, "rules": {}}}, "'curator' has settings that this version"),
        ({"arms": {"../up": "", "rules": ""}}, "cannot be read as a preregistration: arms"),
        ({"measures": ["a" * 9]}, "cannot be read as a preregistration: measures.0"),
        ({"measures": []}, "cannot be read as a preregistration: measures"),
        ({"more": 1}, "cannot be read as a preregistration: more"),
    ],
)
def test_a_file_that_does_not_fit_is_one_sentence(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    frozen().save(tmp_path / "plan.json")
    document = json.loads((tmp_path / "plan.json").read_text("utf-8"))
    (tmp_path / "plan.json").write_text(json.dumps(document | change), "utf-8")
    assert sentence in refusal(preregistered_plan, tmp_path / "plan.json")


def test_a_file_that_is_none_is_one_sentence(check_refused: Refusal) -> None:
    check_refused("compare", "--preregistered", "/nowhere.json", sentence="/nowhere.json cannot be read")
    check_refused("compare", "--preregistered", "/dev/zero", sentence="/dev/zero is not a regular file")


def test_pieces_are_merged_and_decided_when_all_runs_are_there(tmp_path: Path) -> None:
    first, second = piece(tmp_path / "first", seeds=4), piece(tmp_path / "second", first_seed=4, seeds=2)
    merge([first, second], tmp_path / "both")
    text = preregistered(tmp_path / "both")
    assert f"the SHA-256 `{frozen().sha256}`. The primary measure is final." in text
    assert "| final | rules | +57.5 [+55.5, +59.5] | 0.031 (0.031) | significant |" in text
    assert "| learnt | rules | +100.0 [n/a] | 0.0022 (0.0022) | significant |" in text
    assert "Not as preregistered" not in text
    assert frozen().sha256 in (tmp_path / "both" / "report.html").read_text("utf-8")


def test_what_is_missing_or_differs_is_named_and_nothing_is_decided(tmp_path: Path) -> None:
    second = piece(tmp_path / "b", first_seed=4, seeds=3, arms=("vanilla",))
    merge([piece(tmp_path / "a", seeds=4), second], tmp_path / "c")
    text = preregistered(tmp_path / "c")
    assert "**Not as preregistered:** rules lacks seed 4, 5; vanilla-seed6 was not preregistered." in text
    assert "| not complete |" in text
    assert "| significant" not in text
    frozen(measures=("final", "final/other")).save(tmp_path / "a" / NAME)
    assert "rules lacks seed 4, 5; final/other was not measured." in preregistered(tmp_path / "a")
    alone = piece(tmp_path / "d", arms=("rules",))
    (trial_folder(alone, "rules", 2) / "config.yaml").write_text("curator: {kind: rules, update_every: 3}\n", "utf-8")
    assert list(deviations(collect(alone), frozen())) == [
        "vanilla lacks all seeds",
        "rules-seed2 has curator.update_every 3 instead of 2",
    ]


def test_the_plan_of_a_folder_stays_as_it_is(tmp_path: Path, run_main: RunMain) -> None:
    out = piece(tmp_path / "first", seeds=4)
    said = run_main("compare", "--report", str(out), "--threshold", "30", code=2)
    assert "the preregistration has them; leave them out" in said
    other = piece(tmp_path / "other", first_seed=4, seeds=2)
    (other / NAME).unlink()
    assert "--merge: pieces have other preregistrations" in refusal(merge, [out, other], tmp_path / "both")
    assert preregistration_of(other) is None
    assert ComparisonManifest.read(out).threshold == 0.5
