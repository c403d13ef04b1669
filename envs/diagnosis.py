"""Diagnosis Ψ: one label for every user turn, by a fixed rule list over the trace. Labels never change the reward.

The rules read what happened (trace), what should have (task and executed ground truth) and how the verifier judged it.
They are deterministic, and the first that matches wins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from envs.task import Turn
from envs.text import valid_text
from envs.trace import Availability, CallRecord, Step
from envs.verifier import Outcome, TruthTurn, TurnVerdict

PARSE_ERROR = "parse_error"
"""The detail of a label where a completion could not be read."""


class Label(StrEnum):
    """What a turn shows about the solver."""

    PASS = "pass"
    CORRECT_ABSTENTION = "correct_abstention"
    """Nothing was called where nothing should be."""
    SPURIOUS_TOOL_CALL = "spurious_tool_call"
    """Something was called where nothing should be."""
    INVALID_TOOL_CALL = "invalid_tool_call"
    """A call could not be read, or named a tool that is not there, and this was not made good."""
    ARGUMENT_MISMATCH = "argument_mismatch"
    """A call broke its tool's public schema, and this was not made good."""
    RECOVERY_FAILURE = "recovery_failure"
    """A well-formed call failed, and the turn ended without a success of that tool."""
    MISSING_TOOL_CALL = "missing_tool_call"
    """A needed tool, or any tool at all, was never called."""
    INHERITED_STATE = "inherited_state"
    """This turn did its part; the state was wrong before it began."""
    STATE_MISMATCH = "state_mismatch"
    RESPONSE_MISMATCH = "response_mismatch"
    NOT_REACHED = "not_reached"
    """The dialogue ended before this turn, or a token budget cut it off."""

    @property
    def is_done(self) -> bool:
        """Whether the turn passed, or nothing was called where nothing should be."""
        return self in (Label.PASS, Label.CORRECT_ABSTENTION)

    @property
    def is_failure(self) -> bool:
        """Whether the solver did something wrong in the turn."""
        return not self.is_done and self is not Label.NOT_REACHED


class Flag(StrEnum):
    """An event that is counted beside the label."""

    RECOVERED = "recovered"
    """An error was made good within the turn."""
    HIDDEN_TOOL = "hidden_tool"
    """A tool was called whose document had not been shown."""


