"""Completions that attack the world: nothing they hold is executed, no verdict changes, no step takes 200 ms."""

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from envs.bfcl.tasks import get_task, load_tasks
from envs.dialects import DIALECTS, Dialect
from envs.dialogue import Dialogue, Protocol
from envs.task import Category, Task, ToolCall
from tests.envs.players import begun, play_ground_truth, records, results_shown
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
    "__init__", "__class__", "__reduce_ex__", "__dict__", "__setattr__", "__import__", "_load_scenario", "_current_dir",
    "root", "long_context", "self.ls", "ls.__self__", "open", "exec", "eval", "print", "setattr", "globals", "ls()",
    "GorillaFileSystem.ls", "MathAPI.power.__globals__", "Verifier.end_turn", "Dialogue.success", "os.system", "kill",
    "exit", "remove", "popen", "run", "os.remove", "a.kill", "", ".", " ls", "cd\n", "сd", "lambda: 0", "\x00",
    "\ud800",    "a." * 50_000, "(" * 50, "x" * 90_000,
)  # fmt: skip
REFUSED_ARGUMENTS: Sequence[dict[str, object]] = (
    {}, {"self": None}, {"obj": "Verifier", "name": "success", "value": True}, {"scenario": {}, "long_context": False},
    {"args": [1], "kwargs": {"a": 1}}, {"command": "touch MARK"}, {"file": MARK, "mode": "w"}, {"__class__": 1, "": 2},
)  # fmt: skip

LONG = 10**4000
MATH_BOMBS = (
    *(call("power", base=b, exponent=e) for b, e in ((9, 10**9), (-3, LONG), (LONG, 50), (2, -(10**9)), (1.5, 1e308))),
    *(call("power", base=b, exponent=e) for b, e in ((True, 10**9), (0, -1), (-8, 0.5), ("9", 10**9), ([2], 3))),
    *(call("logarithm", value=10, base=2, precision=p) for p in (10**9, "1000000000", 1e9, 5_000, -(10**9), LONG)),
    *(call("logarithm", value=v, base=2, precision=10) for v in ("1e999999999", "1e-999999999", "9" * 4_000, LONG)),
    *(call("square_root", number=n, precision=p) for n, p in ((2, 10**9), (2, "9999999"), (LONG, 5_000), ("2", 0))),
    *(call("round_number", number=n, decimal_places=p) for n in (5.5, LONG) for p in (-(10**9), 10**9, -LONG, LONG)),
    *(call(name, a=LONG, b=LONG) for name in ("add", "subtract", "multiply", "divide")),
    *(
        call(name, numbers=n)
        for name in ("mean", "standard_deviation", "max_value")
        for n in ([LONG] * 20, "9" * 50_000)
    ),
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
    *([doubled(times, "d"), WALKS, HOME, WALKS] for times in (9, 40)),
    [doubled(12, "x" * 300), WALKS],
    *([chain(length), WALKS, HOME, WALKS] for length in (70, 450)),
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
    *(fill(part, MEGABYTE) for part in ("<tool_call>", "<tool_call>\n", "[", "-", "a.b.c.", "{", "(", '"', "\\")),
    *(fill(part, MEGABYTE) for part in ('{"name": "ls", "parameters": {}};', "ls(),", "lambda:", "f'{")),
    *(fill(part, JSON_SIZE) for part in (block("1"), "<tool_call>\n", "[]", "{}", "1;", '{"name": 1}')),
    *(f"[{fill(part, JSON_SIZE)}]" for part in ("1,", "{},", "[],")),
    *(block(fill(part, JSON_SIZE)) for part in ("[", "[]", '{"a":', "1", '"\\u0000', "[1,")),
    *(f"[{fill(part, PYTHON_SIZE)}]" for part in ("**a,", "[0]", "()", "a=1,", "'a',", "{a},", "\\d", "f()")),
    *(f"[f(a={fill(part, PYTHON_SIZE)}1)]" for part in ("1+", "-", "not ", "lambda: ", "1 if 1 else ", "a.", "'a' ")),
    *(f"[f(a={part * 60}" for part in ("{", "{a:", "(", "[", "f(a=", "{**", "(lambda:", "[a for a in ", "(yield ")),
    *(f"[{part * 1_000}]" for part in ("f(1),", "cd(folder='x'),")),
    block('{"name": "f", "arguments": {}}') * 1_000,
    '{"name": "f", "parameters": {}}' * 1_000,
    f"[f(a=f'{'{a}' * 900}{'x' * 15_000}')]",
    f"[f({fill('a=1,', PYTHON_SIZE)})]",
)


