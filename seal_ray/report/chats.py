"""Dialogues of one task side by side, for pages: before and after training, plain next to guided."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.task import JSON
from seal_ray.report.inspect_log import PLAIN, SUCCESS, LoggedSample, read_samples

_NAMES = {"assistant": "solver", "tool": "result"}
_MESSAGE, _CHAT = 4000, 30_000
"""Largest number of characters that are shown of a message, and of a dialogue."""
_MOST_PAIRS = 5
"""Pairs of plain and guided dialogues that a page shows, for better and for worse."""

Sides = tuple[list[LoggedSample], list[LoggedSample]]
"""The plain and the guided rollouts of a group."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A dialogue on a page.

    Attributes:
        lines: (name, text) of each message, as `message_lines` returns them.
        command: Shows the whole dialogue in a terminal, in the folder of the page.
    """

    title: str
    lines: Sequence[tuple[str, str]]
    verdict: str
    command: str


@dataclass(frozen=True, slots=True)
class ChatPair:
    """Two dialogues of a task, of which the second is better or worse."""

    task: str
    better: bool
    chats: tuple[Chat, Chat]


@dataclass(frozen=True, slots=True)
class GuidedGroups:
    """The groups of a round with plain and guided rollouts: how many were better or worse with hints, and pairs."""

    round: int
    groups: int
    better: int
    worse: int
    pairs: Sequence[ChatPair]


def message_lines(sample: LoggedSample) -> Iterator[tuple[str, str]]:
    """(name, text) of what was said: user, solver, result or error of a call, and cue for what an interface added."""
    for message in sample.messages:
        cue = str((message.metadata or {}).get("cue", ""))
        if text := message.content.removesuffix(cue):
            yield "error" if message.error else _NAMES.get(message.role, message.role), shortened(text)
        if cue:
            yield "cue", shortened(cue.lstrip())


def shortened(text: str) -> str:
    """The text, or its first characters and their number."""
    return text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]} … ({len(text):,} characters)"


def show_command(folder: str, round_number: int, task: str) -> str:
    """The command that shows the dialogues of a task in the logs of a round."""
    return f"seal-ray show {shlex.quote(folder)} --round {round_number} --task {shlex.quote(task)}"


def as_chat(sample: LoggedSample, title: str, command: str) -> Chat:
    """A sample as a chat, whose last lines are left out if it is long."""
    lines, left = [], _CHAT
    for name, text in message_lines(sample):
        if left <= 0:
            lines.append(("…", "the rest is left out here"))
            break
        lines.append((name, text))
        left -= len(text)
    return Chat(title, lines, shortened(sample.scores[SUCCESS].explanation or ""), command)


def chats_with_outcomes(log: Path, wanted: Mapping[str, bool], title: str, folder: str, number: int) -> dict[str, Chat]:
    """Task → a dialogue of it that was solved or failed as `wanted`, for the tasks of which a log has one.

    Args:
        folder: The run folder as seen from the page's.
        number: The round of the log.
    """
    if not log.is_file():
        return {}
    found = read_samples(log, lambda all_samples: [each for each in all_samples if wanted.get(each.id) is each.solved])
    return {each.id: as_chat(each, title, show_command(folder, number, each.id)) for each in found}


def pairs_of(before: Mapping[str, Chat], after: Mapping[str, Chat], better: Mapping[str, bool]) -> list[ChatPair]:
    """The pairs of the tasks that both sides have. `better` is task → whether the second side is the better one."""
    return [
        ChatPair(task, kind, (before[task], after[task]))
        for task, kind in better.items()
        if task in before and task in after
    ]


def guided_groups(log: Path, number: int) -> GuidedGroups | None:
    """The groups with plain and guided rollouts of a round's log; None without such groups."""
    gains: list[tuple[float, Sides]] = []

    def choose(samples: Sequence[LoggedSample]) -> Iterator[LoggedSample]:
        groups: dict[JSON, Sides] = {}
        for each in samples:
            groups.setdefault(each.metadata.get("group"), ([], []))[each.arm != PLAIN].append(each)
        gains.extend((_success(sides[1]) - _success(sides[0]), sides) for sides in groups.values() if all(sides))
        for better in (True, False):
            ranked = sorted(gains, key=lambda each: each[0], reverse=better)
            for gain, (plain, guided) in ranked[:_MOST_PAIRS]:
                if gain and (gain > 0) is better:
                    yield next(each for each in plain if each.solved is not better)
                    yield next(each for each in guided if each.solved is better)

    read = read_samples(log, choose)
    pairs = [
        ChatPair(
            plain.id,
            bool(guided.solved),
            (
                as_chat(plain, "plain", show_command(".", number, plain.id)),
                as_chat(guided, f"guided by {guided.arm}", show_command(".", number, plain.id)),
            ),
        )
        for plain, guided in zip(read, read, strict=True)
    ]
    better, worse = sum(gain > 0 for gain, _ in gains), sum(gain < 0 for gain, _ in gains)
    return GuidedGroups(number, len(gains), better, worse, pairs) if gains else None


def _success(samples: Sequence[LoggedSample]) -> float:
    return sum(bool(each.solved) for each in samples) / len(samples)
