"""`TokenDialogue`: a dialogue in tokens, completion by completion. A solver plays one; a plain view replays one."""

from collections.abc import Sequence

from envs.dialogue import Dialogue, Protocol
from envs.interface import Interface
from envs.task import Task
from policies.prompting import ChatFormat
from policies.sample import Recording
from policies.trajectory import Sampled


class TokenDialogue:
    """One dialogue of a task, with all tokens that were read and sampled.

    `dialogue` is the environment's side, `record` has the tokens, and `sampled` the places of the completions, which
    are decoded for the environment and never tokenised again. Raises `EnvironmentFault` for a broken task.
    """

    def __init__(
        self, task: Task, form: ChatFormat, *, interface: Interface, protocol: Protocol | str, context: int
    ) -> None:
        self._form = form
        self.dialogue = Dialogue(task, dialect=form.dialect, interface=interface, protocol=protocol, context=context)
        _, info = self.dialogue.reset()
        self.record = Recording()
        self.record.read(form.opening(info["messages"], info["tools"]))
        self.sampled: list[Sampled] = []

    def __len__(self) -> int:
        return len(self.record.token_ids_T)

    def say(
        self, token_ids: Sequence[int], logprobs: Sequence[float], versions: Sequence[int], *, cached: int = 0
    ) -> None:
        """Adds a completion with its log-probs (nats) and versions, without acting on it."""
        begin = len(self)
        self.record.write(token_ids, logprobs, versions)
        self.sampled.append(Sampled(begin, len(self), cached))

    def act(self) -> bool:
        """Lets the environment act on the last completion and reads its answer. Returns False if the dialogue is over.

        Nothing that a model writes makes this raise; a broken world or user raises `EnvironmentFault`.
        """
        last = self.sampled[-1]
        *_, info = self.dialogue.step(self._form.text(self.record.token_ids_T[last.begin : last.end]))
        if self.dialogue.over:
            return False
        self.record.read(self._form.continuation(info["messages"]))
        return True
