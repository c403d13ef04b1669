"""The panel on a pseudo-terminal: its rows, resizing, and a clean screen after interrupts and errors."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import PROGRAM
from tests.seal_ray.test_train import SMALL
from tests.terminal import Screen, Terminal
from tests.tuning.comparison.folders import make_comparison

START = """
import signal, sys, time
from seal_ray.cli.console import make_console, print_line
from seal_ray.cli.options import progress
from seal_ray.cli.panel import live_panel, sparkline
from seal_ray.cli.train import TrainingProgress
from seal_ray.statistics import wilson
console = make_console()
def requested(*_):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print_line(console, "stopping after this round")
"""
TRAINING = """
signal.signal(signal.SIGINT, requested)
print_line(console, "before")
try:
    with live_panel(console) as panel:
        training = TrainingProgress(console, 30, panel)
        for number in range(13):
            metrics = {
                "round": float(number), "solver/success": 0.5, "solver/success_plain": number / 12,
                "solver/groups": 8.0, "solver/groups_kept": 6.0, "interface/guidelines": 3.0,
                "diagnosis/share/state_mismatch": 0.25, "perf/round_seconds": 1.0, "perf/rollout_seconds": 0.5,
                "perf/learn_seconds": 0.25, "perf/tokens_per_second": 100.0, "perf/engine_restarts": 1.0,
            }
            if number == 9:
                metrics |= {"curator/promoted": 1.0, "perf/checkpoint_seconds": 1.0, "evaluation/success": 0.5}
            training.show(metrics)
        sys.stdout.write("of a library\\n")
        END
except (KeyboardInterrupt, ZeroDivisionError) as error:
    print_line(console, type(error).__name__)
print_line(console, "after")
"""
ENDS = {"interrupted": "time.sleep(60); time.sleep(60)", "failed": "time.sleep(1.5); 1 / 0"}
PANEL = [
    "████████░░░░░░░░░░░░ rounds: 12 of 30, ",
    "plain      ▁▂▃▃▄▅▅▆▇▇██ 100 % success",
    "shown      ············ – success",
    "groups     6 of 8 teach",
    "failures   turns 25 % state_mismatch",
    "interface  3 guidelines",
    "event      round 9: another interface was promoted",
]
ABOVE = ["before", "  evaluation, plain interface: 50 % success", "of a library"]


def begins(lines: list[str], starts: list[str]) -> bool:
    """Whether lines with these beginnings follow each other, with others between them."""
    rest = iter(lines)
    return all(any(line.startswith(start) for line in rest) for start in starts)


def complete(screen: Screen) -> bool:
    return begins(screen.text.splitlines(), ABOVE + PANEL) and not screen.cursor


@pytest.mark.parametrize(
    ("end", "columns", "later"), [("interrupted", 80, 120), ("failed", 120, 80), ("failed", 80, 50)]
)
def test_the_panel_follows_the_terminal_and_leaves_it_clean(end: str, columns: int, later: int) -> None:
    with Terminal(sys.executable, "-c", START + TRAINING.replace("END", ENDS[end]), columns=columns) as terminal:
        terminal.wait_for(complete)
        terminal.resize(later)
        if end == "interrupted":
            terminal.type("\x03")
            terminal.wait_for(lambda screen: "stopping after this round" in screen.text)
            terminal.wait_for(lambda screen: screen.text.count("event ") == 1)
            terminal.type("\x03")
        assert terminal.finish() == 0
        screen = terminal.screen
    assert (screen.cursor, screen.unknown) == (True, [])
    said = screen.text.splitlines()
    assert said[-2:] == ["KeyboardInterrupt" if end == "interrupted" else "ZeroDivisionError", "after"]
    assert begins(said, ABOVE) or later < 80, "a terminal narrower than the panel is drawn anew"
    assert not [line for line in said if "█" in line or line.startswith(("plain", "groups", "failures", "event"))]


@pytest.mark.long
@pytest.mark.only_by(target="long")
def test_training_in_a_terminal_shows_its_rounds_and_stops_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a cluster of its own, whose processes get no Ctrl-C of the terminal."""
    monkeypatch.setenv("RAY_ADDRESS", "local")
    settings = (*SMALL, "engine.kind=transformers", "env_runners.num_env_runners=0")
    with Terminal(*PROGRAM, "train", *settings, "--runs", str(tmp_path), "--name", "a", "--wandb", "off") as terminal:
        terminal.wait_for(lambda screen: "rounds: 1 of 6" in screen.text, 200)
        for columns in (120, 80):
            terminal.resize(columns)
            terminal.wait_for(lambda screen: screen.text.count("event  ") == 1)
        terminal.type("\x03")
        assert terminal.finish(200) == 0
        screen = terminal.screen
    said = screen.text.replace("\n", "")
    assert (screen.cursor, screen.unknown) == (True, [])
    assert "stopping after this round, with a checkpoint; interrupt again to stop at once" in said
    assert re.search(rf"stopped after round [1-5]; resume with: seal-ray train --resume {tmp_path}/a", said)
    assert f"report: {tmp_path}/a/report.html" in said
    assert not [line for line in screen.text.splitlines() if "█" in line or line.startswith(("plain ", "event "))]