@dataclass(frozen=True, slots=True)
class TurnDiagnosis:
    """The diagnosis of one turn.

    `detail` narrows the label down (for instance which kind of schema violation); `tool` and `argument` name what it is
    about where it is about one; `verdict` is the verifier's.
    """

    turn: int
    label: Label
    detail: str
    verdict: TurnVerdict
    flags: frozenset[Flag] = frozenset()
    tool: str | None = None
    argument: str | None = None

    @property
    def paper_label(self) -> str:
        """The label of SEAL's Table 6 (arXiv 2605.24426), which follows from the verdict and what was called.

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
    """The diagnosis of one dialogue: Z(τ), one entry for every turn of the task."""

    task_id: str
    category: str
    turns: tuple[TurnDiagnosis, ...]
    success: bool

    @property
    def labels(self) -> tuple[Label, ...]:
        return tuple(turn.label for turn in self.turns)

    @property
    def label_shares(self) -> dict[Label, float]:
        """p(z): the share of turns with each label that occurs (SEAL eq. 10)."""
        return {label: count / len(self.turns) for label, count in Counter(self.labels).items()}


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
    """Labels one turn that has its verdict.

    An error or breach is made good by a later clean success of the same tool in the turn; a tool that is not there, by
    one of any tool.

    `steps` are the turn's, in order; `truth` is what its ground truth does; `changed_state` says whether the public
    state differs between its start and its end (read only where the turn has no ground truth); `seen` tells whether a
    result text has appeared in the dialogue so far, this turn included. `by_goal` says that the task is judged by its
    final state: then calls are right in any turn, and no call or result is needed.
    """
    records = [record for step in steps for record in step.calls]
    # A turn may hold thousands of calls, so that nothing here may look at all later ones for each.
    last_clean = {record.call.name: index for index, record in enumerate(records) if record.clean}
    last_clean_of_any = max(last_clean.values(), default=-1)
    last_clean_step = max((at for at, step in enumerate(steps) if any(r.clean for r in step.calls)), default=-1)

    def made_good(index: int, record: CallRecord) -> bool:
        by = (
            last_clean_of_any if record.availability is not Availability.SHOWN else last_clean.get(record.call.name, -1)
        )
        return by > index

    mended = any(step.parse_errors for step in steps[: max(last_clean_step, 0)]) or any(
        not record.clean and made_good(index, record) for index, record in enumerate(records)
    )
    hidden = {Flag.HIDDEN_TOOL} if any(r.availability is Availability.HIDDEN for r in records) else set()

    def result(
        label: Label, detail: str = "", *, tool: str | None = None, argument: str | None = None
    ) -> TurnDiagnosis:
        recovered = {Flag.RECOVERED} if label is Label.PASS and mended else set()
        tool, argument = (None if name is None else valid_text(name) for name in (tool, argument))
        return TurnDiagnosis(verdict.turn, label, detail, verdict, frozenset(hidden | recovered), tool, argument)

    if by_goal:
        if not records and not verdict.scorable and not any(step.parse_errors for step in steps):
            return result(Label.CORRECT_ABSTENTION)
    elif not turn.ground_truth:
        if records:
            detail = "state_changed" if changed_state else "state_unchanged"
            return result(Label.SPURIOUS_TOOL_CALL, detail, tool=records[0].call.name)
        if any(step.parse_errors for step in steps):
            return result(Label.INVALID_TOOL_CALL, PARSE_ERROR)
        return result(Label.CORRECT_ABSTENTION)
    if verdict.passed:
        return result(Label.PASS)

    if any(step.parse_errors for step in steps[max(last_clean_step, 0) :]):
        return result(Label.INVALID_TOOL_CALL, PARSE_ERROR)
    for index, record in enumerate(records):
        if record.availability is not Availability.SHOWN and not made_good(index, record):
            return result(Label.INVALID_TOOL_CALL, f"{record.availability}_tool", tool=record.call.name)
    for index, record in enumerate(records):
        if record.violations and last_clean.get(record.call.name, -1) < index:
            violation = record.violations[0]
            return result(
                Label.ARGUMENT_MISMATCH, str(violation.kind), tool=record.call.name, argument=violation.argument
            )
    for index, record in enumerate(records):
        well_formed = record.availability is Availability.SHOWN and not record.violations
        if well_formed and record.is_error and not made_good(index, record):
            if not _error_is_wanted(record, truth):
                return result(Label.RECOVERY_FAILURE, "error_result", tool=record.call.name)
    if by_goal:
        return result(Label.STATE_MISMATCH, "goal") if verdict.scorable else result(Label.PASS)
    if not records:
        return result(Label.MISSING_TOOL_CALL, "no_call", tool=turn.ground_truth[0].name)
    needed = _needed_and_never_called(turn, truth, records, seen)
    if needed is not None:
        return result(Label.MISSING_TOOL_CALL, "needed_tool", tool=needed)
    if verdict.wrong_state and verdict.wrong_state <= verdict.wrong_before and not verdict.missing_results:
        return result(Label.INHERITED_STATE, ",".join(sorted(verdict.wrong_state)))
    if verdict.wrong_state:
        new = verdict.wrong_state - verdict.wrong_before
        return result(Label.STATE_MISMATCH, ",".join(sorted(new or verdict.wrong_state)))
    return result(Label.RESPONSE_MISMATCH, f"{len(verdict.missing_results)} missing")


def _error_is_wanted(record: CallRecord, truth: TruthTurn) -> bool:
    """Whether the ground truth itself brings this very error about (a few do)."""
    return any(is_error and record.returned(text) for text, is_error in zip(truth.results, truth.errors, strict=True))


def _needed_and_never_called(
    turn: Turn, truth: TruthTurn, records: Sequence[CallRecord], seen: Callable[[str], bool]
) -> str | None:
    """The first ground-truth tool that was not called in the turn and whose result has not appeared earlier either."""
    called = {record.call.name for record in records}
    for call, text in zip(turn.ground_truth, truth.results, strict=True):
        if call.name not in called and not seen(text):
            return call.name
    return None
