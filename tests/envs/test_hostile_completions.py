"""Completions that attack the world: nothing they hold is executed, no verdict changes, no step takes 200 ms."""

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from envs.bfcl.tasks import get_task, load_tasks
from envs.dialects import DIALECTS, Dialect
from envs.dialogue import Dialogue, Protocol
from envs.task import Category, Task, ToolCall
from tests.envs.players import begun, results_shown
from tests.fuzz.attacks import EXPRESSIONS, MARK, written

LIMIT_S = 0.2
"""Seconds of one core. The costliest flood, 1,000 calls, takes 0.05 to 0.09 of them on an older CPU."""


FILES = get_task("base_0")
MATH = next(task for task in load_tasks().values() if "MathAPI" in task.classes)
ABSTAINING = next(
    task
    for task in load_tasks().values()
    if "GorillaFileSystem" in task.classes
    and task.category is Category.MISS_PARAM
    and task.turns[0].ground_truth
    and not task.turns[1].ground_truth
)
"""Here the state after the first turn is copied, because the second has to leave it as it is."""


def call(name: str, /, **arguments: object) -> ToolCall:
    return ToolCall(name, arguments)


REFUSED_NAMES = (
    "__init__", "__class__", "__reduce__", "__reduce_ex__", "__dict__", "__setattr__", "__delattr__", "__import__",
    "_load_scenario", "_current_dir", "_navigate_to_directory", "root", "long_context", "self.ls", "ls.__self__",
    "open", "exec", "eval", "compile", "print", "input", "setattr", "getattr", "globals", "vars", "help", "breakpoint",
    "ls()", "GorillaFileSystem.ls", "MathAPI.power.__globals__", "Verifier.end_turn", "Dialogue.success", "os.system",
    "kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run", "os.remove", "a.kill",
    "", ".", " ls", "cd\n", "сd", "lambda: 0", "\x00", "\ud800", "a." * 50_000, "(" * 50, "x" * 90_000,
)  # fmt: skip
REFUSED_ARGUMENTS: Sequence[dict[str, object]] = (
    {}, {"self": None}, {"obj": "Verifier", "name": "success", "value": True}, {"scenario": {}, "long_context": False},
    {"args": [1], "kwargs": {"a": 1}}, {"command": "touch MARK"}, {"file": MARK, "mode": "w"}, {"__class__": 1, "": 2},
)  # fmt: skip

LONG = 10**4000
MATH_BOMBS = (
    *(call("power", base=b, exponent=e) for b, e in ((9, 10**9), (2, 10**18), (-3, LONG), (LONG, 50), (2, -(10**9)))),
    *(call("power", base=b, exponent=e) for b, e in ((1.5, 1e308), (True, 10**9), (0, -1), (-8, 0.5), ("9", 10**9))),
    *(call("logarithm", value=10, base=2, precision=p) for p in (10**9, "1000000000", 1e9, 5_000, -(10**9), LONG)),
    *(call("logarithm", value=v, base=2, precision=10) for v in ("1e999999999", "1e-999999999", "9" * 4_000, "1/3")),
    *(call("logarithm", value=LONG, base=2, precision=p) for p in (10, True)),
    *(call("square_root", number=n, precision=p) for n, p in ((2, 10**9), (2, 1e9), (2, "9999999"), (LONG, 5_000))),
    *(call("square_root", number="2", precision=0), call("power", base=[2], exponent=3)),
    *(call("round_number", number=n, decimal_places=p) for n in (5, 5.5, LONG) for p in (-(10**9), 10**9, -LONG, LONG)),
    *(call(name, a=LONG, b=LONG) for name in ("add", "subtract", "multiply", "divide")),
    *(call(name, numbers=[LONG] * 20) for name in ("mean", "standard_deviation", "sum_values", "max_value")),
    *(call(name, numbers="9" * 50_000) for name in ("mean", "standard_deviation", "sum_values", "max_value")),
    call("si_unit_conversion", value=LONG, unit_in="km", unit_out="nm"),
    call("percentage", part=float("nan"), whole=float("inf")),
    call("absolute_value", number={"a": [float("-inf")]}),
)


def doubled(times: int, name: str) -> Sequence[ToolCall]:
    """Folders that hold each other twice over, so that 2^times paths lead down."""
    names = [f"{name}{level}" for level in range(times + 1)]
    steps = itertools.pairwise(names)
    return [
        call("mkdir", dir_name=names[0]),
        *(call(tool, source=old, destination=new) for old, new in steps for tool in ("cp", "mv")),
    ]


