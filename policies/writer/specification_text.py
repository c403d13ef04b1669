"""What a language model reads before it writes specifications.

It reads counts, labels and specifications, never a task or an answer. What it writes is not trusted.
"""

from __future__ import annotations

from collections.abc import Sequence

from envs.dialogue import Message
from envs.profile import FailureProfile
from policies.documents import both_ends
from policies.writer.base import Known

INSTRUCTIONS = """\
You write training tasks for an agent that calls tools in dialogues. You see how often its turns fail and how. Answer \
with one JSON object: what a task should be like. A simulator makes the task; one that cannot be made is rejected. \
Write tasks that the agent solves about half of the time."""

_LISTED = 4
"""Positions, tools and arguments that are listed."""
SOUGHT = 0.5
"""Success of the tasks that a writer is to write."""


def messages_for(profile: FailureProfile, *, grammar: str, known: Sequence[Known] = ()) -> tuple[Message, ...]:
    """The messages that ask for a specification: its grammar, the window's profile, and success by specification.

    What a model wrote is in `known` as JSON text that was read and dumped again.
    """
    asked = profile.render(most=_LISTED)
    if known:
        lines = [f"{each.p:.0%} of {each.rollouts:.0f} {each.specification.dump()}" for each in known]
        asked += "\nSuccess of tasks so far, the nearest to one half first:\n" + "\n".join(lines)
    return Message("system", f"{INSTRUCTIONS}\n{grammar}"), Message("user", asked)


def telling(known: Sequence[Known], most: int) -> list[Known]:
    """At most `most` of these: half of them the nearest to one half, the others the farthest from it, in this order."""
    return both_ends(sorted(known, key=lambda each: (abs(each.p - SOUGHT), -each.rollouts)), most)
