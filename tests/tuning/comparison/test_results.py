"""Results of a comparison's folder: states of trials, the table, report, pictures and timeline, from run folders."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from envs.errors import SealError, UserError
from envs.interface import Interface
from seal_ray.report.files import log_path
from seal_ray.statistics import mean_estimate
from tests.seal_ray.report.run_folders import dialogue, log_of
from tests.seal_ray.report.test_page import Page
from tests.tuning.comparison.folders import (
    CUES,
    GUIDED,
    ROUNDS,
    constant,
    drawn,
    finished,
    growing,
    make_comparison,
    picked,
    play,
    report_of,
    table_rows,
)
from tuning.commands import compare as cli
from tuning.commands.shared import print_end
from tuning.comparison.collect import collect, trial_folder
from tuning.comparison.measures import AREA, FINAL, HINT_OFF, value_of
from tuning.comparison.page import PAGE, differing_tasks, flips_of
from tuning.comparison.report import CURVES, INTERFACES, LABELS, REPORT, TABLE, changes_of, short_table, write_results
from tuning.record import State, mark_failed, mark_started


@pytest.fixture(scope="module")
def partial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arms with three seeds: one trial failed, one was stopped, one has not started, and three are finished.

    Its results are written.
    """
    out = tmp_path_factory.mktemp("partial")
    make_comparison(out)
    for arm, seed, level in (("vanilla", 0, 0.2), ("vanilla", 1, 0.3), ("rules", 0, 0.4)):
        play(out, arm, seed, growing(level), shown={1: CUES, 5: GUIDED})
    play(out, "rules", 1, constant(0.5), rounds=5)
    mark_failed(trial_folder(out, "rules", 1), "TooManyFaults: rollouts: 9 of 16 dialogues | were lost")
    play(out, "vanilla", 2, constant(0.5), rounds=2)
    write_results(out)
    return out


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arms with two seeds, all finished, and the results."""
    out = finished(tmp_path_factory.mktemp("whole"), {"vanilla": (0.2, 0.3), "rules": (0.4, 0.6)}, growing)
    write_results(out)
    return out


def test_the_state_of_each_trial(partial: Path) -> None:
    found = {each.name: (each.state, each.rounds) for each in collect(partial).trials}
    assert found == {
        "vanilla-seed0": (State.FINISHED, 8),
        "vanilla-seed1": (State.FINISHED, 8),
        "vanilla-seed2": (State.UNFINISHED, 2),
        "rules-seed0": (State.FINISHED, 8),
        "rules-seed1": (State.FAILED, 5),
        "rules-seed2": (State.NOT_STARTED, 0),
    }


def test_a_failed_trial_that_is_started_again_is_no_longer_failed(tmp_path: Path) -> None:
    make_comparison(tmp_path)
    play(tmp_path, "rules", 1, constant(0.5), rounds=5)
    mark_failed(trial_folder(tmp_path, "rules", 1), "early")
    mark_started(trial_folder(tmp_path, "rules", 1))
    assert collect(tmp_path).arm_trials("rules")[1].state is State.UNFINISHED
    play(tmp_path, "rules", 1, constant(0.6))
    mark_failed(trial_folder(tmp_path, "rules", 1), "late")
    assert collect(tmp_path).arm_trials("rules")[1].state is State.FINISHED


def test_measures_of_a_trial(partial: Path) -> None:
    finished, stopped = collect(partial).arm_trials("vanilla")[0], collect(partial).arm_trials("vanilla")[2]
    assert value_of(finished, FINAL) == pytest.approx(0.2)
    assert value_of(finished, AREA) == pytest.approx(0.1)
    assert value_of(finished, HINT_OFF) == pytest.approx(0.2 * 7.5 / 8 / 2)
    assert [value_of(stopped, measure) for measure in (FINAL, AREA, HINT_OFF)] == [None] * 3


def test_the_table_has_every_trial_and_arm(partial: Path) -> None:
    rows = table_rows(partial)
    trial = picked(rows, arm="rules", seed="1", measure="final")
    assert (trial["state"], trial["rounds"], trial["value"]) == ("failed", "5", "")
    assert picked(rows, arm="vanilla", seed="0", measure="final/miss_func")["value"] == "0.100000"
    arm = picked(rows, arm="vanilla", seed="all", measure="final")
    estimate = mean_estimate([0.2, 0.3])
    assert arm["state"] == "2 of 3 finished"
    assert [float(arm[key]) for key in ("value", "low", "high", "seeds")] == pytest.approx(
        [estimate.mean, estimate.low, estimate.high, 2], abs=1e-6
    )
    assert (arm["difference"], arm["pairs"]) == ("", "0")
    other = picked(rows, arm="rules", seed="all", measure="final")
    assert (other["difference"], other["difference_low"], other["pairs"]) == ("0.200000", "", "1")
    assert {row["seed"] for row in rows} == {"0", "1", "2", "all"}


def test_the_report_names_what_is_missing_before_any_number(partial: Path) -> None:
    text = report_of(partial)
    before, result = text.split("## Result")
    assert "**1 failed after retries, and in no number below:** rules-seed1." in before
    assert "**1 not finished, and in no number below:** vanilla-seed2." in before
    assert "**1 not started, and in no number below:** rules-seed2." in before
    assert "can flatter it" in before
    assert "TooManyFaults: rollouts: 9 of 16 dialogues \\| were lost |" in result
    assert "+20.0 [n/a] points of final success over 1 pair; no interval from one pair" in result
    assert "nothing can be concluded" in result
    assert "| `curator.kind` | none | rules |" in result


def test_the_report_of_a_whole_comparison(whole: Path) -> None:
    text = report_of(whole)
    assert "in no number below" not in text
    assert "2 arms × 2 seeds, 8 rounds each; 4 of 4 trials are finished" in text
    assert (
        "**rules** − vanilla: +25.0 [-38.5, +88.5] points of final success over 2 pairs, seeds only; the interval "
        "contains 0: no evidence that either is better (p = 0.13, 0.13 after Holm's correction; "
        "sign-flip p = 0.5, 0.5)." in text
    )
    assert "2 pairs are few" in text
    assert re.search(r"\| rules \| 2 of 2 \| 50\.0 \[", text)
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (whole / link).exists(), link


def test_writing_again_writes_the_same(whole: Path) -> None:
    before = {name: (whole / name).read_bytes() for name in (TABLE, REPORT, CURVES, LABELS, INTERFACES, PAGE)}
    write_results(whole)
    assert before == {name: (whole / name).read_bytes() for name in before}
    assert {path.name for path in whole.iterdir()} == {*before, "comparison.yaml", "trials"}


def test_the_page_has_the_numbers_of_the_report_and_needs_nothing_else(whole: Path) -> None:
    source = (whole / PAGE).read_text("utf-8")
    page = Page(source)
    text = " ".join(" ".join(page.texts).split())
    for cell in (cell for row in short_table(collect(whole)) for cell in row):
        assert cell in text, cell
    for title in (
        "Evaluation without hints",
        "Final success",
        "Labels of turns",
        "Settings that differ",
        "curator.kind",
    ):
        assert title in text
    assert not page.tags & {"script", "img", "link", "iframe"}
    links = {value for name, value in page.attributes if name == "href"}
    assert all(link.startswith("#") or (whole / link).is_file() for link in links)
    assert len(source) < 1_000_000


def test_tasks_differ_by_the_mean_over_seeds(tmp_path: Path) -> None:
    make_comparison(tmp_path, seeds=2)
    for arm, levels in (("vanilla", (0.0, 0.0)), ("rules", (1.0, 0.5))):
        for seed, level in enumerate(levels):
            play(tmp_path, arm, seed, constant(level), solved=drawn({"base": 2 * level}, seed))
    tasks = differing_tasks(collect(tmp_path), "rules")
    gains = [ours - theirs for _, ours, theirs in tasks]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] > 0


def test_the_page_has_dialogues_of_tasks_that_flip(tmp_path: Path) -> None:
    make_comparison(tmp_path, seeds=2)
    for seed, (ours, theirs) in enumerate([(1, 1), (1, 0)]):
        for arm, outcome in (("vanilla", theirs), ("rules", ours)):
            play(tmp_path, arm, seed, constant(0), solved=drawn({"base": 9.0 * outcome}, 0, tasks=1))
            log = log_path(trial_folder(tmp_path, arm, seed), "evaluation", ROUNDS)
            log_of(log, [dialogue("base-0", bool(outcome))])
    write_results(tmp_path)
    (flips,) = [flips_of(collect(tmp_path), "rules")]
    assert flips.tasks == [("base-0", 1.0, 0.5)]
    ((left, right),) = [pair.chats for pair in flips.pairs]
    assert (left.title, right.title) == ("vanilla-seed1", "rules-seed1"), "in the other seed both solved it"
    text = " ".join((tmp_path / PAGE).read_text("utf-8").split())
    for part in (left.command, "seal-ray show . --task base-0", "vanilla on the left"):
        assert part in text


def test_nothing_started_is_reported_too(tmp_path: Path) -> None:
    make_comparison(tmp_path, arms=("vanilla", "fixed", "rules", "seal"))
    write_results(tmp_path)
    text = report_of(tmp_path)
    assert "0 of 12 trials are finished" in text
    assert "no finished seed in common yet" in text
    assert "Not started" not in text


def coloured(path: Path) -> int:
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    return int((np.ptp(pixels, axis=2) > 60).sum())


def test_pictures_show_the_arms(whole: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    make_comparison(empty)
    write_results(empty)
    for name in (CURVES, LABELS):
        assert coloured(whole / name) > 1000
        assert coloured(empty / name) == 0


def test_the_timeline_is_a_difference_where_something_changed(partial: Path) -> None:
    text = (partial / INTERFACES).read_text("utf-8")
    assert "### vanilla-seed0, vanilla-seed1" in text
    assert text.count("From round 1:") == 2
    assert "From round 5:\n\n```diff\n~ recovery feedback: none → class\n+ guideline: Call nothing" in text
    assert "### rules-seed1\n\nThe plain interface throughout." in text


def shown(*rounds: tuple[Interface, ...]) -> list[dict[str, Any]]:
    from envs.interface.json_form import interface_to_dict

    return [
        {"round": number, "interfaces": [{"id": "x", **interface_to_dict(each)} for each in interfaces]}
        for number, interfaces in enumerate(rounds, 1)
    ]


def test_timelines_of_going_back_to_plain_and_of_several_interfaces() -> None:
    plain = Interface.plain()
    assert changes_of(shown((plain,), (plain,))) == ()
    back = changes_of(shown((plain, CUES), (plain, CUES), (plain,)))
    assert back == ((1, ("+ cue required on every tool",)), (3, ("- cue required on every tool",)))
    (change,) = changes_of(shown((plain, CUES, GUIDED)))
    assert change[1][:2] == ("@@ interface 1 of 2 @@", "+ cue required on every tool")
    assert change[1][2] == "@@ interface 2 of 2 @@"


def test_the_command_lists_what_failed_and_ends_with_a_fault(partial: Path, whole: Path) -> None:
    console = Console(width=300, record=True, quiet=False, file=None)
    comparison = collect(partial)
    with console.capture() as said:
        cli.print_comparison(console, comparison)
        with pytest.raises(SealError, match=r"1 of 6 trials were given up \(rules-seed1\)") as raised:
            print_end(console, comparison)
    assert not isinstance(raised.value, UserError)
    text = said.get()
    assert "rules-seed1 is in no number: failed after 5 rounds: TooManyFaults" in text
    assert "vanilla-seed2 is in no number: unfinished after 2 rounds" in text
    assert "stopped; resume with: seal-ray compare --resume" in text
    with console.capture() as said:
        print_end(console, collect(whole))
    assert said.get() == ""
