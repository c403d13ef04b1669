"""Our verdicts on single-turn calls against the official checker's, on every ground truth and on perturbed calls.

    python -m tests.bench.single_turn_parity [N]

N perturbed answers an entry, 2 by default. Prints a table of what was compared.
"""

import copy
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.bfcl.single_turn import SingleTurnExam, SingleTurnItem
from envs.task import ToolCall
from tests.bench.asking import Asked

Values = dict[str, Any]


class Official(Asked):
    """The official checker, running."""

    module = "tests.bench.single_turn_official"

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory()
        super().__init__("-m", self.module, BFCL_PROJECT_ROOT=self._home.name)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._home.cleanup()

    def judge(self, question: SingleTurnItem, calls: Sequence[ToolCall]) -> bool | str:
        """The verdict, or what was raised."""
        verdict: bool | str = self.ask(
            functions=question.entry["function"],
            calls=[{call.name: dict(call.arguments)} for call in calls],
            answers=question.answers,
            language=question.language,
            category=question.category,
        )
        return verdict


def ground_truth(question: SingleTurnItem, rng: random.Random) -> list[ToolCall]:
    """One of the possible answers: of each argument one of its values, or nothing where that is among them."""
    calls = []
    by_name = {each["name"]: each for each in question.entry["function"]}
    for answer in question.answers or ():
        ((name, expected),) = answer.items()
        arguments = {}
        for key, values in expected.items():
            value = rng.choice(values or [""])
            if value != "":
                kind = by_name[name]["parameters"]["properties"].get(key, {})
                arguments[key] = _written(_chosen(value, rng), kind, question.language)
        calls.append(ToolCall(name, arguments))
    return calls


def _chosen(value: Any, rng: random.Random) -> Any:
    """Within objects, every key has its list of values."""
    if isinstance(value, dict):
        made = {key: rng.choice(values or [""]) for key, values in value.items()}
        return {key: each for key, each in made.items() if each != ""}
    if isinstance(value, list):
        return [_chosen(each, rng) if isinstance(each, dict) else each for each in value]
    return value


def _written(value: Any, schema: Mapping[str, Any], language: str) -> Any:
    if language == "python":
        return value
    if isinstance(value, bool):
        return str(value).lower()
    kind = schema.get("type")
    if isinstance(value, list):
        parts = [_part(each) for each in value]
        if language == "javascript":
            return f"[{', '.join(parts)}]"
        listed = ", ".join(parts)
        return f"new Object[]{{{listed}}}" if kind == "Array" else f"new ArrayList<>(Arrays.asList({listed}))"
    if isinstance(value, dict):
        if language == "javascript":
            return "{" + ", ".join(f"{key}: {_part(each)}" for key, each in value.items()) + "}"
        puts = " ".join(f'put("{key}", {_part(each)});' for key, each in value.items())
        return f"new HashMap<String, Object>() {{{{ {puts} }}}}"
    return f"{value}{ {'long': 'L', 'float': 'f', 'Bigint': 'n'}.get(str(kind), '') }"


def _part(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str | bool | int | float) else str(value)


def _one(arguments: Values, rng: random.Random, change: Callable[[Any], Any]) -> None:
    if arguments:
        name = rng.choice(sorted(arguments))
        arguments[name] = change(arguments[name])


def _inside(value: Any, change: Callable[[Any], Any]) -> Any:
    """The first scalar in a value, changed."""
    if isinstance(value, list) and value:
        return [_inside(value[0], change), *value[1:]]
    if isinstance(value, dict) and value:
        first, *rest = value
        return {first: _inside(value[first], change), **{key: value[key] for key in rest}}
    return change(value)


def _other_type(value: Any) -> Any:
    match value:
        case bool():
            return str(value)
        case int():
            return float(value)
        case float():
            return str(value)
        case str():
            return int(value) if value.isdigit() and value.isascii() else [value]
        case list():
            return {"items": value}
    return [value]


