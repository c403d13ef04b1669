"""Our judgement of calls against the official evaluator's, on every ground truth and on perturbed calls.

    python -m tests.bench.apibank_parity [N]

N perturbed calls a ground truth, 6 by default. Prints a table of the differences by their reasons.
"""

import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.apibank.data import read_dialogues, read_tools, recorded_results, typed
from envs.apibank.simulators import ApiSimulators, Recorded
from envs.task import ToolCall
from tests.bench.asking import Asked
from tests.envs.apibank.folder import FOLDER

Arguments = dict[str, Any]
Change = Callable[[Arguments, random.Random, Sequence[Recorded]], Arguments | ToolCall | None]
"""Gives other arguments, another call, or None where it cannot be done to these."""


def one(arguments: Arguments, rng: random.Random, change: Callable[[Any], Any]) -> Arguments | None:
    """One argument changed."""
    if not arguments:
        return None
    name = rng.choice(sorted(arguments))
    return {**arguments, name: change(arguments[name])}


def without(arguments: Arguments, rng: random.Random, _: Sequence[Recorded]) -> Arguments | None:
    if not arguments:
        return None
    name = rng.choice(sorted(arguments))
    return {key: value for key, value in arguments.items() if key != name}


def renamed(arguments: Arguments, rng: random.Random, _: Sequence[Recorded]) -> Arguments | None:
    if not arguments:
        return None
    name = rng.choice(sorted(arguments))
    return {(f"{key}_x" if key == name else key): value for key, value in arguments.items()}


def swapped(arguments: Arguments, rng: random.Random, _: Sequence[Recorded]) -> Arguments | None:
    if len(arguments) < 2:
        return None
    left, right = rng.sample(sorted(arguments), 2)
    return {**arguments, left: arguments[right], right: arguments[left]}


def borrowed(arguments: Arguments, rng: random.Random, others: Sequence[Recorded]) -> Arguments | None:
    """The arguments of another recorded call of the same API."""
    return dict(rng.choice(others).call.arguments) if others else None


def mixed(arguments: Arguments, rng: random.Random, others: Sequence[Recorded]) -> Arguments | None:
    """One argument of another recorded call of the same API."""
    if not others or not arguments:
        return None
    name = rng.choice(sorted(arguments))
    return {**arguments, name: rng.choice(others).call.arguments.get(name, arguments[name])}


CHANGES: Mapping[str, Change] = {
    "the same": lambda arguments, _rng, _others: dict(arguments),
    "an argument less": without,
    "an argument renamed": renamed,
    "two values swapped": swapped,
    "another call's arguments": borrowed,
    "another call's argument": mixed,
    "an argument more": lambda arguments, _rng, _others: {**arguments, "more": "x"},
    "a character more": lambda a, rng, _: one(a, rng, lambda value: f"{value}x"),
    "a word less": lambda a, rng, _: one(a, rng, lambda value: str(value).rpartition(" ")[0] or "nothing"),
    "a word more": lambda a, rng, _: one(a, rng, lambda value: f"{value} today"),
    "upper case": lambda a, rng, _: one(a, rng, lambda value: str(value).upper()),
    "lower case": lambda a, rng, _: one(a, rng, lambda value: str(value).lower()),
    "space around": lambda a, rng, _: one(a, rng, lambda value: f" {value} "),
    "no leading zeros": lambda a, rng, _: one(a, rng, lambda value: str(value).replace("-0", "-")),
    "only the date": lambda a, rng, _: one(a, rng, lambda value: str(value).split(" ")[0]),
    "empty": lambda a, rng, _: one(a, rng, lambda _value: ""),
    "a number": lambda a, rng, _: one(a, rng, lambda value: int(value) if str(value).isdigit() else 7),
    "a fraction": lambda a, rng, _: one(a, rng, lambda _value: 2.5),
    "true": lambda a, rng, _: one(a, rng, lambda _value: True),
    "null": lambda a, rng, _: one(a, rng, lambda _value: None),
    "a list": lambda a, rng, _: one(a, rng, lambda value: [value]),
    "an object": lambda a, rng, _: one(a, rng, lambda value: {"value": value}),
    "quoted": lambda a, rng, _: one(a, rng, lambda value: f"the '{value}'"),
    "bracketed": lambda a, rng, _: one(a, rng, lambda value: f"[{value}]"),
    "two lines": lambda a, rng, _: one(a, rng, lambda value: f"{value}\n{value}"),
    "an equals sign": lambda a, rng, _: one(a, rng, lambda value: f"{value}, token=1"),
    "code": lambda a, rng, _: one(a, rng, lambda _value: "__import__('os').system('touch hacked')"),
    "another API": lambda a, rng, _: ToolCall(rng.choice(["GetToday", "Calculator", "NoSuchApi", "__init__"]), a),
}

