"""Diagnosis Ψ: one label for every user turn, by fixed rules over the trace. Labels never change the reward."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from envs.task import Turn
from envs.text import valid_text
from envs.trace import Availability, CallRecord, Step
from envs.verifier import Outcome, TruthTurn, TurnVerdict

PARSE_ERROR = "parse_error"
"""The detail if a completion could not be parsed."""


class Label(StrEnum):
    """The diagnosis of a turn."""

    PASS = "pass"
    CORRECT_ABSTENTION = "correct_abstention"
    """Nothing was called, and nothing should have been."""
    SPURIOUS_TOOL_CALL = "spurious_tool_call"
    """Something was called although nothing should have been."""
    INVALID_TOOL_CALL = "invalid_tool_call"
    """A call could not be parsed or its tool is not available, and the turn did not repair it."""
    ARGUMENT_MISMATCH = "argument_mismatch"
    """A call broke its tool's public schema, and the turn did not repair it."""
    RECOVERY_FAILURE = "recovery_failure"
    """A well-formed call failed, and the turn ended without a success of that tool."""
    MISSING_TOOL_CALL = "missing_tool_call"
    """A needed tool, or any tool at all, was never called."""
    INHERITED_STATE = "inherited_state"
    """The turn did its part, but the state was wrong before it began."""
    STATE_MISMATCH = "state_mismatch"
    RESPONSE_MISMATCH = "response_mismatch"
    NOT_REACHED = "not_reached"
    """The dialogue ended before this turn, or a token budget cut it off."""

    @property
    def is_done(self) -> bool:
        """Whether the turn passed, or rightly called nothing."""
        return self in (Label.PASS, Label.CORRECT_ABSTENTION)

    @property
    def is_failure(self) -> bool:
        """Whether the solver did something wrong in the turn."""
        return not self.is_done and self is not Label.NOT_REACHED


class Flag(StrEnum):
    """An event that is counted in addition to the label."""

    RECOVERED = "recovered"
    """An error was repaired within the turn."""
    HIDDEN_TOOL = "hidden_tool"
    """A tool was called whose document had not been shown."""


