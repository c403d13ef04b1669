"""Labels: agreement on labelled perturbations with the confusion table, and every rule on a case made for it."""

from collections import Counter
from collections.abc import Callable

import pytest

from envs.bfcl.tasks import get_task
from envs.diagnosis import Flag, Label, TurnDiagnosis
from envs.dialogue import Protocol
from envs.task import Task, ToolCall
from tests.envs.perturbations import sample
from tests.envs.perturbing import BROKEN, truth
from tests.envs.players import Action, play

ALWAYS_APPLIES = {Label.PASS, Label.CORRECT_ABSTENTION, Label.SPURIOUS_TOOL_CALL, Label.NOT_REACHED}
"""Labels expected whatever the verdict; the others name a failure, and are expected where the turn failed."""


def test_labels_agree_with_what_was_done(record_property: Callable[[str, object], None]) -> None:
    confusion: Counter[tuple[Label, Label]] = Counter()
    flags_missing = 0
    for trajectory in sample(per_kind=100, seed=2):
        if trajectory.expected is None:
            continue
        turn = play(trajectory.task, trajectory.turns).diagnosis.turns[trajectory.turn]
        if trajectory.expected in ALWAYS_APPLIES or not turn.verdict.passed:
            confusion[trajectory.expected, turn.label] += 1
            flags_missing += not trajectory.expected_flags <= set(map(str, turn.flags))
    agreed = sum(count for (expected, found), count in confusion.items() if expected is found)
    share = agreed / confusion.total()
    rows = [
        f"{expected:20} labelled {found:20} {count:4}{'' if expected is found else '   <-'}"
        for (expected, found), count in sorted(confusion.items())
    ]
    rows.append(f"agreement {agreed} of {confusion.total()} = {share:.2%}")
    record_property("table", "\n".join(rows))
    assert confusion.total() >= 2000
    assert {expected for expected, _ in confusion} == set(Label)
    assert share > 0.99
    assert flags_missing == 0


def first_turn(task: Task, actions: list[Action], protocol: Protocol = Protocol.OFFICIAL) -> TurnDiagnosis:
    return play(task, [actions, *truth(task)[1:]], protocol=protocol).diagnosis.turns[0]


@pytest.fixture
def files() -> Task:
    """Turn 0: cd(document), mkdir(temp), mv(final_report.pdf → temp)."""
    return get_task("multi_turn_base_0")


def calls(*named: tuple[str, dict[str, object]]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(name, arguments) for name, arguments in named)


def test_a_parse_error_stands_until_a_later_completion_calls_cleanly(files: Task) -> None:
    turn = first_turn(files, [BROKEN], Protocol.SEAL)
    assert (turn.label, turn.detail) == (Label.INVALID_TOOL_CALL, "parse_error")
    mended = first_turn(files, [BROKEN, files.turns[0].ground_truth], Protocol.SEAL)
    assert mended.label is Label.PASS
    assert mended.flags == {Flag.RECOVERED}


def test_a_turn_that_passes_has_recovered_only_where_a_later_call_made_it_good(files: Task) -> None:
    right, unknown = files.turns[0].ground_truth, calls(("no_such_tool", {}))
    assert first_turn(files, [right, unknown]).flags == frozenset()
    assert first_turn(files, [unknown, right]).flags == {Flag.RECOVERED}
    assert first_turn(files, [right, BROKEN], Protocol.SEAL).flags == frozenset()
    strange = get_task("multi_turn_base_173")  # whose ground truth breaks a schema, and nothing makes it good
    assert not any(turn.flags for turn in play(strange, truth(strange)).diagnosis.turns)


def test_an_unmended_schema_violation_names_tool_argument_and_kind(files: Task) -> None:
    turn = first_turn(files, [calls(("cd", {"folder": 3}))])
    assert (turn.label, turn.detail, turn.tool, turn.argument) == (Label.ARGUMENT_MISMATCH, "type", "cd", "folder")
    turn = first_turn(files, [calls(("mkdir", {}))])
    assert (turn.label, turn.detail, turn.argument) == (Label.ARGUMENT_MISMATCH, "missing", "dir_name")


def test_a_violation_mended_by_the_same_tool_gives_way_to_the_next_rule(files: Task) -> None:
    turn = first_turn(files, [calls(("cd", {"folder": 3}), ("cd", {"folder": "document"}))])
    assert (turn.label, turn.detail, turn.tool) == (Label.MISSING_TOOL_CALL, "needed_tool", "mkdir")


def test_an_error_of_a_wellformed_call_is_a_recovery_failure_unless_mended(files: Task) -> None:
    turn = first_turn(files, [calls(("cd", {"folder": "nowhere"}))])
    assert (turn.label, turn.tool) == (Label.RECOVERY_FAILURE, "cd")
    turn = first_turn(files, [calls(("cd", {"folder": "nowhere"}), ("cd", {"folder": "document"}))])
    assert turn.label is Label.MISSING_TOOL_CALL


def test_an_invalid_call_is_mended_by_any_clean_success(files: Task) -> None:
    turn = first_turn(files, [calls(("chdir", {"folder": "document"}))])
    assert (turn.label, turn.detail, turn.tool) == (Label.INVALID_TOOL_CALL, "unknown_tool", "chdir")
    turn = first_turn(files, [calls(("chdir", {}), ("pwd", {}))])
    assert turn.label is Label.MISSING_TOOL_CALL


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


def test_a_spurious_call_tells_whether_it_changed_the_state() -> None:
    task = get_task("multi_turn_miss_func_16")
    assert not task.turns[0].ground_truth
    read = first_turn(task, [calls(("pwd", {}))])
    assert (read.label, read.detail, read.tool) == (Label.SPURIOUS_TOOL_CALL, "state_unchanged", "pwd")
    moved = first_turn(task, [calls(("cd", {"folder": "research"}))])
    assert moved.detail == "state_unchanged", "the working directory is no state"
    changed = first_turn(task, [calls(("touch", {"file_name": "x"}))])
    assert changed.detail == "state_changed"


def test_labels_of_table_6_follow_from_the_verdict(files: Task) -> None:
    assert first_turn(files, []).paper_label == "empty_turn_model_response"
    assert first_turn(files, [files.turns[0].ground_truth]).paper_label == "pass"
    assert first_turn(files, [calls(("cd", {"folder": 3}))]).paper_label == "state_mismatch"
    second = play(files, [*truth(files)[:1], [calls(("pwd", {}))], *truth(files)[2:]]).diagnosis.turns[1]
    assert second.paper_label == "response_mismatch"
    empty = get_task("multi_turn_miss_func_16")
    assert first_turn(empty, []).paper_label == "correct_abstention"
    assert first_turn(empty, [calls(("pwd", {}))]).paper_label == "spurious_tool_call"
    assert first_turn(empty, [BROKEN]).paper_label == "correct_abstention", "the official checker sees no call"
