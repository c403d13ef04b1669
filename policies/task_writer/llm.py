"""`LLMTaskWriter`: a language model that writes task specifications, frozen or learning.

Its output is hostile input: it is read as JSON under the grammar of the source, composed and executed there, and
otherwise rejected. In any case training continues with the tasks that exist.
"""

from collections.abc import Callable, Sequence

from envs.dialogue import Message
from envs.profile import FailureProfile
from envs.specifications import Specification, Writable
from policies.engine import BASE, Engine
from policies.prompting import ChatFormat
from policies.proposal_sampling import ProposalSampler, Writing, outermost_object
from policies.proposer import Proposal
from policies.task_writer.base import Check, Known, TaskWriter
from policies.task_writer.specification_text import messages_for, most_informative

_SHOWN = 6
"""Largest number of specifications of earlier windows in a prompt."""


class LLMTaskWriter(TaskWriter):
    """Writes what a language model writes. It reads the profile, and success by specification.

    Args:
        connect: Returns the engine, for each call of `write`.
        form: The model's chat format.
        writing: How specifications are sampled.
        source: The task source.
        check: Finds the reason to reject a specification.
        policy: The adapter that writes, or the base.
    """

    kind = "llm"
    is_model = True

    def __init__(
        self,
        connect: Callable[[], Engine],
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

    async def propose(
        self, profile: FailureProfile, *, known: Sequence[Known], n: int, seed: int
    ) -> tuple[Proposal[Specification], ...]:
        """`n` proposals, sampled concurrently. Raises `EngineDead` if the engine keeps dying."""

        def messages_with(most: int) -> tuple[Message, ...]:
            shown = most_informative(known, most)
            return messages_for(profile, grammar=self._source.specification_help, known=shown)

        return await self._sampler.sample(messages_with, _SHOWN, n=n, seed=seed)