def chain(length: int) -> Sequence[ToolCall]:
    return [call(tool, **{key: "d"}) for _ in range(length) for tool, key in (("mkdir", "dir_name"), ("cd", "folder"))]


ITSELF = (call("mkdir", dir_name="a"), *[call(tool, source="a", destination="a") for tool in ("cp", "cp", "mv")])
WALKS = (call("find"), call("du"), call("du", human_readable=True), call("find", path="/" + "./" * 5_000, name="a"))
HOME = (call("cd", folder="/"), call("pwd"), call("cd", folder=".."), call("ls", a=True))
TREE_BOMBS: Sequence[Sequence[Sequence[ToolCall]]] = (
    *([doubled(times, "d"), WALKS, HOME, WALKS] for times in (5, 9, 10, 16, 40)),
    [doubled(12, "x" * 300), WALKS],
    *([chain(length), WALKS, HOME, WALKS] for length in (30, 70, 250, 450)),
    [ITSELF, WALKS, HOME, WALKS],
    [(*ITSELF[:2], call("cd", folder="a"), *WALKS, *HOME), WALKS],
)


def fill(part: str, size: int) -> str:
    return part * (size // len(part))


def block(text: str) -> str:
    return f"<tool_call>\n{text}\n</tool_call>"


MEGABYTE = 1_000_000
JSON_SIZE = 99_000
PYTHON_SIZE = 19_000
"""Just below the lengths beyond which nothing is parsed, where parsing costs most."""
FLOODS = (
    *(fill(part, MEGABYTE) for part in ("<tool_call>", "<tool_call>\n", "[", "[]", "-", "a.b.c.", "1+", "{", "(", '"')),
    *(fill(part, MEGABYTE) for part in ('{"name":', '{"name": "ls", "parameters": {}};', "ls(),", "lambda:", "f'{")),
    fill("\\", MEGABYTE),
    *(fill(part, JSON_SIZE) for part in (block("1"), "<tool_call>\n", "[]", "{}", "1;", '{"name": 1}')),
    *(f"[{fill(part, JSON_SIZE)}]" for part in ("1,", "{},", "[],")),
    *(block(fill(part, JSON_SIZE)) for part in ("[", "[]", '{"a":', "1", '"\\u0000', "[1,")),
    *(f"[{fill(part, PYTHON_SIZE)}]" for part in ("**a,", "[0]", "()", "a=1,", "'a',", "{a},", "\\d")),
    *(f"[f(a={fill(part, PYTHON_SIZE)}1)]" for part in ("1+", "-", "not ", "lambda: ", "1 if 1 else ", "a.", "1<")),
    "[f(a=" + fill("'a' ", PYTHON_SIZE) + "1)]",
    *(f"[f(a={part * 60}" for part in ("{", "{a:", "(", "[", "f(a=", "f(*", "{**", "(lambda:", "[a for a in ")),
    f"[f(a={'(yield ' * 60}",
    *(f"[{part * 1_000}]" for part in ("f(),", "f(1),", "ls(),", "cd(folder='x'),")),
    block('{"name": "f", "arguments": {}}') * 1_000,
    '{"name": "f", "parameters": {}}' * 1_000,
    f"[f(a=f'{'{a}' * 900}{'x' * 15_000}')]",
    f"[f{fill('()', PYTHON_SIZE)}]",
    f"[f({fill('a=1,', PYTHON_SIZE)})]",
)


def play(
    task: Task, dialect: Dialect, protocol: Protocol, attack: Sequence[str], *, truth: bool
) -> tuple[Dialogue, float]:
    """The dialogue with the attack after the first turn's calls (or alone, without `truth`), and its slowest step."""
    dialogue = begun(task, dialect=dialect, protocol=protocol)
    slowest = 0.0
    for index, turn in enumerate(task.turns):
        completions = [dialect.render_calls(turn.ground_truth)] if truth and turn.ground_truth else []
        for completion in (*completions, *(attack if index == 0 else ()), "Done."):
            if dialogue.over or dialogue.turn != index:
                break
            start = time.thread_time()
            dialogue.step(completion)
            slowest = max(slowest, time.thread_time() - start)
    assert dialogue.over
    return dialogue, slowest


def endured(task: Task, dialect: Dialect, protocol: Protocol, attack: Sequence[str], *, truth: bool) -> Dialogue:
    """As `play`, in time. A machine under load gets three tries."""
    tries = []
    for _ in range(3):
        dialogue, slowest = play(task, dialect, protocol, attack, truth=truth)
        tries.append(slowest)
        if slowest < LIMIT_S:
            return dialogue
    raise AssertionError(f"the slowest steps of three tries took {tries} seconds")


@pytest.fixture(scope="module")
def untouched() -> dict[Task, list[list[list[str]]]]:
    return {
        task: results_shown(play(task, DIALECTS["qwen"], Protocol.OFFICIAL, (), truth=True)[0])
        for task in (FILES, MATH, ABSTAINING)
    }


@pytest.fixture(autouse=True)
def nothing_is_left(
    untouched: dict[Task, list[list[list[str]]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """After every test here: no file was made, and fresh dialogues by the ground truth go exactly as before."""
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.rglob("*")) == []
    for task, results in untouched.items():
        dialogue, _ = play(task, DIALECTS["qwen"], Protocol.OFFICIAL, (), truth=True)
        assert dialogue.success
        assert results_shown(dialogue) == results


def check_that_nothing_happens(task: Task, dialect: Dialect, attack: str, marker: Path) -> None:
    attack = attack.replace(MARK, str(marker))
    for protocol in Protocol:
        beside = endured(task, dialect, protocol, [attack], truth=True)
        assert beside.success, (protocol, attack)
        assert all(turn.verdict.passed for turn in beside.diagnosis.turns)
        alone = endured(task, dialect, protocol, [attack], truth=False)
        assert not any(turn.verdict.passed for turn in alone.diagnosis.turns), (protocol, attack)
        assert not marker.exists(), (protocol, attack)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
@pytest.mark.parametrize("code", EXPRESSIONS, ids=lambda code: ascii(code)[:40])
def test_code_is_never_executed(dialect: Dialect, code: str, tmp_path: Path) -> None:
    for text in written(dialect, code):
        check_that_nothing_happens(FILES, dialect, text, tmp_path / "marker")


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
@pytest.mark.parametrize("task", [FILES, MATH], ids=lambda task: task.id)
def test_only_documented_tools_are_called(dialect: Dialect, task: Task, tmp_path: Path) -> None:
    for place, name in enumerate(REFUSED_NAMES):
        # Arguments do not decide whether a name is refused: the first name has all of them, each other one some.
        for arguments in REFUSED_ARGUMENTS[place % 4 :: 4] if place else REFUSED_ARGUMENTS:
            text = dialect.render_calls([ToolCall(name, arguments)])
            if not any(made.name in {"ls", "cd"} for made in dialect.parse(text).calls):  # `ls` may be meant after all
                check_that_nothing_happens(task, dialect, text, tmp_path / "marker")


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
def test_arguments_cannot_reach_the_simulator_itself(dialect: Dialect, tmp_path: Path) -> None:
    for arguments in REFUSED_ARGUMENTS[1:]:
        text = dialect.render_calls([ToolCall("cd", {"folder": "document", **arguments})])
        check_that_nothing_happens(FILES, dialect, text, tmp_path / "marker")


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
@pytest.mark.parametrize("bomb", MATH_BOMBS, ids=lambda bomb: str(bomb)[:40])
def test_costly_arithmetic_is_bounded(dialect: Dialect, bomb: ToolCall, tmp_path: Path) -> None:
    check_that_nothing_happens(MATH, dialect, dialect.render_calls([bomb]), tmp_path / "marker")


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("task", [FILES, ABSTAINING], ids=lambda task: task.id)
def test_endless_directory_trees_are_bounded(dialect: Dialect, protocol: Protocol, task: Task) -> None:
    for bomb in TREE_BOMBS:
        attack = [dialect.render_calls(calls) for calls in bomb]
        for truth in (True, False):
            dialogue = endured(task, dialect, protocol, attack, truth=truth)
            assert not dialogue.success
            made = [record for step in dialogue.trace.turns[0] for record in step.calls]
            assert sum(record.call.name in {"mkdir", "cp"} and not record.is_error for record in made) >= 2
            assert sum(len(record.result) for record in made) < 4_000_000


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: f"{len(flood)} {ascii(flood)[:30]}")
def test_floods_are_read_in_time(dialect: Dialect, flood: str, tmp_path: Path) -> None:
    check_that_nothing_happens(FILES, dialect, flood, tmp_path / "marker")
