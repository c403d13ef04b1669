"""`LLMTaskWriter`: a language model that writes task specifications, frozen or learning.

Its output is hostile input: it is read as JSON under the grammar of the source, composed and executed there, and
otherwise rejected. In any case training continues with the tasks that exist. Its prompt has counts, labels and
specifications, but never a task or an answer.
"""

from collections.abc import Callable, Sequence

from envs.dialogue import Message
from envs.profile import FailureProfile
from envs.specifications import Writable
from policies.engine import BASE, Sampler
from policies.prompting import ChatFormat
from policies.proposal_sampling import ProposalSampler, Writing, both_ends, outermost_object
from policies.task_writer.base import Check, Known, Proposals, TaskWriter

INSTRUCTIONS = """\
You write training tasks for an agent that calls tools in dialogues. You see how often its turns fail and how. Answer \
with one JSON object: what a task should be like. A simulator makes the task; one that cannot be made is rejected. \
Write tasks that the agent solves about half of the time."""

_LISTED = 4
"""Number of positions, tools and arguments in the profile."""
SOUGHT = 0.5
"""The success that a writer's tasks should have."""
_SHOWN = 6
"""Largest number of specifications of earlier windows in a prompt."""


class LLMTaskWriter(TaskWriter):
    """Writes what a language model writes. It reads the profile, and success by specification.

    `connect` returns the engine, for each call of `propose`; `policy` is the adapter that writes, or the base.
    """

    kind = "llm"
    is_model = True

    def __init__(
        self,
        connect: Callable[[], Sampler],
        form: ChatFormat,
        writing: Writing,
        *,
        source: Writable,
        check: Check,
        policy: str = BASE,
    ) -> None:
        self._source = source
        name, schema = "specification", source.specification_schema
        self._sampler = ProposalSampler(
            *(connect, form, writing, policy, name, schema),
            read=lambda text: source.read(outermost_object(text, name=name)),
            check=check,
        )

    async def propose(self, profile: FailureProfile, *, known: Sequence[Known], n: int, seed: int) -> Proposals:
        """`n` proposals, sampled concurrently. Raises `EngineDead` if the engine keeps dying."""

        def messages_with(most: int) -> tuple[Message, ...]:
            shown = most_informative(known, most)
            return messages_for(profile, grammar=self._source.specification_help, known=shown)

        return await self._sampler.sample(messages_with, _SHOWN, n=n, seed=seed)


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
