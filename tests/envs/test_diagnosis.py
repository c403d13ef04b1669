"""Labels: agreement on labelled perturbations with the confusion table, and every rule on a case made for it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from envs.bfcl.tasks import get_task
from envs.diagnosis import Flag, Label, TurnDiagnosis
from envs.dialogue import Protocol
from envs.task import Task, ToolCall
from tests.envs.perturbations import sample
from tests.envs.perturbing import BROKEN, truth
from tests.envs.players import Action, play

FILES = "multi_turn_base_0"
"""Turn 0: cd(document), mkdir(temp), mv(final_report.pdf → temp)."""
ALWAYS_APPLIES = {Label.PASS, Label.CORRECT_ABSTENTION, Label.SPURIOUS_TOOL_CALL, Label.NOT_REACHED}
"""Labels expected whatever the verdict; the others name a failure, and are expected where the turn failed."""


def test_labels_agree_with_what_was_done(record_property: Callable[[str, object], None]) -> None:
    confusion: Counter[tuple[Label, Label]] = Counter()
    for trajectory in sample(per_kind=100, seed=2):
        if trajectory.expected is None:
            continue
        turn = play(trajectory.task, trajectory.turns).diagnosis.turns[trajectory.turn]
        if trajectory.expected in ALWAYS_APPLIES or not turn.verdict.passed:
            confusion[trajectory.expected, turn.label] += 1
            assert trajectory.expected_flags <= turn.flags
    agreed = sum(count for (expected, found), count in confusion.items() if expected is found)
    rows = [f"{expected:20} labelled {found:20} {count:4}" for (expected, found), count in sorted(confusion.items())]
    record_property("table", "\n".join([*rows, f"agreement {agreed} of {confusion.total()}"]))
    assert confusion.total() >= 2000
    assert {expected for expected, _ in confusion} == set(Label)
    assert agreed > 0.99 * confusion.total()


def first_turn(task: Task, actions: list[Action], protocol: Protocol = Protocol.OFFICIAL) -> TurnDiagnosis:
    return play(task, [actions, *truth(task)[1:]], protocol=protocol).diagnosis.turns[0]


@pytest.fixture
def files() -> Task:
    return get_task(FILES)


def calls(*named: tuple[str, dict[str, object]]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(name, arguments) for name, arguments in named)


def test_a_turn_that_passes_has_recovered_only_where_a_later_call_made_it_good(files: Task) -> None:
    right, unknown = files.turns[0].ground_truth, calls(("no_such_tool", {}))
    assert first_turn(files, [right, unknown]).flags == frozenset()
    assert first_turn(files, [unknown, right]).flags == {Flag.RECOVERED}
    assert first_turn(files, [right, BROKEN], Protocol.SEAL).flags == frozenset()
    repaired = first_turn(files, [BROKEN, right], Protocol.SEAL)
    assert (repaired.label, repaired.flags) == (Label.PASS, frozenset({Flag.RECOVERED}))
    strange = get_task("multi_turn_base_173")  # whose ground truth breaks a schema, and nothing makes it good
    assert not any(turn.flags for turn in play(strange, truth(strange)).diagnosis.turns)


def test_state_before_response_and_inherited_before_both(files: Task) -> None:
    right = files.turns[0].ground_truth
    wrong = calls(("touch", {"file_name": "x.txt"}))
    dialogue = play(files, [[right, wrong], *truth(files)[1:]])
    first, second = dialogue.diagnosis.turns[:2]
    assert (first.label, first.detail) == (Label.STATE_MISMATCH, "GorillaFileSystem.root")
    assert (second.label, second.detail) == (Label.INHERITED_STATE, "GorillaFileSystem.root")
    turns = truth(files)
    turns[1] = [calls(("cd", {"folder": "temp"}), ("grep", {"file_name": "final_report.pdf", "pattern": "q"}))]
    turn = play(files, turns).diagnosis.turns[1]
    assert (turn.label, turn.detail) == (Label.RESPONSE_MISMATCH, "1 missing")


TEMPTING = "multi_turn_miss_func_16"
"""A task whose first turn needs no call."""
NOWHERE, FOUND = ("cd", {"folder": "nowhere"}), ("cd", {"folder": "document"})
CASES: dict[str, tuple[str, tuple[Any, ...], tuple[Any, ...]]] = {
    "a parse error": (FILES, (BROKEN,), (Label.INVALID_TOOL_CALL, "parse_error")),
    "a parse error, repaired by any call": (FILES, (BROKEN, ("pwd", {})), (Label.MISSING_TOOL_CALL,)),
    "a wrong type, and another tool": (FILES, (("cd", {"folder": 3}), ("pwd", {})), (Label.ARGUMENT_MISMATCH, "type")),
    "a wrong type": (FILES, (("cd", {"folder": 3}),), (Label.ARGUMENT_MISMATCH, "type", "cd", "folder")),
    "nothing given": (FILES, (("mkdir", {}),), (Label.ARGUMENT_MISMATCH, "missing", "mkdir", "dir_name")),
    "a type, repaired by the same tool": (
        FILES,
        (("cd", {"folder": 3}), FOUND),
        (Label.MISSING_TOOL_CALL, "needed_tool", "mkdir"),
    ),
    "an error of a well-formed call": (FILES, (NOWHERE,), (Label.RECOVERY_FAILURE, "", "cd")),
    "an error, repaired": (FILES, (NOWHERE, FOUND), (Label.MISSING_TOOL_CALL,)),
    "an unknown tool": (FILES, (("chdir", {}),), (Label.INVALID_TOOL_CALL, "unknown_tool", "chdir")),
    "an unknown tool, repaired by any call": (FILES, (("chdir", {}), ("pwd", {})), (Label.MISSING_TOOL_CALL,)),
    "a spurious read": (TEMPTING, (("pwd", {}),), (Label.SPURIOUS_TOOL_CALL, "state_unchanged", "pwd")),
    "a spurious move": (TEMPTING, (("cd", {"folder": "research"}),), (Label.SPURIOUS_TOOL_CALL, "state_unchanged")),
    "a spurious change": (TEMPTING, (("touch", {"file_name": "x"}),), (Label.SPURIOUS_TOOL_CALL, "state_changed")),
}
"""By name: the task, the calls of its first turn, and the label, its detail, the tool and the argument."""


@pytest.mark.parametrize("name", CASES)
def test_each_rule_on_a_case_made_for_it(name: str) -> None:
    task, done, expected = CASES[name]
    actions = [each if isinstance(each, str) else calls(each) for each in done]
    turn = first_turn(get_task(task), actions, Protocol.SEAL)
    found = (turn.label, turn.detail, turn.tool, turn.argument)
    assert all(wanted in ("", one) for wanted, one in zip(expected, found, strict=False)), found


def test_labels_of_table_6_follow_from_the_verdict(files: Task) -> None:
    assert first_turn(files, []).paper_label == "empty_turn_model_response"
    assert first_turn(files, [files.turns[0].ground_truth]).paper_label == "pass"
    assert first_turn(files, [calls(("cd", {"folder": 3}))]).paper_label == "state_mismatch"
    for protocol in Protocol:
        unknown = first_turn(files, [calls(("chdir", {}))], protocol)
        assert unknown.paper_label == "state_mismatch", "a turn with calls is not empty"
    second = play(files, [*truth(files)[:1], [calls(("pwd", {}))], *truth(files)[2:]]).diagnosis.turns[1]
    assert second.paper_label == "response_mismatch"
    empty = get_task(TEMPTING)
    assert first_turn(empty, []).paper_label == "correct_abstention"
    assert first_turn(empty, [calls(("pwd", {}))]).paper_label == "spurious_tool_call"
    assert first_turn(empty, [BROKEN]).paper_label == "correct_abstention", "the official checker sees no call"
