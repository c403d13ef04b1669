"""The cost of a step and a dialogue: the search of `hostile_calls`, its finds, and the bounds."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from envs.allowance import CHARACTERS_A_TOKEN, DIALOGUE_KEPT, MAX_COMPLETION, STEP_WORK
from envs.bfcl.tasks import get_task, load_tasks
from envs.bfcl.world import Simulators, SimulatorWorld
from envs.diagnosis import Label, diagnose_turn
from envs.dialogue import CONTEXT, Protocol
from envs.task import JSON, ToolCall
from envs.toolworld import generate
from envs.toolworld.words import SPLITS
from envs.trace import Availability, CallRecord, Step
from envs.verifier import Outcome, TruthTurn, TurnVerdict, prepare
from envs.world import World
from tests.bench.hostile_calls import COMPACT, FEEDBACK, everything, filled
from tests.bench.hostile_states import call
from tests.envs.players import begun, play_ground_truth, records, results_shown

STEP_S = 1.0
STEP_MIB = 64
DIALOGUE_MIB = 256
NOT_EXECUTED, SHOWN = "not executed", Availability.SHOWN


@pytest.mark.parametrize(
    ("part", "measure", "every"), [("arguments", "time", 128), ("grown", "time", 40), ("accumulated", "memory", 7)]
)
def test_the_search_finds_no_step_that_costs_too_much(part: str, measure: str, every: int) -> None:
    command = [sys.executable, "-m", "tests.bench.hostile_calls", part, measure, str(every)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"{done.returncode} after {done.stderr[-2_000:]}"
    found = json.loads(done.stdout)
    assert found["steps"] > 10
    assert found["step"] < (STEP_S if measure == "time" else STEP_MIB), found
    assert found["held"] < DIALOGUE_MIB, found


def world(name: str, calls: Sequence[ToolCall] = (), *, padded: bool = False, **config: JSON) -> SimulatorWorld:
    made = Simulators((name,), {name: config}, padded=padded).ready()()
    for each in calls:
        made.execute(each)
    return made


LOGIN = call("ticket_login", username="é" * 20_000, password="p")


def logarithm(value: JSON, base: JSON) -> tuple[Callable[[], SimulatorWorld], ToolCall]:
    return lambda: world("MathAPI"), call("logarithm", value=value, base=base, precision=10)


FOUND: dict[str, tuple[Callable[[], SimulatorWorld], ToolCall]] = {
    "an exponent of a thousand digits": logarithm("1e" + "9" * 1_000, 2),
    "mpmath's pattern for complex numbers": logarithm("1" * 30_000 + "jx", 2),
    "a text times a rate": (
        lambda: world("TravelAPI"),
        call("compute_exchange_rate", base_currency="USD", target_currency="JPY", value="\U000e0001" * 90_000),
    ),
    "copies of a large file": (
        lambda: world(
            "GorillaFileSystem",
            [call("touch", file_name="a"), call("echo", content="é" * 70_000, file_name="a")]
            + [call("cp", source="a", destination=f"a{index}") for index in range(1_900)],
        ),
        call("du"),
    ),
    "a long user name in every ticket": (
        lambda: world("TicketAPI", [LOGIN, *[call("create_ticket", title="x")] * 1_000]),
        call("get_user_tickets"),
    ),
    "one list in every tweet": (
        lambda: world(
            "TwitterAPI",
            [*[call("post_tweet", content="x")] * 700, call("mention", tweet_id=0, mentioned_usernames=["x"] * 9_000)],
            authenticated=True,
            username="john",
        ),
        call("get_user_tweets", username="john"),
    ),
}
"""Calls that ran for seconds to hours, or wrote tens of megabytes; each in a state that its calls can bring about."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_is_refused_at_once_and_changes_nothing(name: str) -> None:
    make, made = FOUND[name]
    target = make()
    before = repr(target.state())[:100_000]
    started = time.thread_time()
    result = target.execute(made)
    assert time.thread_time() - started < 0.1
    assert result.is_error
    assert "too much" in result.text or "too long" in result.text or "too large" in result.text
    assert repr(target.state())[:100_000] == before


def test_messages_whose_ids_are_used_up_are_refused() -> None:
    send = call("send_message", receiver_id="USR002", message="x")
    for used, said in ((set(range(10_000, 100_000)), "too much"), (set[int](), "sent")):
        target = world("MessageAPI", current_user="USR001", generated_ids=used)
        assert said in target.execute(send).text


def test_calls_beyond_the_allowance_change_nothing_and_are_told_once() -> None:
    start, worlds = everything(False).setting.ready(), list[World]()

    def kept() -> World:
        worlds.append(start())
        return worlds[-1]

    setting: Any = SimpleNamespace(ready=lambda: kept)
    dialogue = begun(replace(everything(False), setting=setting), dialect=COMPACT)
    for length in range(1, 10):
        names = [f"{index}{'n' * length}" for index in range(1_500)]
        dialogue.step(COMPACT.render_calls([call("touch", file_name=name) for name in names]))
    refused = [record for record in records(dialogue) if not record.executed]
    assert refused
    assert all(NOT_EXECUTED in record.result and record.is_error and not record.call.arguments for record in refused)
    assert len(dialogue.trace.turns[0][-1].calls) == 1, "one record stands for the rest of a completion"
    beside = start()
    for record in records(dialogue):
        if record.executed:
            beside.execute(record.call)
    assert worlds[-1].execute(call("ls")).text == beside.execute(call("ls")).text