CHANGES: Mapping[str, Callable[[Values, random.Random], None]] = {
    "the same": lambda arguments, rng: None,
    "left out": lambda a, rng: a.pop(rng.choice(sorted(a))) if a else None,
    "one more": lambda a, rng: a.update(more="x"),
    "renamed": lambda a, rng: a.update({f"{sorted(a)[0]}_": a.pop(sorted(a)[0])}) if a else None,
    "upper case": lambda a, rng: _one(a, rng, lambda v: _inside(v, lambda x: x.upper() if isinstance(x, str) else x)),
    "punctuation": lambda a, rng: _one(
        a, rng, lambda v: _inside(v, lambda x: f"{x[:1]}-_ ,./*^{x[1:]}" if isinstance(x, str) else x)
    ),
    "quotes": lambda a, rng: _one(a, rng, lambda v: _inside(v, lambda x: f"'{x}'" if isinstance(x, str) else x)),
    "a letter": lambda a, rng: _one(a, rng, lambda v: _inside(v, lambda x: f"{x}x" if isinstance(x, str) else x)),
    "another number": lambda a, rng: _one(
        a, rng, lambda v: _inside(v, lambda x: x + 1 if isinstance(x, int | float) else x)
    ),
    "as text": lambda a, rng: _one(a, rng, str),
    "as JSON": lambda a, rng: _one(a, rng, json.dumps),
    "another type": lambda a, rng: _one(a, rng, _other_type),
    "another type inside": lambda a, rng: _one(a, rng, lambda v: _inside(v, _other_type)),
    "a list": lambda a, rng: _one(a, rng, lambda v: [v]),
    "empty text": lambda a, rng: _one(a, rng, lambda v: ""),
    "no items": lambda a, rng: _one(a, rng, lambda v: []),
    "no keys": lambda a, rng: _one(a, rng, lambda v: {}),
    "nothing": lambda a, rng: _one(a, rng, lambda v: None),
    "true": lambda a, rng: _one(a, rng, lambda v: True),
    "one": lambda a, rng: _one(a, rng, lambda v: 1),
    "shorter": lambda a, rng: _one(a, rng, lambda v: v[:-1] if isinstance(v, str | list) else v),
    "reversed": lambda a, rng: _one(a, rng, lambda v: v[::-1] if isinstance(v, str | list) else v),
    "twice": lambda a, rng: _one(a, rng, lambda v: v * 2 if isinstance(v, str | list) else v),
    "code": lambda a, rng: _one(a, rng, lambda v: "__import__('os').system('touch hacked')"),
    "a key more": lambda a, rng: _one(a, rng, lambda v: {**v, "more": 1} if isinstance(v, dict) else v),
    "a key less": lambda a, rng: _one(a, rng, lambda v: dict(list(v.items())[1:]) if isinstance(v, dict) else v),
}
OF_CALLS: Mapping[str, Callable[[list[ToolCall], random.Random], list[ToolCall]]] = {
    "no call": lambda calls, rng: [],
    "a call less": lambda calls, rng: calls[:-1],
    "a call twice": lambda calls, rng: [*calls, calls[0]],
    "calls reversed": lambda calls, rng: calls[::-1],
    "the first for all": lambda calls, rng: [calls[0]] * len(calls),
    "another function": lambda calls, rng: [ToolCall(f"{calls[0].name}_2", calls[0].arguments), *calls[1:]],
}


@dataclass(frozen=True)
class Compared:
    """One answer and its verdicts; the official one is a text where the checker raised."""

    kind: str
    question: SingleTurnItem
    calls: Sequence[ToolCall]
    ours: str | None
    official: bool | str

    @property
    def alike(self) -> bool:
        return (self.ours is None) is self.official

    @property
    def crashed(self) -> bool:
        """The official checker raised, which ends its evaluation; here the answer is wrong."""
        return isinstance(self.official, str) and self.ours is not None


def compared(exam: SingleTurnExam, perturbed: int) -> Iterator[Compared]:
    """Every ground truth, and so many perturbed answers of each entry that has one."""
    kinds = [*CHANGES, *OF_CALLS]
    with Official() as official:
        asked = [question for question in exam.items() if question.answers is not None]
        for number, question in enumerate(asked):
            rng = random.Random(number)
            chosen = [kinds[(number * perturbed + step) % len(kinds)] for step in range(perturbed)]
            for kind in ("ground truth", *chosen):
                calls = copy.deepcopy(ground_truth(question, rng))
                if kind in OF_CALLS:
                    calls = OF_CALLS[kind](calls, rng)
                elif kind in CHANGES:
                    call = rng.choice(calls)
                    arguments = dict(call.arguments)
                    CHANGES[kind](arguments, rng)
                    calls[calls.index(call)] = ToolCall(call.name, arguments)
                yield Compared(kind, question, calls, verdict(question, calls), official.judge(question, calls))


def verdict(question: SingleTurnItem, calls: Sequence[ToolCall]) -> str | None:
    """Why the calls are wrong; None where they are right."""
    assert question.answers is not None
    return question.exam.check(question, calls)


def main() -> None:
    exam = SingleTurnExam()
    found = list(compared(exam, int(sys.argv[1]) if len(sys.argv) > 1 else 2))
    exam.close()
    for title, rows in (
        ("ground truths", [each for each in found if each.kind == "ground truth"]),
        ("perturbed answers", [each for each in found if each.kind != "ground truth"]),
    ):
        right = sum(each.ours is None for each in rows)
        alike, crashed = sum(each.alike for each in rows), sum(each.crashed for each in rows)
        print(f"{len(rows)} {title}, {right} right here, {alike} judged alike, {crashed} where the official one raises")
    unlike = [each for each in found if not each.alike and not each.crashed]
    print(f"{len(unlike)} others differ", Counter(each.kind for each in unlike))
    for each in unlike[:10]:
        print(each.kind, each.question.id, *each.calls, each.question.answers, each.ours, each.official, sep="\n    ")
    wrong = [each for each in found if each.kind == "ground truth" and each.ours is not None]
    print("ground truths that are wrong:", Counter(each.question.category for each in wrong))


if __name__ == "__main__":
    main()
