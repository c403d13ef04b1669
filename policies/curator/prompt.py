"""What a language model reads before it proposes an interface: counts and labels, never a task or an answer."""

from __future__ import annotations

from envs.dialogue import Message
from envs.interface import Interface, interface_diff
from envs.interface.value import MAX_GUIDELINES
from envs.profile import FailureProfile
from policies.curator.proposal_text import write_proposal

INSTRUCTIONS = f"""\
You help to train an agent that calls tools in dialogues. You see how often its turns fail and how, never its tasks. \
Answer with one JSON object: the interface that the agent is shown while it trains.
"schema_cues": parts of the tools' documentation to repeat, each with "kind" (required, enum, type or format) and \
"tools" (their names, or [] for all).
"recovery": what follows a failed call: none, class (of the error) or schema (of the tool).
"guidelines": at most {MAX_GUIDELINES} short sentences of general advice; no values, answers, or code.
The agent is tested without the interface, so show what it can learn from."""

_LISTED = 4
"""Positions, tools and arguments that are listed."""


def messages_for(profile: FailureProfile, *, incumbent: Interface, before: Interface) -> tuple[Message, ...]:
    """The messages that ask for a proposal: the window's profile, what is shown now, and what was changed for it.

    `before` is the interface before the one in force.
    """
    changed = "\n".join(interface_diff(before, incumbent)) or "nothing"
    total = profile.total.get("all")
    asked = (
        f"{profile.render(most=_LISTED)}\nSuccess since the begin of training: {total.success_rate:.1%}\n"
        f"Interface in force: {write_proposal(incumbent)}\nChanged last: {changed}"
    )
    return Message("system", INSTRUCTIONS), Message("user", asked)