def test_a_comparison_shows_every_running_trial_and_totals(tmp_path: Path) -> None:
    make_comparison(tmp_path / "run", ("vanilla", "coevolved-varied-frozen-2"))
    program = f"""
from pathlib import Path
from tests.tuning.comparison.folders import constant, play
from tuning.commands.shared import event_printer
from tuning.comparison.collect import collect
from tuning.running import TrialEvent, TrialEventKind as Kind
folder = Path({str(tmp_path / "run")!r})
metrics = {{"round": 2.0, "solver/success": 0.5, "perf/round_seconds": 3.0}}
with live_panel(console) as panel:
    on_event = event_printer(console, lambda: collect(folder), panel=panel)
    for name in ("vanilla-seed0", "coevolved-varied-frozen-2-seed1", "vanilla-seed2"):
        on_event(TrialEvent(Kind.STARTED, name))
    play(folder, "vanilla", 0, constant(0.5))
    play(folder, "coevolved-varied-frozen-2", 1, constant(0.5), rounds=2)
    on_event(TrialEvent(Kind.ENDED, "vanilla-seed0"))
    on_event(TrialEvent(Kind.RETRIED, "vanilla-seed2", error="it died"))
    on_event(TrialEvent(Kind.ROUND, "coevolved-varied-frozen-2-seed1", metrics))
    time.sleep(60)
"""
    with Terminal(sys.executable, "-c", START + program) as terminal:
        terminal.wait_for(lambda screen: "round 2" in screen.text, 120)
        said = terminal.screen.text.splitlines()
    assert said[:2] == ["vanilla-seed0: finished", "vanilla-seed2: failed (it died); resuming from its last checkpoint"]
    assert said[2].startswith("████░░░░░░░░░░░░░░░░ rounds: 10 of 48, ")
    assert said[3:] == [
        "all        1 of 6 trials done, 2 running",
        "coevolved-varied-frozen-2-seed1 round 2: success 50 % (plain –, shown –); 3 s",
        "vanilla-seed2 retried",
    ]


def test_an_evaluation_shows_its_pace_and_success_and_hostile_text_harmlessly() -> None:
    program = """
with progress(console) as update:
    update("starting the engine", 0, 400, "")
    for done in range(1, 101):
        update("dialogues", done, 400, "100 tokens/s \\x1b[2J\\x1b]0;title", wilson(0.25, done))
        time.sleep(0.01)
    time.sleep(60)
"""
    with Terminal(sys.executable, "-c", START + program) as terminal:
        terminal.wait_for(lambda screen: "interval 17.5 to 34.3 %" in screen.text)
        bar, success, now = terminal.screen.text.splitlines()
    assert bar.startswith("█████░░░░░░░░░░░░░░░ dialogues: 100 of 400, ")
    assert bar.endswith(" left")
    assert (success, now) == (
        "success    25.0%, 95 % interval 17.5 to 34.3 %",
        r"now        100 tokens/s \x1b[2J\x1b]0;title",
    )


def test_without_a_terminal_there_are_lines_only() -> None:
    program = START + TRAINING.replace("END", "1 / 0")
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "\x1b" not in said
    lines = said.splitlines()
    assert begins(
        lines, ["before", "round 1/30: success 50 % (plain 8 %, shown –), turns 25 % state_mismatch, ", "after"]
    )
    assert sum(line.startswith("round ") for line in lines) == 12