@dataclass(frozen=True, slots=True)
class TurnDiagnosis:
    """The diagnosis of one turn; `detail` narrows the label, `tool` and `argument` name the ones concerned, if any."""

    turn: int
    label: Label
    detail: str
    verdict: TurnVerdict
    flags: frozenset[Flag] = frozenset()
    tool: str | None = None
    argument: str | None = None

    @property
    def paper_label(self) -> str:
        """The label of SEAL's Table 6 (arXiv 2605.24426).

        A turn before the last of a task with a goal is not in that table; calls in it are "pass", which weighs 1.
        """
        match self.verdict.outcome:
            case Outcome.EMPTY_TURN:
                return "empty_turn_model_response"
            case Outcome.UNSCORED:
                if self.label is Label.SPURIOUS_TOOL_CALL:
                    return "spurious_tool_call"
                # The official checker does not count a call that cannot be read.
                unread = self.label is Label.INVALID_TOOL_CALL and self.detail == PARSE_ERROR
                return "correct_abstention" if unread or self.label is Label.CORRECT_ABSTENTION else "pass"
            case outcome:
                return str(outcome)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The diagnosis Z(τ) of one dialogue, with one entry per turn of the task."""

    task_id: str
    category: str
    turns: tuple[TurnDiagnosis, ...]
    success: bool

    @property
    def labels(self) -> tuple[Label, ...]:
        return tuple(turn.label for turn in self.turns)


def diagnose_turn(
    turn: Turn,
    steps: Sequence[Step],
    truth: TruthTurn,
    verdict: TurnVerdict,
    *,
    changed_state: bool,
    seen: Callable[[str], bool],
    by_goal: bool = False,
) -> TurnDiagnosis:
    """Labels one turn that has its verdict; the first rule that matches wins.

    `changed_state`, whether the public state changed in the turn, is used only if the turn has no ground truth. `seen`
    says whether a result text has appeared in the dialogue so far, this turn included. `by_goal` says that the task is
    judged by its final state: any call is allowed, and none is needed.
    """
    play = _Play(steps)
    finding = (
        _without_ground_truth(turn, play, verdict, changed_state, by_goal=by_goal)
        or (_Finding(Label.PASS) if verdict.passed else None)
        or play.unrepaired_error(truth)
        or _wrong_end(turn, play, truth, verdict, seen, by_goal=by_goal)
    )
    flags = {Flag.HIDDEN_TOOL} if any(r.availability is Availability.HIDDEN for r in play.records) else set()
    if finding.label is Label.PASS and play.recovered:
        flags.add(Flag.RECOVERED)
    tool, argument = (None if name is None else valid_text(name) for name in (finding.tool, finding.argument))
    return TurnDiagnosis(verdict.turn, finding.label, finding.detail, verdict, frozenset(flags), tool, argument)


@dataclass(frozen=True, slots=True)
class _Finding:
    label: Label
    detail: str = ""
    tool: str | None = None
    argument: str | None = None


class _Play:
    """The calls of a turn, and which errors a later call repaired.

    A later clean success of the same tool repairs an error or a schema violation; one of any tool repairs a call of a
    tool that is not available.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.records = [record for step in steps for record in step.calls]
        # A turn may hold thousands of calls: these indices keep all checks linear.
        self._last_clean = {record.call.name: index for index, record in enumerate(self.records) if record.clean}
        self._last_clean_of_any = max(self._last_clean.values(), default=-1)
        clean_steps = (at for at, step in enumerate(steps) if any(r.clean for r in step.calls))
        self._last_clean_step = max(0, max(clean_steps, default=-1))

    @property
    def unread(self) -> bool:
        """Whether a completion of the turn could not be parsed."""
        return any(step.parse_errors for step in self.steps)

    @property
    def recovered(self) -> bool:
        """Whether an error was repaired."""
        return any(step.parse_errors for step in self.steps[: self._last_clean_step]) or any(
            not record.clean and self._repaired(index, record) for index, record in enumerate(self.records)
        )

    def unrepaired_error(self, truth: TruthTurn) -> _Finding | None:
        if any(step.parse_errors for step in self.steps[self._last_clean_step :]):
            return _Finding(Label.INVALID_TOOL_CALL, PARSE_ERROR)
        broken = [record for index, record in enumerate(self.records) if not self._repaired(index, record)]
        for record in broken:
            if record.availability is not Availability.SHOWN:
                return _Finding(Label.INVALID_TOOL_CALL, f"{record.availability}_tool", record.call.name)
        for index, record in enumerate(self.records):
            if record.violations and self._last_clean.get(record.call.name, -1) < index:
                violation = record.violations[0]
                return _Finding(Label.ARGUMENT_MISMATCH, violation.detail, record.call.name, violation.argument)
        wanted = [text for text, is_error in zip(truth.results, truth.errors, strict=True) if is_error]
        for record in broken:
            # A few ground truths cause the very error.
            if record.is_error and not record.violations and not any(map(record.returned, wanted)):
                return _Finding(Label.RECOVERY_FAILURE, "error_result", record.call.name)
        return None

    def _repaired(self, index: int, record: CallRecord) -> bool:
        of_tool = record.availability is Availability.SHOWN
        by = self._last_clean.get(record.call.name, -1) if of_tool else self._last_clean_of_any
        return by > index


def _without_ground_truth(
    turn: Turn, play: _Play, verdict: TurnVerdict, changed_state: bool, *, by_goal: bool
) -> _Finding | None:
    """The finding of a turn in which nothing has to be called; None if something has to, or may, be called."""
    if by_goal:
        idle = not play.records and not verdict.scorable and not play.unread
        return _Finding(Label.CORRECT_ABSTENTION) if idle else None
    if turn.ground_truth:
        return None
    if play.records:
        detail = "state_changed" if changed_state else "state_unchanged"
        return _Finding(Label.SPURIOUS_TOOL_CALL, detail, play.records[0].call.name)
    return _Finding(Label.INVALID_TOOL_CALL, PARSE_ERROR) if play.unread else _Finding(Label.CORRECT_ABSTENTION)


def _wrong_end(
    turn: Turn, play: _Play, truth: TruthTurn, verdict: TurnVerdict, seen: Callable[[str], bool], *, by_goal: bool
) -> _Finding:
    """The finding of a turn that ended without an error and did not pass."""
    if by_goal:
        return _Finding(Label.STATE_MISMATCH, "goal") if verdict.scorable else _Finding(Label.PASS)
    if not play.records:
        return _Finding(Label.MISSING_TOOL_CALL, "no_call", turn.ground_truth[0].name)
    called = {record.call.name for record in play.records}
    for call, text in zip(turn.ground_truth, truth.results, strict=True):
        if call.name not in called and not seen(text):
            return _Finding(Label.MISSING_TOOL_CALL, "needed_tool", call.name)
    wrong, new = verdict.wrong_state, verdict.wrong_state - verdict.wrong_before
    if wrong and not new and not verdict.missing_results:
        return _Finding(Label.INHERITED_STATE, ",".join(sorted(wrong)))
    if wrong:
        return _Finding(Label.STATE_MISMATCH, ",".join(sorted(new or wrong)))
    return _Finding(Label.RESPONSE_MISMATCH, f"{len(verdict.missing_results)} missing")
