"""Logs of dialogues: complete, compact, readable while a run is written, and harmless in a terminal."""

import json
import math
import multiprocessing
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import pytest

from envs.dialogue import Protocol
from envs.interface import Interface
from envs.interface.show import HINT
from envs.interface.value import RecoveryLevel
from envs.task import ToolCall
from policies.plain_view import NoView, plain_view
from policies.trajectory import Trajectory
from seal_ray.cli.dialogues import show
from seal_ray.report.dialogues import TOKENS, dialogue_sample
from seal_ray.report.inspect_log import SUCCESS, Logged, LoggedSample, read_samples, write_log
from seal_ray.report.page import write_page
from seal_ray.rollout.types import Arm, Group, GroupPlan, Member
from seal_ray.run.round_log import write_round_log
from seal_ray.training.rows import RowWeight
from tests.command_line import RunMain
from tests.policies.plain_views import WIDE, forms, play, random_case
from tests.policies.test_plain_view import FORM, TASK, TASKS, solution
from tests.seal_ray.inspect_reader import read_by_inspect
from tests.seal_ray.report.run_folders import make_run

ADVICE = "Finish all parts of a request."
ARM = Arm(Interface(recovery=RecoveryLevel.CLASS, guidelines=(ADVICE,)))
UNKNOWN = FORM.dialect.render_calls([ToolCall("no_such_tool", {"numbers": [1, 2], "huge": 10**60, "one": 1})])
HOSTILE = "\x1b[2J\x1b]0;title\x07<script>alert(1)</script>\u202e\u2066 \x9b31m\r" + "x" * 1_000_000


