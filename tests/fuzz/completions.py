"""Hostile completions, played: a chunk of them from a seed, what it measures, and what must never happen."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from envs.dialects import DIALECTS, Dialect
from envs.dialogue import Dialogue, Message, Protocol
from envs.interface import Interface
from envs.interface.value import RecoveryLevel
from envs.task import Task, ToolCall
from envs.toolworld import generate
from policies.prompting import ChatFormat
from tests.bench.hostile_states import VALUES, hostile, usual
from tests.fuzz.attacks import EXPRESSIONS, MARK, written
from tests.fuzz.pieces import FRAGMENTS, REFERENCES, Tally, known_values, mutated, observations, sensible_call
from tests.policies.chat_models import FAMILIES, control_ids, family_tokenizer

CHUNK = 1_000
"""Completions in a chunk: what one seed stands for."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TOKENISED = 40
"""One step in so many is tokenised too, by a vocabulary of bytes that takes long."""
_FAMILY = {"qwen": "Qwen3", "llama3_json": "Llama 3.1", "toolace": "ToolACE-2"}


@dataclass
class Measured(Tally):
    """The counts and costs of completions."""

    completions: int = 0
    calls: int = 0
    dialogues: int = 0
    errors: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)


def play_chunk(seed: int, number: int) -> Measured:
    """Plays one chunk. Raises `AssertionError` or whatever escaped, with what was played named in a note."""
    measured = Measured()
    rng = random.Random(f"fuzz {seed} {number}")
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        before = _resident()
        while measured.completions < CHUNK:
            _play(rng, measured, Path(folder) / "marker")
        assert list(Path(folder).rglob("*")) == [], "a completion wrote a file"
        measured.grown = max(0.0, _peak() - before)
    reference = rng.choice(REFERENCES)
    assert observations(reference) == _untouched()[reference], "a dialogue left something to the next one"
    known_values.cache_clear()  # it would hold every task that was generated
    return measured


@cache
def _untouched() -> Mapping[Task, list[str]]:
    return {task: observations(task) for task in REFERENCES}


def warm_up() -> None:
    """Loads what every chunk needs, so that its memory is not counted as a dialogue's."""
    _untouched()
    for dialect in DIALECTS:
        _form(dialect)


@cache
def _form(dialect: str) -> tuple[ChatFormat, frozenset[int]]:
    form = ChatFormat(family_tokenizer(_FAMILY[dialect]), DIALECTS[dialect], name=dialect)
    return form, control_ids(_FAMILY[dialect])


def _play(rng: random.Random, measured: Measured, marker: Path) -> None:
    """One dialogue of up to thirty completions."""
    task = rng.choice(REFERENCES) if rng.random() < 0.75 else generate(rng.randrange(10**6), split="train")
    dialect = rng.choice(list(DIALECTS.values()))
    protocol = rng.choice(list(Protocol))
    interface = rng.choice([Interface.plain(), Interface(recovery=RecoveryLevel.SCHEMA)])
    dialogue = Dialogue(task, dialect=dialect, protocol=protocol, interface=interface)
    dialogue.reset()
    recent = [dialect.render_calls(turn.ground_truth) for turn in task.turns]
    for _ in range(rng.randint(1, 30)):
        if dialogue.over:
            break
        kind = rng.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
        text = KINDS[kind][1](rng, task, dialect, recent).replace(MARK, str(marker))
        recent = [*recent[-20:], text[:2_000]]
        started = time.thread_time()
        observation, reward, terminated, truncated, info = dialogue.step(text)
        spent = time.thread_time() - started
        measured.completions += 1
        measured.by_kind[kind] += 1
        measured.time(spent, f"{kind}, {dialect.name}, {protocol}, {task.id}: {text[:80]!a}")
        observation.encode()
        assert reward == float(dialogue.success)
        assert (terminated or truncated) == dialogue.over == ("diagnosis" in info)
        for message in info["messages"]:
            message.content.encode()
        if measured.completions % _TOKENISED == 0 and info["messages"] and len(observation) < 20_000:
            _check_tokens(dialect, info["messages"])
    dialogue.truncate()
    records = [record for turn in dialogue.trace.turns for step in turn for record in step.calls]
    measured.calls += len(records)
    measured.errors += sum(record.is_error for record in records)
    measured.dialogues += 1


