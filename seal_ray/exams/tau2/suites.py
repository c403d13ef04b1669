"""The suites of τ²-bench: their names and tasks, and the answers of their dialogues."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.text import map_texts, valid_text

PREFIX = "tau2-"
DOMAINS = ("airline", "retail", "telecom")
SUITES = tuple(PREFIX + domain for domain in DOMAINS)
"""The names of the suites."""
_GOODBYES = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
"""The user's words at the end of a dialogue, from the benchmark's instructions."""
_KIND = re.compile(r"\[(\w+)\]")


@dataclass(frozen=True, slots=True)
class Tau2Dialogue:
    """A task of a domain, as an item of an exam. Telecom's ids begin with the kind of trouble."""

    id: str
    domain: str
    after: None = None
    counts: bool = True

    @property
    def category(self) -> str:
        kind = _KIND.match(self.id) if self.domain == "telecom" else None
        return kind[1] if kind else self.domain

    @property
    def group(self) -> str:
        return self.id


def task_of(suite: str) -> str:
    """The name of a suite's task in inspect-evals."""
    return f"tau2_{suite.removeprefix(PREFIX)}"


def dialogue_row(item: Tau2Dialogue, played: Mapping[str, Any]) -> dict[str, Any]:
    """The line of a dialogue in `answers.jsonl`.

    The verdict is the scorer's, but a dialogue that the user did not end is wrong, as in τ²-bench's own evaluator.
    """
    steps: Sequence[Mapping[str, Any]] = played["steps"]
    own = [step for step in steps if step["who"] == "model"]
    ended = bool(steps) and steps[-1]["who"] == "user" and any(word in steps[-1]["text"] for word in _GOODBYES)
    end = "stop" if ended else played["over"] or "turns"
    why = played["error"] or played["why"]
    row = {
        "item": item.id,
        "category": item.category,
        "group": item.group,
        "counts": item.counts,
        "right": ended and played["right"],
        "why": "" if ended and played["right"] else why if ended else f"the user did not end it ({end})",
        "end": end,
        "kept": None,
        "sampled_tokens": sum(step["output"] for step in own),
        "prompt_tokens": sum(step["input"] for step in own),
        "scored": played["right"],
        "said": [_line(step) for step in steps],
    }
    valid: dict[str, Any] = map_texts(row, valid_text)
    return valid


def _line(step: Mapping[str, Any]) -> str:
    calls = "".join(f" {name}({arguments})" for name, arguments in step["calls"])
    return f"{step['who']}: {step['text']}{calls}"