def group_of(*trajectories: tuple[Trajectory, Arm]) -> Group:
    """A group with these members; a plain view is taken of each, if it is of the task."""
    seeds = tuple(each.seed for each, _ in trajectories)
    plan = GroupPlan(3, TASK.id, str(TASK.category), ARM, Protocol.SEAL, seeds, 1.0)
    members = []
    for each, arm in trajectories:
        own = each.task == TASK.id
        view = plain_view(each, TASK, FORM, WIDE) if own and not arm.plain else None
        members.append(Member(arm, each, view, each.reward if own else math.nan))  # unscored, as in evaluations
    return Group(plan, tuple(members))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with the log of a round: one success on the plain interface and two dialogues under an arm."""
    (tmp_path / "logs").mkdir()
    plain = Arm(Interface.plain())
    members = [
        (play(TASK, FORM, solution(TASK), interface=plain.interface, seed=1), plain),
        (play(TASK, FORM, [UNKNOWN, *solution(TASK)], interface=ARM.interface, seed=2), ARM),
        (play(TASK, FORM, [f"I was told: {ADVICE}", HOSTILE], interface=ARM.interface, seed=3), ARM),
    ]
    path = tmp_path / "logs" / "round_000004.eval"
    weights = {1: RowWeight(-0.5, 1.25)}
    write_round_log(path, [group_of(*members)], task="round 4", model="tiny", sources=(), weighted=weights)
    return tmp_path


def by_seed(run: Path) -> dict[str, LoggedSample]:
    return {str(each.metadata["seed"]): each for each in read_samples(run / "logs" / "round_000004.eval")}


def test_a_log_has_what_was_shown_said_and_judged(run: Path) -> None:
    samples = by_seed(run)
    plain, guided, told = samples["1"], samples["2"], samples["3"]
    said = [(each.role, each.content) for each in plain.messages]
    assert [text for role, text in said if role == "user"] == [turn.user for turn in TASK.turns]
    assert [text for role, text in said if role == "assistant"] == [*solution(TASK)]
    assert plain.metadata["tools"] == {tool.name: tool.document["description"] for tool in TASK.tools}
    scores = {name: score.value for name, score in plain.scores.items()}
    assert scores == {"success": "C", "label": "pass", "reward": 1.0, "advantage": -0.5, "weight": 1.25}
    assert [each.metadata.get("arm") for each in (plain, guided)] == ["plain", ARM.id]
    views = [None, "plain view", f"no plain view: {NoView.CRUTCH_QUOTE}"]
    assert [each.metadata["view"] for each in (plain, guided, told)] == views
    assert "advantage" not in guided.scores, "it gave no row"

    cues = [str((each.metadata or {}).get("cue", "")) for each in guided.messages]
    assert [each.role for each, cue in zip(guided.messages, cues, strict=True) if cue] == ["system", "tool"]
    assert ADVICE in cues[0]
    error = guided.messages[3]
    assert re.fullmatch(rf"\[ERROR\] The tool 'no_such_tool' is not available\.\n\{HINT[:-1]}\] .*", error.content)
    assert error.content.endswith(cues[3])
    explained = str(plain.scores[SUCCESS].explanation).split("\n")
    assert len(explained) == len(TASK.turns)
    for line, turn in zip(explained, TASK.turns, strict=True):
        assert line.endswith("; ".join(map(str, turn.ground_truth)) or "no call")


def test_inspect_reads_a_run_that_is_being_written_and_an_evaluation(run: Path, run_main: RunMain) -> None:
    read: list[dict[str, Any]] = []
    played = play(TASK, FORM, solution(TASK), interface=Interface.plain())

    def logged() -> Iterator[Logged]:
        yield from [(dialogue_sample(played.to_dict(), model="tiny"), None)] * 20
        assert (run / "logs" / "round_000005.eval.new").stat().st_size
        read.extend(read_by_inspect(run).values())
        assert run_main("show", str(run), "--json").count("\n") == 3

    write_log(run / "logs" / "round_000005.eval", logged(), task="round 5", model="tiny", scorer=SUCCESS)
    (log,) = read
    assert (log["samples"], log["status"], log["accuracy"]) == (3, "success", 2 / 3)
    assert f"+ guideline: {ADVICE}" in log["metadata"]["arms"][ARM.id]
    (calls,) = [each["calls"] for each in log["dialogues"] if each["metadata"]["seed"] == "2"]
    assert calls[0] == ["no_such_tool", {"numbers": "[1, 2]", "huge": str(10**60), "one": 1}]
    told = next(each for each in log["dialogues"] if each["metadata"]["seed"] == "3")
    assert any("<script>" in text and "\x1b[2J" in text for _, text in told["messages"]), "it is the model's words"
    said = run_main("evaluate", "tiny", "--limit", "2", "--engine", "transformers", "--out", str(run / "out"))
    assert "dialogues and summary" in said
    (log,) = read_by_inspect(run / "out").values()
    assert (log["samples"], log["model"]) == (2, "tiny")
    assert {role for each in log["dialogues"] for role, _ in each["messages"]} >= {"user", "assistant"}


_REWRITE = """
import sys
from inspect_ai.log import read_eval_log, write_eval_log
from inspect_ai.model import ContentReasoning, ContentText
log = read_eval_log(sys.argv[1])
log.samples[0].id, log.samples[0].scores, log.samples[0].metadata = 7, None, {}
log.samples[0].messages[0].content = [ContentText(text="\\x1b[2J"), ContentReasoning(reasoning="a thought")]
write_eval_log(log, sys.argv[2])
"""


def test_logs_that_inspect_writes_are_shown(run: Path, run_main: RunMain) -> None:
    """As those of τ²-bench: in another compression, with texts in blocks, and without fields of ours."""
    ours, theirs = run / "logs" / "round_000004.eval", run / "theirs" / "round_000004.eval"
    theirs.parent.mkdir()
    subprocess.run([sys.executable, "-c", _REWRITE, ours, theirs], check=True)
    shown, expected = (run_main("show", str(path.parent)) for path in (theirs, ours))
    assert shown.startswith("round_000004 · 7\nsystem  \\x1b[2J\na thought\n")
    assert shown.partition(f"\nround_000004 · {TASK.id}")[2] == expected.split(f"\nround_000004 · {TASK.id}", 1)[1]
    assert run_main("show", str(theirs.parent), "--label", "pass").count("round_000004 · ") == 1


def memory_growth(work: Callable[[], object]) -> float:
    """The largest growth of resident memory in MiB while a forked process does this."""

    def measured() -> None:
        before = getrusage(RUSAGE_SELF).ru_maxrss
        work()
        sender.send((getrusage(RUSAGE_SELF).ru_maxrss - before) / 2**10)

    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=measured)
    process.start()
    process.join()
    assert process.exitcode == 0
    return float(receiver.recv())


def test_a_log_of_4000_dialogues_is_small_and_never_held_in_memory(tmp_path: Path, run_main: RunMain) -> None:
    rows = [play(each, forms()["tiny"], solution(each), interface=Interface.plain()).to_dict() for each in TASKS]
    run = make_run(tmp_path / "run")

    def write(size: int) -> None:
        played = islice(cycle(zip(rows, TASKS, strict=True)), size)
        logged = (
            ({**dialogue_sample(row, task, model="tiny"), "id": f"task {n}"}, {key: row[key] for key in TOKENS})
            for n, (row, task) in enumerate(played)
        )
        write_log(run.log_of("round", 4), logged, task="round 4", model="tiny", scorer=SUCCESS)

    few = memory_growth(partial(write, 500))
    assert memory_growth(partial(write, 4_000)) - few < 16
    assert run.log_of("round", 4).stat().st_size < 3000 * 4_000
    assert memory_growth(partial(show, run.path, task="task 3999")) < 40
    assert json.loads(run_main("show", str(run.path), "--task", "task 3999", "--json"))["id"] == "task 3999"
    started = time.process_time()
    write_page(run)
    assert time.process_time() - started < 20
    assert run.page.stat().st_size < 20_000_000


FILTERS: dict[tuple[str, ...], set[str]] = {
    (): {"1", "2", "3"},
    ("--round", "4"): {"1", "2", "3"},
    ("--task", TASK.id, "--arm", "plain"): {"1"},
    ("--arm", ARM.id): {"2", "3"},
    ("--label", "pass"): {"1", "2"},
    ("--failed",): {"3"},
}


@pytest.mark.parametrize("options", FILTERS)
def test_options_choose_dialogues(run: Path, run_main: RunMain, options: tuple[str, ...]) -> None:
    rows = [json.loads(line) for line in run_main("show", str(run), *options, "--json").splitlines()]
    assert {row["metadata"]["seed"] for row in rows} == FILTERS[options]
    assert {row["log"] for row in rows} == {"logs/round_000004"}
    said = run_main("show", str(run), *options)
    assert said.count("logs/round_000004 · ") == said.count(f"tools   {TASK.tools[0].name}, ") == len(rows)


def test_hostile_text_is_shown_harmlessly(run: Path, run_main: RunMain, monkeypatch: pytest.MonkeyPatch) -> None:
    trajectories = [random_case(7, number).trajectory for number in range(60)]
    group = group_of(*((each, ARM) for each in trajectories))
    write_round_log(run / "logs" / "round_000005.eval", [group], task="round 5", model="tiny", sources=())
    samples = list(read_samples(run / "logs" / "round_000005.eval"))
    assert [each.scores["reward"].value for each in samples] == [each.reward for each in trajectories]
    for colours in ("", "1"):
        monkeypatch.setenv("FORCE_COLOR", colours)
        said = run_main("show", str(run))
        assert said.count("logs/round_00000") == 63
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", said)
        assert "\\x1b[2J" in said
        assert max(map(len, said.split("\n"))) < 50_000
    assert all(line.isascii() for line in run_main("show", str(run), "--json").splitlines())


def packed(path: Path, content: bytes, kind: int = zipfile.ZIP_DEFLATED) -> Path:
    import_module("zipfile_zstd")  # compression 93
    with zipfile.ZipFile(path, "w", kind) as log:
        log.writestr("samples/a_epoch_1.json", content)
    return path


SAMPLE = json.dumps({"id": "a", "messages": [], "scores": {}}).encode()
BROKEN: dict[str, tuple[Any, str]] = {
    "nothing": (lambda path: None, "holds no log of dialogues"),
    "no archive": (lambda path: path.write_bytes(b"PK"), "is no log of dialogues"),
    "a bomb": (lambda path: packed(path, b" " * 200_000_000), "is larger than"),
    "a bomb of Inspect's": (lambda path: packed(path, b" " * 200_000_000, 93), "is larger than"),
    "another compression": (lambda path: packed(path, SAMPLE, zipfile.ZIP_BZIP2), "compressed in another way"),
    "no JSON": (lambda path: packed(path, b"{"), "is no log of dialogues"),
    "no sample": (lambda path: packed(path, b'{"name": 1}'), "it is no log of dialogues: id"),
    "a link": (lambda path: path.symlink_to(packed(path.with_suffix(".zip"), SAMPLE)), "is a link"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_log_is_one_sentence(tmp_path: Path, run_main: RunMain, name: str) -> None:
    make, sentence = BROKEN[name]
    make(tmp_path / "round_000001.eval")
    assert sentence in run_main("show", str(tmp_path), code=2)


def test_a_mistake_is_one_sentence(run: Path, run_main: RunMain) -> None:
    for option, value, sentence in (
        ("--label", "pas", "--label: 'pas' is not known"),
        ("--round", "9", "--round: 9 has no log"),
        ("--task", "none", "no dialogue"),
    ):
        assert sentence in run_main("show", str(run), option, value, code=2)
