"""`Dialogue`: one task as a Gymnasium environment. Text in, text out; it never sees tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from typing import Any

import gymnasium
from gymnasium import spaces

from envs.allowance import Allowance, Cost, first_part
from envs.diagnosis import Diagnosis, Label, TurnDiagnosis, diagnose_turn
from envs.dialects import DIALECTS, Dialect, ParsedCompletion
from envs.errors import UserError, check_known, faults_of
from envs.interface.show import render_tools, show_parse_error, show_result, show_system, show_tools
from envs.interface.value import Interface
from envs.task import Task, ToolCall, ToolDoc
from envs.text import Marks, valid_text
from envs.text_space import UnicodeText
from envs.tool_documents import check_call
from envs.trace import Availability, CallRecord, Step, Trace, text_digest
from envs.verifier import State, Verifier, differing, freeze, prepare
from envs.world import User

MAX_STEPS = 20
"""Completions with calls: per turn under the official protocol, per dialogue under the seal protocol."""

CONTEXT = 16_384
"""Default context of a dialogue, in tokens."""

_SHOWN_NAME = 200
"""Characters kept of the name of a call that was too expensive."""

REVEAL = "I have updated some more functions you can choose from. What about now?"
"""The official user message that goes with newly revealed tools, after their documents."""


class Protocol(StrEnum):
    """The rules that turn completions into steps and turns."""

    OFFICIAL = "official"
    """The benchmark's rules, for evaluation.

    A completion without a decodable call ends the turn; hidden tools can be called; the step after the 20th of a turn
    ends the dialogue.
    """
    SEAL = "seal"
    """For training.

    Parse errors, unknown and hidden tools return an error observation and the turn continues; at most 20 steps in the
    dialogue.
    """
    UNTIL_FAILURE = "until-failure"
    """As seal, but the first checked turn that does not pass ends the dialogue: it cannot succeed any more."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message of the environment's side; `tools` are the tools that it reveals, for chat templates.

    The content is valid Unicode. Markup in it is still whole: the code that renders a message breaks it up.
    """

    role: str
    content: str
    tools: tuple[ToolDoc, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", valid_text(self.content))


@cache
def _marks_of(dialect: Dialect) -> Marks:
    return Marks(dialect.markup, own_words=dialect.own_words)


class Dialogue(gymnasium.Env[str, str]):
    """Plays one task, from `reset` to the last turn.

    The action is a completion, as text. The observation is the text that the environment adds to the conversation: at
    `reset` the tools, the guidelines and the first user turn; then tool results or the next user turn. The same content
    is in `info["messages"]` as `Message`s, and the tools are in `info["tools"]`.

    The reward is terminal and binary: 1.0 if every turn with ground truth passed, or if the final state reaches the
    task's goal; else 0.0. `terminated` is True after the last turn, or after one that ends the dialogue by protocol;
    `truncated` is True if a step budget ended it. At the end `info["diagnosis"]` is the `Diagnosis`. `seed` has no
    effect.

    No completion makes `step` raise. It raises `gymnasium.error.ResetNeeded` before `reset` and after the end. A broken
    task raises `EnvironmentFault`, at `reset` or later. Results that do not fit into `context` (tokens) are cut, see
    `Allowance`.
    """

    metadata = {"render_modes": ["ansi"], "name": "dialogue_v0"}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        task: Task,
        *,
        dialect: Dialect = DIALECTS["qwen"],
        interface: Interface = Interface.plain(),
        protocol: Protocol | str = Protocol.OFFICIAL,
        context: int = CONTEXT,
        render_mode: str | None = None,
    ) -> None:
        check_known("protocol", Protocol, protocol)
        if render_mode not in (None, "ansi"):
            raise UserError(f"render_mode: {render_mode!r} is not known; allowed are None and 'ansi'.")
        self.task = task
        self.dialect = dialect
        self.interface = interface
        self.protocol = Protocol(protocol)
        self._official = self.protocol is Protocol.OFFICIAL
        self.context = context
        self.render_mode = render_mode
        self.user_text: str | None = None
        """The user's text in the current turn; None in a turn that reveals tools."""
        self._running = False
        self._diagnosis: Diagnosis | None = None
        self._last_observation = ""

    @cached_property
    def observation_space(self) -> spaces.Space[str]:  # type: ignore[override]
        """Any text. Created lazily: training plays thousands of dialogues that never need it."""
        return UnicodeText()

    @cached_property
    def action_space(self) -> spaces.Space[str]:  # type: ignore[override]
        return UnicodeText()

    @property
    def turn(self) -> int:
        """The current turn, 0-based; the number of turns after the end."""
        return self._verifier.turn

    @property
    def over(self) -> bool:
        """Whether the dialogue has ended."""
        return not self._running

    @property
    def trace(self) -> Trace:
        system = valid_text(show_system(self.interface, self.dialect))
        return Trace(self.task.id, tuple(map(tuple, self._steps)), tuple(self._user_texts), system)

    @property
    def turn_diagnoses(self) -> tuple[TurnDiagnosis, ...]:
        return tuple(self._turn_diagnoses)

    @property
    def success(self) -> bool:
        """Whether the dialogue has ended successfully."""
        return self.over and not self._cut_off and self._verifier.success

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis of the finished dialogue. Raises `UserError` before its end."""
        if self._diagnosis is None:
            raise UserError("diagnosis: the dialogue is still running.")
        return self._diagnosis

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        ready = prepare(self.task)
        with faults_of(self.task.id, "world"):
            self._world = ready.start()
        with faults_of(self.task.id, "user"):
            self._user: User | None = None if self.task.user is None else self.task.user()
        self._truth = ready.turns
        self._verifier = Verifier(self.task)
        self._allowance = Allowance(self.context)
        self._steps: list[list[Step]] = [[] for _ in self.task.turns]
        self._user_texts: list[str] = []
        self._turn_diagnoses: list[TurnDiagnosis] = []
        self._budget = MAX_STEPS
        self._running = True
        self._cut_off = False
        self._diagnosis = None
        self._documents = {tool.name: tool for tool in self.task.all_tools}
        self._shown = {tool.name for tool in self.task.tools}
        self._start_turn()
        system = show_system(self.interface, self.dialect)
        messages = ([Message("system", system)] if system else []) + [self._user_message()]
        tools = show_tools(self.interface, self.task.tools)
        shown = render_tools(self.interface, self.dialect, self.task.tools)
        self._last_observation = "\n\n".join([valid_text(shown), *map(self._message_text, messages)])
        return self._last_observation, {**self._info(messages), "tools": tools}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if not self._running:
            raise gymnasium.error.ResetNeeded("the dialogue is over or was never reset")
        parsed = self.dialect.parse(action)
        calls = parsed.official_calls if self._official else parsed.calls
        turn = self.turn
        records = self._call_all(calls)
        messages = self._result_messages(parsed, records)
        shown = tuple(message.content for message in messages)
        self._steps[turn].append(Step(turn, first_part(action), records, parsed.errors, shown))
        if messages:
            self._spend_step(turn)
        else:
            self._judge_turn()
            if self._verifier.finished or (self.protocol is Protocol.UNTIL_FAILURE and self._verifier.failed):
                self._finish()
            else:
                self._start_turn()
            messages = [self._user_message()] if self._running else []
        self._last_observation = "\n".join(map(self._message_text, messages))
        terminated, truncated = self.over and not self._cut_off, self.over and self._cut_off
        return self._last_observation, float(self.success), terminated, truncated, self._info(messages)

    def render(self) -> str | None:  # type: ignore[override]
        return self._last_observation if self.render_mode == "ansi" else None

    def truncate(self) -> None:
        """Ends the dialogue from outside, for a spent token budget: this turn and all later ones are not reached."""
        if self._running:
            self._cut_off = True
            self._finish()

    def _start_turn(self) -> None:
        turn = self.task.turns[self.turn]
        self._shown |= {tool.name for tool in turn.revealed}
        # Whether the state changed matters only if nothing should be called.
        with faults_of(self.task.id, "world"):
            self._turn_start: State = {} if turn.ground_truth else freeze(self._world.state())
        if self._official:
            self._budget = MAX_STEPS

    def _judge_turn(self) -> None:
        index = self.turn
        with faults_of(self.task.id, "world"):  # its values can have an equality of their own
            state = self._world.state()
            verdict = self._verifier.end_turn(state)
            changed = bool(differing(state, self._turn_start))
        self._turn_diagnoses.append(
            diagnose_turn(
                self.task.turns[index],
                self._steps[index],
                self._truth[index],
                verdict,
                changed_state=changed,
                seen=self._verifier.saw,
                by_goal=self.task.goal is not None,
            )
        )

    def _spend_step(self, turn: int) -> None:
        self._budget -= 1
        # The official handler stops only after it has executed one step more than the limit.
        if self._budget > (-1 if self._official else 0):
            return
        self._judge_turn()
        # After the last turn nothing is missing, and the official runner grades the dialogue.
        self._cut_off = turn < len(self.task.turns) - 1
        self._finish()

    def _finish(self) -> None:
        self._verifier.abandon()
        self._running = False
        for verdict in self._verifier.verdicts[len(self._turn_diagnoses) :]:
            self._turn_diagnoses.append(TurnDiagnosis(verdict.turn, Label.NOT_REACHED, "", verdict))
        self._diagnosis = Diagnosis(self.task.id, str(self.task.category), self.turn_diagnoses, self.success)

    def _call_all(self, calls: Sequence[ToolCall]) -> tuple[CallRecord, ...]:
        """Executes calls while the allowance lasts; all calls beyond it share one record."""
        self._allowance.begin_step()
        if calls:
            self._verifier.add_calls()
        records: list[CallRecord] = []
        for index, call in enumerate(calls):
            with faults_of(self.task.id, "world"):
                cost = self._world.cost(call)
            if not self._allowance.admits(cost):
                records.append(self._refused(call, following=len(calls) - index - 1))
                break
            records.append(self._call(call, cost))
        return tuple(records)

    def _refused(self, call: ToolCall, following: int) -> CallRecord:
        others = f" and the {following} after it were" if following else " was"
        text = f"[ERROR] The calls cost more than a dialogue allows: this call{others} not executed."
        name_only = ToolCall(call.name[:_SHOWN_NAME], {})
        return CallRecord(name_only, text, True, self._availability(call), executed=False)

    def _availability(self, call: ToolCall) -> Availability:
        if call.name in self._shown:
            return Availability.SHOWN
        with faults_of(self.task.id, "world"):
            hidden = self._world.offers(call.name)
        return Availability.HIDDEN if hidden else Availability.UNKNOWN

    def _call(self, call: ToolCall, cost: Cost) -> CallRecord:
        availability = self._availability(call)
        if not self._official and availability is not Availability.SHOWN:
            text = f"[ERROR] The tool {call.name!r} is not available."
            return CallRecord(call, self._allowance.show(text), True, availability, executed=False)
        document = self._documents.get(call.name)
        violations = check_call(call, document) if document is not None else ()
        with faults_of(self.task.id, "world"):
            result = self._world.execute(call, cost)
        self._verifier.add_result(result.text)  # whole, whatever of it is shown
        shown = self._allowance.show(result.text)
        whole = "" if shown == result.text else text_digest(result.text)
        return CallRecord(call, shown, result.is_error, availability, violations, digest=whole)

    def _user_message(self) -> Message:
        turn = self.task.turns[self.turn]
        self.user_text = turn.user if turn.user is None or self._user is None else self._answer(self._user)
        if self.user_text is not None:
            message = Message("user", self.user_text)
        else:
            tools = show_tools(self.interface, turn.revealed)
            message = Message("user", f"{[dict(tool.document) for tool in tools]}\n{REVEAL}", tools)
        self._user_texts.append(message.content)
        return message

    def _answer(self, user: User) -> str:
        """The user's answer to the completions of the turn that ended."""
        said = tuple(step.completion for step in self._steps[self.turn - 1]) if self.turn else ()
        with faults_of(self.task.id, "user"):
            return user.say(self.turn, said)

    def _result_messages(self, parsed: ParsedCompletion, records: tuple[CallRecord, ...]) -> list[Message]:
        role = self.dialect.result_role
        messages = [Message(role, self._result_text(record)) for record in records]
        if not self._official:
            messages += [
                Message(role, show_parse_error(self.interface, f"[ERROR] {error.message}", self.dialect))
                for error in parsed.errors
            ]
        return messages

    def _result_text(self, record: CallRecord) -> str:
        """The result with the interface's feedback, if there is room for it."""
        shown = show_result(self.interface, record, self._documents.get(record.call.name))
        return shown if self._allowance.adds(len(shown) - len(record.result)) else record.result

    def _message_text(self, message: Message) -> str:
        content = _marks_of(self.dialect).broken_up(message.content)
        return self.dialect.render_result(content) if message.role == self.dialect.result_role else content

    def _info(self, messages: list[Message]) -> dict[str, Any]:
        info: dict[str, Any] = {"task": self.task.id, "turn": self.turn, "messages": tuple(messages)}
        if self._diagnosis is not None:
            info["success"] = self.success
            info["diagnosis"] = self._diagnosis
        return info