REASONS = {
    "text": "The official parser of texts cuts a value at a quote, at a new line, or where it is empty; or reads an "
    "argument out of a value, or a fraction up to its point.",
    "list": "A list or object is handed on as it is; the official parser can only make a text of it.",
    "null": "An argument that is null is left out; the official parser makes the text None of it.",
    "recorded": "The API cannot be executed here, and answers with what was recorded for the same arguments.",
    "crash": "The API's rule raises, which ends the official evaluation; here the call is wrong.",
}


@dataclass(frozen=True)
class Compared:
    """One call, and what was said of it. The official answers are texts where the evaluator raised."""

    kind: str
    call: ToolCall
    ours: bool
    by_text: bool | str
    by_arguments: bool | str
    recorded: bool

    def reason(self) -> str | None:
        """Why the two differ, None where they agree; "unknown" must not be."""
        if self.by_text is self.ours and self.by_arguments is self.ours:
            return None
        if self.recorded:
            return "recorded"
        if self.by_arguments is not self.ours:
            return "crash" if isinstance(self.by_arguments, str) and not self.ours else "unknown"
        values = self.call.arguments.values()
        if any(value is None for value in values):
            return "null"
        if any(isinstance(value, list | dict) for value in values):
            return "list"
        if any(_misread(str(value)) for value in values):
            return "text"
        return "unknown"


def _misread(value: str) -> bool:
    return not value.strip() or any(each in value for each in "'\"\n=")


class Official(Asked):
    """The official evaluator, running."""

    def __init__(self) -> None:
        script = str(Path(__file__).with_name("apibank_official.py"))
        super().__init__("-B", script, cwd=FOLDER, PYTHONHASHSEED="0")

    def judge(self, call: ToolCall, truth: Recorded) -> dict[str, bool | str]:
        row = {"role": "API", "api_name": truth.call.name, "result": truth.result}
        reply: dict[str, bool | str] = self.ask(
            truth=json.dumps(row),
            text=as_text(call),
            name=call.name,
            arguments={
                name: value if isinstance(value, list | dict) else str(value)
                for name, value in call.arguments.items()
                if value is not None
            },
        )
        return reply


def as_text(call: ToolCall) -> str:
    """The call as the benchmark asks for it, with quotes around all that is no list or object."""
    parts = (f"{k}={v}" if isinstance(v, list | dict) else f"{k}='{v}'" for k, v in call.arguments.items())
    return f"[{call.name}({', '.join(parts)})]"


def compared(perturbed: int) -> Iterator[Compared]:
    """Every ground truth, and so many perturbed calls of each."""
    dialogues = read_dialogues(FOLDER)
    truths = [each for dialogue in dialogues for each in dialogue.calls]
    simulators = ApiSimulators(FOLDER, recorded_results(dialogues))
    described = simulators.describe()
    tools = read_tools(described)
    kinds = [*CHANGES]
    with Official() as official:
        for number, truth in enumerate(truths):
            rng = random.Random(number)
            same = [each for each in truths if each.call.name == truth.call.name and each is not truth]
            chosen = [kinds[(number * perturbed + step) % len(kinds)] for step in range(perturbed)]
            for kind in ("ground truth", *chosen):
                start = dict(typed(truth.call, tools.get(truth.call.name)).arguments)
                made = start if kind == "ground truth" else CHANGES[kind](start, rng, same)
                if made is None:
                    continue
                call = made if isinstance(made, ToolCall) else ToolCall(truth.call.name, made)
                ours = call.name == truth.call.name and bool(simulators.judge(call, truth.result).correct)
                theirs = official.judge(call, truth)
                absent = not described[truth.call.name]["runs"]
                yield Compared(kind, call, ours, theirs["text"], theirs["arguments"], absent)
    simulators.close()


def main() -> None:
    found = list(compared(int(sys.argv[1]) if len(sys.argv) > 1 else 6))
    for title, rows in (
        ("ground truths", [each for each in found if each.kind == "ground truth"]),
        ("perturbed calls", [each for each in found if each.kind != "ground truth"]),
    ):
        reasons = Counter(each.reason() for each in rows)
        right = sum(each.ours for each in rows)
        print(f"{len(rows)} {title}, {right} correct here, {reasons[None]} judged alike in both ways")
        for reason, count in sorted((name, count) for name, count in reasons.items() if name):
            print(f"  {count:5} {reason}: {REASONS.get(reason, '')}")
            for each in [each for each in rows if each.reason() == reason][: 5 if reason == "unknown" else 1]:
                print(f"        {each.call}: here {each.ours}, there {each.by_text} and {each.by_arguments}"[:200])


if __name__ == "__main__":
    main()
