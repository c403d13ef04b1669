"""A task writer's prompt: counts, labels and specifications, never a task or an answer."""

from collections.abc import Sequence

from envs.dialogue import Message
from envs.profile import FailureProfile
from policies.proposal_sampling import both_ends
from policies.task_writer.base import Known

INSTRUCTIONS = """\
You write training tasks for an agent that calls tools in dialogues. You see how often its turns fail and how. Answer \
with one JSON object: what a task should be like. A simulator makes the task; one that cannot be made is rejected. \
Write tasks that the agent solves about half of the time."""

_LISTED = 4
"""Number of positions, tools and arguments in the profile."""
SOUGHT = 0.5
"""The success that a writer's tasks should have."""


def messages_for(profile: FailureProfile, *, grammar: str, known: Sequence[Known] = ()) -> tuple[Message, ...]:
    """The messages that ask for a specification: its grammar, the window's profile, and success by specification."""
    asked = profile.render(most=_LISTED)
    if known:
        lines = [f"{each.p:.0%} of {each.rollouts:.0f} {each.specification.dump()}" for each in known]
        asked += "\nSuccess of tasks so far, the nearest to one half first:\n" + "\n".join(lines)
    return Message("system", f"{INSTRUCTIONS}\n{grammar}"), Message("user", asked)


def most_informative(known: Sequence[Known], most: int) -> list[Known]:
    """At most `most` of these: half of them nearest to a success of one half, then those farthest from it."""
    return both_ends(sorted(known, key=lambda each: (abs(each.p - SOUGHT), -each.rollouts)), most)
