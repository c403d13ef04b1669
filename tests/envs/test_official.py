"""The world against BFCL's own executor and checker: ground truths, thousands of perturbed trajectories, known gaps."""

import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from envs.bfcl.tasks import get_task, load_tasks
from envs.bfcl.world import simulators_of
from envs.task import JSON, Task, ToolCall
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
        results = official.results(trajectory.task, calls)
        texts = [[[set_sorted(text) for text in step] for step in turn] for turn in results]
        assert texts == results_shown(dialogue), where
        if any(turn.verdict.outcome is Outcome.NOT_REACHED for turn in dialogue.diagnosis.turns):
            # The official runner fails a dialogue that was cut off before it asks the checker.
            assert not dialogue.success, where
        else:
            assert official.verdict(trajectory.task, calls).get("valid") is dialogue.success, where
        counts[trajectory.kind] += 1
        valid[trajectory.kind] += dialogue.success
    lines = [f"{kind:32} {counts[kind]:4} trajectories, {valid[kind]:3} valid" for kind in KINDS]
    lines.append(f"{counts.total()} in all; verdicts and texts equal the official ones")
    record_property("table", "\n".join(lines))
    assert counts.keys() == set(KINDS)
    assert counts.total() == 1400


def test_a_cut_off_last_turn_is_judged_as_the_official_runner_does(official: Official) -> None:
    task = next(t for t in load_tasks().values() if t.classes == ("GorillaFileSystem",) and len(t.turns) == 3)
    turns = truth(task)
    turns[-1] += [(ToolCall("pwd", {}),)] * 25
    dialogue = play(task, turns)
    assert len(dialogue.trace.turns[-1]) == 21
    assert dialogue.success
    assert official.verdict(task, calls_made(dialogue))["valid"]


def begun_with(task: Task, call: ToolCall) -> tuple[Task, list[list[Action]]]:
    """The task's ground truth behind another call."""
    turns = truth(task)
    turns[0] = [(call,), *turns[0]]
    return task, turns


def travelling(tool: str, *, padded: bool = False, **arguments: JSON) -> tuple[Task, list[list[Action]]]:
    """A first task with travels, whose ground truth begins with a call of this tool, paid by its first card."""
    tasks = (task for task in load_tasks().values() if "TravelAPI" in task.classes)
    task = next(task for task in tasks if simulators_of(task).padded or not padded)
    config = simulators_of(task).initial_config["TravelAPI"]
    known = {"access_token": config["access_token"], "card_id": next(iter(config["credit_card_list"]))}
    return begun_with(task, ToolCall(tool, {**known, **arguments}))


def blanks_around_a_name(task: Task) -> tuple[Task, list[list[Action]]]:
    """The ground truth, its first call by a name with a space after it."""
    turns = truth(task)
    (call, *more) = task.turns[0].ground_truth
    turns[0] = [(ToolCall(f"{call.name} ", call.arguments), *more)]
    return task, turns


INSURANCE: dict[str, JSON] = {"insurance_type": "basic", "booking_id": "booking_901", "insurance_cost": 5.0}
FLIGHT: dict[str, JSON] = {
    "travel_date": "2026-12-01",
    "travel_from": "SFO",
    "travel_to": "LAX",
    "travel_class": "luxury",
}
FILES = get_task("multi_turn_base_0")
KNOWN_DIFFERENCES: dict[str, tuple[tuple[Task, list[list[Action]]], str, str]] = {
    "spurious insurance on an extension card": (
        travelling("purchase_insurance", padded=True, card_id="1234567812345678", **INSURANCE),
        '"insurance_status": true',
        "the official padding shares its cards between the model's simulators and the ground truth's, so a charge on "
        "one shows on both; here the state is wrong",
    ),
    "a travel class that does not exist": (
        travelling("book_flight", **FLIGHT),
        "Invalid travel class",
        "the official text prints a set, in an order that differs from process to process; here it is sorted",
    ),
    "a string that holds the text of a call": (
        begun_with(FILES, ToolCall("echo", {"content": "then use cd(folder) to go there"})),
        "then use cd(folder) to go there",
        "the official executor rewrites tool names inside strings too; here a string stays as it is",
    ),
    "a Python builtin as a tool": (
        begun_with(FILES, ToolCall("dict", {"a": 1})),
        "name 'dict' is not defined",
        "the official executor evaluates any name; here a tool that is not documented does not exist",
    ),
    "blanks around a tool's name": (
        blanks_around_a_name(FILES),
        "invalid syntax",
        "the official executor pastes the name into source text, where blanks mean nothing; here it is another name",
    ),
}


@pytest.mark.parametrize("name", KNOWN_DIFFERENCES)
def test_known_differences_from_the_official_code_are_as_described(
    name: str, official: Official, record_property: Callable[[str, object], None]
) -> None:
    (task, turns), shown, explanation = KNOWN_DIFFERENCES[name]
    dialogue = play(task, turns)
    calls = calls_made(dialogue)
    assert shown in results_shown(dialogue)[0][0][0]
    same_texts = official.results(task, calls) == results_shown(dialogue)
    same_verdict = official.verdict(task, calls)["valid"] is dialogue.success
    assert not (same_texts and same_verdict), "the difference is gone: remove it from the list"
    record_property("table", f"{name}: {explanation} (texts equal: {same_texts}, verdicts equal: {same_verdict})")
