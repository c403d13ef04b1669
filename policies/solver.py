"""The solver: a model that plays dialogues through an engine, and `TokenDialogue`: a dialogue in tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from envs.dialogue import Dialogue, Protocol
from envs.errors import UserError
from envs.interface import Interface
from envs.task import Task
from policies.engine import BASE, Finish, GenRequest, Sampler
from policies.prompting import ChatFormat
from policies.trajectory import End, Recording, Sampled, Trajectory, derive_seed, interface_id
from policies.turn_start import TurnStart
from policies.watchdog import Watchdog


@dataclass(frozen=True, slots=True)
class Budgets:
    """Limits of a dialogue in tokens: `prompt` for its opening, `response` for each completion, `context` in all.

    `steps` bounds the completions of the dialogue, in addition to the protocol's limits. A spent budget ends the
    dialogue: its remaining turns are `not_reached`, and the reward is 0. A completion that reached its budget without a
    stop token is not acted on.
    """

    prompt: int = 8192
    response: int = 4096
    context: int = 16_384
    steps: int | None = None

    def __post_init__(self) -> None:
        for name in ("prompt", "response", "context", "steps"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise UserError(f"budgets: {name} is {value!r}; it must be a whole number of at least 1.")
        if self.prompt > self.context:
            raise UserError(f"budgets: prompt ({self.prompt}) is more than context ({self.context}).")

    def room(self, used: int) -> int:
        """Tokens left for the next completion."""
        return min(self.response, self.context - used)

    def cut(self, room: int) -> End:
        """The budget that a completion has spent which filled its room."""
        return End.RESPONSE if room == self.response else End.CONTEXT


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
        self._has_tools = bool(info["tools"])
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

    def replay(self, completions: Sequence[Sequence[int]], budgets: Budgets) -> End | None:
        """Acts on completions of an earlier dialogue, which count as read. Returns what ended the dialogue, if any."""
        for token_ids in completions:
            if len(self) + len(token_ids) > budgets.context:
                return End.CONTEXT
            begin = len(self)
            self.record.read(token_ids)
            self.sampled.append(Sampled(begin, len(self)))
            if not self.act():
                return End.FINISHED
        return None

    def text(self, completion: Sampled) -> str:
        """The text of a completion."""
        return self._form.text(self.record.token_ids_T[completion.begin : completion.end])

    def act(self) -> bool:
        """Lets the environment act on the last completion and reads its answer. Returns False if the dialogue is over.

        Nothing that a model writes makes this raise; a broken world or user raises `EnvironmentFault`.
        """
        *_, info = self.dialogue.step(self.text(self.sampled[-1]))
        if self.dialogue.over:
            return False
        self.record.read(self._form.continuation(info["messages"], tools=self._has_tools))
        return True


@dataclass(frozen=True, slots=True)
class Solver:
    """A policy of an engine, its chat format and its sampling. `watch` records the dialogue that is being computed."""

    engine: Sampler
    form: ChatFormat
    budgets: Budgets
    policy: str = BASE
    temperature: float = 1.0
    top_p: float = 1.0
    watch: Watchdog = field(default_factory=Watchdog)

    async def play(
        self,
        task: Task,
        *,
        seed: int,
        interface: Interface = Interface.plain(),
        protocol: Protocol = Protocol.OFFICIAL,
        start: TurnStart | None = None,
    ) -> Trajectory:
        """Plays one dialogue to its end, or one turn from its `start`: the rest of that dialogue is not reached.

        The same seed gives the same trajectory, whatever else the engine does. Raises `EnvironmentFault` for a broken
        task, and the engine's errors; nothing that a model writes raises.
        """
        context = self.budgets.context
        with self.watch.over(task.id, seed):
            played = TokenDialogue(task, self.form, interface=interface, protocol=protocol, context=context)
            end = End.PROMPT if len(played) > self.budgets.prompt else None
            if start is not None and end is None:
                end = played.replay(start.completions, self.budgets)
        while end is None:
            end = await self.say(played, seed)
            if end is None:
                with self.watch.over(task.id, seed):
                    end = None if played.act() else End.FINISHED
                if end is None and start is not None and played.dialogue.turn != start.turn:
                    end = End.TURN
        dialogue = played.dialogue
        acted_on = sum(map(len, dialogue.trace.turns))
        if end is not End.FINISHED:
            dialogue.truncate()
        return played.record.sample(seed).extended(
            Trajectory,
            task=task.id,
            category=str(task.category),
            interface=interface_id(interface),
            protocol=str(protocol),
            policy=self.policy,
            sampled=tuple(played.sampled),
            reward=float(dialogue.success),
            diagnosis=dialogue.diagnosis,
            trace=dialogue.trace,
            end=end,
            unread="".join(map(played.text, played.sampled[acted_on:])),
        )

    async def say(self, played: TokenDialogue, seed: int) -> End | None:
        """Samples the next completion, without acting on it. Returns the spent budget, if one is.

        Nothing is sampled if no room is left; a completion without a stop token is kept.
        """
        room = self.budgets.room(len(played))
        if room < 1:
            return End.CONTEXT
        if len(played.sampled) == self.budgets.steps:
            return End.STEPS
        request = GenRequest(
            prompt_ids=tuple(played.record.token_ids_T),
            max_tokens=room,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=derive_seed(seed, len(played.sampled)),
            stop_token_ids=self.form.stop_token_ids,
            policy=self.policy,
        )
        result = await self.engine.generate(request)
        played.say(result.token_ids_T, result.sampled_logprobs_T, result.versions_T, cached=result.cached_tokens)
        return self.budgets.cut(room) if result.finish is Finish.LENGTH else None