def test_an_allowance_is_the_same_every_time_and_work_is_for_one_step() -> None:
    text = filled(COMPACT, [call("find")])

    def play() -> list[list[list[str]]]:
        dialogue = begun(everything(True), dialect=COMPACT, context=131_072)
        for _ in range(3):
            dialogue.step(text)
        return results_shown(dialogue)

    first = play()
    executed = [sum(NOT_EXECUTED not in result for result in step) for step in first[0]]
    assert play() == first
    assert executed[0] == executed[1] == executed[2] > 10
    assert f"{text.count('find') - executed[0] - 1} after it" in first[0][0][-1]


def test_results_are_cut_where_the_context_ends_and_judged_whole() -> None:
    task = get_task("multi_turn_long_context_113")
    wanted = [text for turn in prepare(task).turns for text in turn.results]
    room = sum(map(len, wanted)) - len(wanted[-1]) // 2
    dialogue = begun(task, dialect=COMPACT, context=room // CHARACTERS_A_TOKEN)
    completions = [text for turn in task.turns for text in (COMPACT.render_calls(turn.ground_truth), "Done.")]
    said = [dialogue.step(text)[0] for text in completions]
    last = records(dialogue)[-1]
    assert dialogue.success
    assert "… [cut: " in last.result
    assert last.result in said[-2]
    assert (last.returned(wanted[-1]), last.returned(last.result)) == (True, False)
    assert sum(len(record.result) for record in records(dialogue)) <= room + 100


def test_a_wanted_error_is_known_when_its_text_was_cut() -> None:
    task = get_task("multi_turn_base_0")
    text = "Error: " + "x" * 500
    assert CallRecord(call("cd", folder="x"), text, True, SHOWN).returned(text)
    dialogue = begun(task, dialect=COMPACT, context=1)
    dialogue.step(COMPACT.render_calls([call("cd", folder="y" * 90)]))
    (cut,) = records(dialogue)
    error = f"""{{"error": "cd: '{"y" * 90}': No such file or directory"}}"""
    assert cut.result.endswith("more characters]")
    assert cut.returned(error)
    truth = TruthTurn((error, "None", "None"), (True, False, False), {})
    verdict, steps = TurnVerdict(0, Outcome.RESPONSE_MISMATCH), [Step(0, "", (cut,))]
    found = diagnose_turn(task.turns[0], steps, truth, verdict, changed_state=False, seen=lambda _: False)
    assert found.label is not Label.RECOVERY_FAILURE


def test_a_turn_of_thousands_of_calls_is_diagnosed_in_time() -> None:
    task = get_task("multi_turn_base_0")
    hidden, broken, clean = (
        CallRecord(call(name), "x", error, shown)
        for name, error, shown in (("ls", True, Availability.HIDDEN), ("pwd", True, SHOWN), ("pwd", False, SHOWN))
    )
    steps = [Step(0, "", (*[hidden] * 10_000, *[broken] * 10_000, clean))]
    verdict = TurnVerdict(0, Outcome.RESPONSE_MISMATCH, missing_results=("y",))
    started = time.thread_time()
    diagnose_turn(task.turns[0], steps, prepare(task).turns[0], verdict, changed_state=False, seen=lambda _: False)
    assert time.thread_time() - started < 0.2


def test_a_completion_is_kept_in_its_first_part() -> None:
    dialogue = begun(get_task("multi_turn_base_0"), dialect=COMPACT)
    dialogue.step("x" * 5_000_000)
    kept = dialogue.trace.turns[0][0].completion
    assert len(kept) < MAX_COMPLETION + 100
    assert kept.endswith("[cut: 4900000 more characters]")


def test_feedback_is_left_out_where_there_is_no_room_for_it() -> None:
    options = {"interface": FEEDBACK, "protocol": Protocol.SEAL, "context": 1_000}
    dialogue = begun(everything(False), dialect=COMPACT, **options)
    shown = sum(len(dialogue.step(filled(COMPACT, [call("cd", folder=3)]))[0]) for _ in range(10))
    assert 12_000 < shown < 20_000


def test_no_ground_truth_comes_near_an_allowance() -> None:
    shown = work = kept = 0
    for task in (*load_tasks().values(), *(generate(seed, split=split) for seed in range(40) for split in SPLITS)):
        dialogue = play_ground_truth(task)
        assert dialogue.success, task.id
        assert all(record.executed and not record.digest for record in records(dialogue)), task.id
        results = [text for turn in prepare(task).turns for text in turn.results]
        assert [record.result for record in records(dialogue)] == results
        shown = max(shown, sum(map(len, results)))
        target, kept_here = prepare(task).start(), 0
        for turn in task.turns:
            costs = []
            for made in turn.ground_truth:
                costs.append(target.cost(made))
                target.execute(made)
            work = max(work, sum(cost.work for cost in costs))
            kept_here += sum(cost.kept for cost in costs)
        kept = max(kept, kept_here)
    assert 3 * shown < CONTEXT * CHARACTERS_A_TOKEN
    assert 20 * work < STEP_WORK
    assert 20 * kept < DIALOGUE_KEPT