def play(task: Task, dialect: Dialect, protocol: Protocol, attack: Sequence[str], *, truth: bool) -> Dialogue:
    """The dialogue with the attack after the first turn's calls, or alone; a slow machine gets three tries."""
    slowest = []
    for _ in range(3):
        dialogue, took = begun(task, dialect=dialect, protocol=protocol), 0.0
        for index, turn in enumerate(task.turns):
            completions = [dialect.render_calls(turn.ground_truth)] if truth and turn.ground_truth else []
            for completion in (*completions, *(attack if index == 0 else ()), "Done."):
                if dialogue.over or dialogue.turn != index:
                    break
                start = time.thread_time()
                dialogue.step(completion)
                took = max(took, time.thread_time() - start)
        assert dialogue.over
        slowest.append(took)
        if took < LIMIT_S:
            return dialogue
    raise AssertionError(f"the slowest steps of three tries took {slowest} seconds")


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After every test here: no file was made, and fresh dialogues by the ground truth go exactly as before."""
    monkeypatch.chdir(tmp_path)
    before = [results_shown(play_ground_truth(task)) for task in (FILES, MATH, ABSTAINING)]
    yield
    assert list(tmp_path.rglob("*")) == []
    dialogues = [play_ground_truth(task) for task in (FILES, MATH, ABSTAINING)]
    assert all(dialogue.success for dialogue in dialogues)
    assert [results_shown(dialogue) for dialogue in dialogues] == before


EACH_DIALECT = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))


def check_that_nothing_happens(task: Task, dialect: Dialect, attacks: Iterable[str]) -> None:
    """Each attack under one protocol, in turn: verdicts are those without it, and no marker was made."""
    marker = Path("marker").absolute()
    for attack, protocol in zip(attacks, itertools.cycle(Protocol), strict=False):
        attack = attack.replace(MARK, str(marker))
        beside = play(task, dialect, protocol, [attack], truth=True)
        assert beside.success, (protocol, attack)
        assert all(turn.verdict.passed for turn in beside.diagnosis.turns)
        alone = play(task, dialect, protocol, [attack], truth=False)
        assert not any(turn.verdict.passed for turn in alone.diagnosis.turns), (protocol, attack)
        assert not marker.exists(), (protocol, attack)


@EACH_DIALECT
def test_code_is_never_executed(dialect: Dialect) -> None:
    check_that_nothing_happens(FILES, dialect, (text for code in EXPRESSIONS for text in written(dialect, code)))


@EACH_DIALECT
@pytest.mark.parametrize("task", [FILES, MATH], ids=lambda task: task.id)
def test_only_documented_tools_are_called_and_their_arguments_reach_no_simulator(dialect: Dialect, task: Task) -> None:
    # Arguments do not decide whether a name is refused: the first name has all of them, each other one some.
    calls = [ToolCall(REFUSED_NAMES[0], arguments) for arguments in REFUSED_ARGUMENTS]
    for place, name in enumerate(REFUSED_NAMES[1:]):
        calls += [ToolCall(name, arguments) for arguments in REFUSED_ARGUMENTS[place % 4 :: 4]]
    said = [dialect.render_calls([each]) for each in calls]
    # `ls` may be meant after all.
    attacks = [text for text in said if not any(made.name in {"ls", "cd"} for made in dialect.parse(text).calls)]
    assert len(attacks) > 80
    if task is FILES:
        wrong = [ToolCall("cd", {"folder": "document", **arguments}) for arguments in REFUSED_ARGUMENTS[1:]]
        attacks += [dialect.render_calls([each]) for each in wrong]
    check_that_nothing_happens(task, dialect, attacks)


@EACH_DIALECT
def test_costly_arithmetic_is_bounded(dialect: Dialect) -> None:
    check_that_nothing_happens(MATH, dialect, (dialect.render_calls([bomb]) for bomb in MATH_BOMBS))


@EACH_DIALECT
@pytest.mark.parametrize("task", [FILES, ABSTAINING], ids=lambda task: task.id)
def test_endless_directory_trees_are_bounded(dialect: Dialect, task: Task) -> None:
    plays = itertools.product(TREE_BOMBS, (True, False))
    for (bomb, truth), protocol in zip(plays, itertools.cycle(Protocol), strict=False):
        dialogue = play(task, dialect, protocol, [dialect.render_calls(calls) for calls in bomb], truth=truth)
        assert not dialogue.success
        made = records(dialogue)
        assert sum(record.call.name in {"mkdir", "cp"} and not record.is_error for record in made) >= 2
        assert sum(len(record.result) for record in made) < 4_000_000


@EACH_DIALECT
def test_floods_are_read_in_time(dialect: Dialect) -> None:
    check_that_nothing_happens(FILES, dialect, FLOODS)