def _check_tokens(dialect: Dialect, messages: Sequence[Message]) -> None:
    """The control tokens of what is heard are those of harmless messages, but for the dialect's own sentences."""
    form, control = _form(dialect.name)
    if any(words in message.content for words in dialect.own_words for message in messages):
        return
    plain = [Message(message.role, "word", message.tools) for message in messages]
    found, wanted = ([t for t in form.continuation(each) if t in control] for each in (messages, plain))
    assert found == wanted, "a control token came out of content"


def _sensible(rng: random.Random, task: Task, dialect: Dialect, _: Sequence[str]) -> str:
    return dialect.render_calls([sensible_call(rng, task) for _ in range(rng.randint(1, 4))])


def _hostile_call(rng: random.Random, task: Task) -> ToolCall:
    tool = rng.choice(task.all_tools)
    if rng.random() < 0.02:
        return rng.choice(list(hostile(tool)))
    arguments = {
        name: rng.choice(VALUES) if rng.random() < 0.5 else value for name, value in usual(tool).arguments.items()
    }
    return ToolCall(tool.name, arguments)


def _hostile(rng: random.Random, task: Task, dialect: Dialect, _: Sequence[str]) -> str:
    return dialect.render_calls([_hostile_call(rng, task) for _ in range(rng.choice((1, 1, 2, 3)))])


def _foreign(rng: random.Random, task: Task, _: Dialect, recent: Sequence[str]) -> str:
    other = rng.choice(list(DIALECTS.values()))
    return other.render_calls([sensible_call(rng, task)]) + rng.choice(("", "\n", *recent))


def _mutated(rng: random.Random, _: Task, __: Dialect, recent: Sequence[str]) -> str:
    return mutated(rng, recent)


def _scraps(rng: random.Random, _: Task, __: Dialect, recent: Sequence[str]) -> str:
    pieces = [
        rng.choice(FRAGMENTS) if rng.random() < 0.7 else chr(rng.randrange(0x110000)) for _ in range(rng.randint(0, 20))
    ]
    return "".join(pieces) + (rng.choice(recent) if rng.random() < 0.3 else "")


def _control(rng: random.Random, task: Task, dialect: Dialect, _: Sequence[str]) -> str:
    """Control tokens, markup and halves of pairs inside of arguments and names."""
    marks = [*rng.sample(FAMILIES[_FAMILY[dialect.name]].control, 3), *dialect.markup, "\ud83d", "</tool_response>"]
    made = sensible_call(rng, task)
    arguments = {
        (rng.choice(marks) if rng.random() < 0.1 else key): (
            rng.choice(marks).join(["", str(value), ""]) if rng.random() < 0.6 else value
        )
        for key, value in made.arguments.items()
    }
    return dialect.render_calls([ToolCall(rng.choice(marks) if rng.random() < 0.1 else made.name, arguments)])


def _many(rng: random.Random, task: Task, dialect: Dialect, _: Sequence[str]) -> str:
    """As many calls as a completion holds."""
    calls = [
        sensible_call(rng, task) if rng.random() < 0.8 else _hostile_call(rng, task) for _ in range(rng.randint(1, 3))
    ]
    once = max(1, len(dialect.render_calls(calls)))
    return dialect.render_calls(calls * max(1, min(2_000, rng.choice((2_000, 19_000, 90_000)) // once)))


def _code(rng: random.Random, _: Task, dialect: Dialect, __: Sequence[str]) -> str:
    return rng.choice(list(written(dialect, rng.choice(EXPRESSIONS))))


def _silence(rng: random.Random, _: Task, __: Dialect, ___: Sequence[str]) -> str:
    return rng.choice(("", "Done.", "I cannot do this."))


KINDS: Mapping[str, tuple[float, Callable[[random.Random, Task, Dialect, Sequence[str]], str]]] = {
    "sensible": (30, _sensible),
    "mutated": (24, _mutated),
    "scraps": (10, _scraps),
    "control": (10, _control),
    "foreign": (8, _foreign),
    "code": (6, _code),
    "silence": (6, _silence),
    "hostile": (5, _hostile),
    "many": (1, _many),
}
"""Kind of completion → its weight, and how one is made."""


def _resident() -> float:
    """MiB that the process holds; its peak is counted anew from here on, where the system allows that."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 2**20


def _peak() -> float:
    """MiB that the process held at most."""
    line = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmHWM"))
    return int(line.split()[1]) / 2**10
