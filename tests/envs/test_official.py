"""The world against BFCL's own executor and checker: ground truths, thousands of perturbed trajectories, known gaps."""

import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from envs.bfcl.tasks import get_task, load_tasks
from envs.bfcl.world import simulators_of
from envs.task import ToolCall
from envs.verifier import Outcome, prepare
from tests.envs.official import Official, running
from tests.envs.perturbations import sample
from tests.envs.perturbing import KINDS, truth
from tests.envs.players import Action, calls_made, play, play_ground_truth, results_shown


@pytest.fixture(scope="module")
def official() -> Iterator[Official]:
    yield from running()


def test_every_ground_truth_succeeds_with_the_official_texts(official: Official) -> None:
    tasks = load_tasks().values()
    assert len(tasks) == 800
    for task in tasks:
        assert play_ground_truth(task).success, task.id
        ours = [list(turn.results) for turn in prepare(task).turns]
        assert ours == official.ground_truth_results(task), task.id


def set_sorted(text: str) -> str:
    """A text of the official executor with the one set that it prints in sorted order (see the known differences)."""
    return re.sub(r"Must be one of {[^}]*}", "Must be one of {'business', 'economy', 'first'}", text)


def test_perturbed_trajectories_get_the_official_verdict_and_texts(
    official: Official, record_property: Callable[[str, object], None]
) -> None:
    counts: Counter[str] = Counter()
    valid: Counter[str] = Counter()
    for trajectory in sample(per_kind=40, seed=1):
        dialogue = play(trajectory.task, trajectory.turns)
        calls = calls_made(dialogue)
        where = (trajectory.kind, trajectory.task.id, trajectory.turn)
        texts = [
            [[set_sorted(text) for text in step] for step in turn] for turn in official.results(trajectory.task, calls)
        ]
        assert texts == results_shown(dialogue), where
        if any(turn.verdict.outcome is Outcome.NOT_REACHED for turn in dialogue.diagnosis.turns):
            # The official runner fails a dialogue that was cut off before it asks the checker.
            assert not dialogue.success, where
        else:
            assert official.verdict(trajectory.task, calls).get("valid") is dialogue.success, where
        counts[trajectory.kind] += 1
        valid[trajectory.kind] += dialogue.success
    lines = [f"{kind:32} {counts[kind]:4} trajectories, {valid[kind]:3} valid" for kind in KINDS]
    record_property(
        "table", "\n".join([*lines, f"{counts.total()} in all; verdicts and texts equal the official ones"])
    )
    assert len(counts) >= 20
    assert counts.total() >= 1300


def test_a_cut_off_last_turn_is_judged_as_the_official_runner_does(official: Official) -> None:
    task = next(t for t in load_tasks().values() if t.classes == ("GorillaFileSystem",) and len(t.turns) == 3)
    turns = truth(task)
    turns[-1] += [(ToolCall("pwd", {}),)] * 25
    dialogue = play(task, turns)
    assert len(dialogue.trace.turns[-1]) == 21
    assert dialogue.success
    assert official.verdict(task, calls_made(dialogue))["valid"]


def _spurious_insurance() -> tuple[str, list[list[Action]]]:
    """An extension card pays for an insurance that nobody asked for."""
    task = next(task for task in load_tasks().values() if simulators_of(task).padded and "TravelAPI" in task.classes)
    insurance = ToolCall(
        "purchase_insurance",
        {
            "access_token": simulators_of(task).initial_config["TravelAPI"]["access_token"],
            "insurance_type": "basic",
            "booking_id": "booking_901",
            "insurance_cost": 5.0,
            "card_id": "1234567812345678",
        },
    )
    turns = truth(task)
    turns[0] = [(insurance,), *turns[0]]
    assert '"insurance_status": true' in results_shown(play(task, turns))[0][0][0]
    return task.id, turns


def _wrong_travel_class() -> tuple[str, list[list[Action]]]:
    """A flight in a class that does not exist."""
    task = next(task for task in load_tasks().values() if "TravelAPI" in task.classes)
    config = simulators_of(task).initial_config["TravelAPI"]
    booking = ToolCall(
        "book_flight",
        {
            "access_token": config["access_token"],
            "card_id": next(iter(config["credit_card_list"])),
            "travel_date": "2026-12-01",
            "travel_from": "SFO",
            "travel_to": "LAX",
            "travel_class": "luxury",
        },
    )
    turns = truth(task)
    turns[0] = [(booking,), *turns[0]]
    assert "Invalid travel class" in results_shown(play(task, turns))[0][0][0]
    return task.id, turns


def _text_with_a_call_in_it() -> tuple[str, list[list[Action]]]:
    """A string that holds the text of a call."""
    task = get_task("multi_turn_base_0")
    turns = truth(task)
    turns[0] = [(ToolCall("echo", {"content": "then use cd(folder) to go there"}),), *turns[0]]
    return task.id, turns


def _builtin_as_a_tool() -> tuple[str, list[list[Action]]]:
    """Python's `dict`, as a tool."""
    task = get_task("multi_turn_base_0")
    turns = truth(task)
    turns[0] = [(ToolCall("dict", {"a": 1}),), *turns[0]]
    return task.id, turns


def _blanks_around_a_name() -> tuple[str, list[list[Action]]]:
    """A tool's name with a blank behind it, which means nothing in source text."""
    task = get_task("multi_turn_base_0")
    turns = truth(task)
    first, *others = turns[0]
    assert isinstance(first, tuple)
    call, *more = first
    turns[0] = [(ToolCall(f"{call.name} ", call.arguments), *more), *others]
    assert not play(task, turns).success
    return task.id, turns


KNOWN_DIFFERENCES: dict[str, tuple[Callable[[], tuple[str, list[list[Action]]]], str]] = {
    "spurious insurance on an extension card": (
        _spurious_insurance,
        "the official padding shares its cards between the model's simulators and the ground truth's, so a charge on "
        "one shows on both; here the state is wrong",
    ),
    "a travel class that does not exist": (
        _wrong_travel_class,
        "the official text prints a set, in an order that differs from process to process; here it is sorted",
    ),
    "a string that holds the text of a call": (
        _text_with_a_call_in_it,
        "the official executor rewrites tool names inside strings too; here a string stays as it is",
    ),
    "a Python builtin as a tool": (
        _builtin_as_a_tool,
        "the official executor evaluates any name; here a tool that is not documented does not exist",
    ),
    "blanks around a tool's name": (
        _blanks_around_a_name,
        "the official executor pastes the name into source text, where blanks mean nothing; here it is another name",
    ),
}


@pytest.mark.parametrize("name", KNOWN_DIFFERENCES)
def test_known_differences_from_the_official_code_are_as_described(
    name: str, official: Official, record_property: Callable[[str, object], None]
) -> None:
    make, explanation = KNOWN_DIFFERENCES[name]
    task_id, turns = make()
    task = get_task(task_id)
    dialogue = play(task, turns)
    calls = calls_made(dialogue)
    same_texts = official.results(task, calls) == results_shown(dialogue)
    same_verdict = official.verdict(task, calls)["valid"] is dialogue.success
    assert not (same_texts and same_verdict), "the difference is gone: remove it from the list"
    record_property("table", f"{name}: {explanation} (texts equal: {same_texts}, verdicts equal: {same_verdict})")
