"""Turn starts: a dialogue is replayed to a turn exactly, and the turn alone is sampled again."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from envs.diagnosis import Label
from envs.dialogue import Protocol
from envs.interface import Interface
from envs.toolworld import tasks
from policies.solver import Solver, TokenDialogue
from policies.trajectory import End, Trajectory
from policies.turn_start import TurnStart, turn_start, turn_to_probe
from tests.policies.chat_models import chat_format
from tests.policies.plain_views import WIDE, Script, play, random_case

FORM = chat_format("qwen")
PLAIN = Interface.plain()
TASK = next(
    task for task in tasks(40, split="dev") if len(task.turns) == 2 and all(turn.ground_truth for turn in task.turns)
)
RIGHT = [FORM.dialect.render_calls(turn.ground_truth) for turn in TASK.turns]


def test_replays_are_exact() -> None:
    """Under the same interface: the same tokens read, and the same diagnosis of the recorded completions."""
    labels = Counter[Label]()
    for case in (random_case(2, number) for number in range(50)):
        recorded = case.trajectory
        for start in filter(None, (turn_start(recorded, turn) for turn in range(len(recorded.diagnosis.turns)))):
            options: dict[str, Any] = {"protocol": recorded.protocol, "context": case.budgets.context}
            replay = TokenDialogue(case.task, case.form, interface=case.interface, **options)
            assert replay.replay(start.completions, case.budgets) is None
            assert tuple(replay.record.token_ids_T) == recorded.token_ids_T[: len(replay)]
            assert not any(replay.record.mask_T)
            assert replay.dialogue.turn == start.turn
            for span in recorded.sampled[len(start.completions) :]:
                if replay.dialogue.over or replay.dialogue.turn != start.turn:
                    break
                replay.say(recorded.token_ids_T[span.begin : span.end], [], [])
                replay.act()
            replay.dialogue.truncate()
            assert replay.dialogue.diagnosis.turns[start.turn] == recorded.diagnosis.turns[start.turn]
            labels[start.label] += 1
    assert labels.total() > 100
    assert len(labels) >= 8


def probe(start: TurnStart, *said: str, interface: Interface = PLAIN) -> Trajectory:
    solver = Solver(Script([FORM.completion(text) for text in said]), FORM, WIDE)
    return asyncio.run(solver.play(TASK, seed=5, interface=interface, protocol=Protocol.SEAL, start=start))


def test_a_probe_samples_one_turn() -> None:
    played = play(TASK, FORM, ["I cannot.", RIGHT[1], "Done."], interface=PLAIN)
    assert turn_to_probe(played) == 0
    start = turn_start(played, 0)
    assert start is not None
    assert (start.completions, start.kind) == ((), (TASK.category, str(Label.MISSING_TOOL_CALL)))
    passed = probe(start, RIGHT[0], "Done.", "never said")
    assert passed.diagnosis.turns[0].label is Label.PASS
    assert passed.diagnosis.turns[1].label is Label.NOT_REACHED
    assert (passed.end, passed.reward, len(passed.sampled)) == (End.TURN, 0.0, 2)


def test_a_later_turn_reads_the_recorded_completions_under_the_new_interface() -> None:
    played = play(TASK, FORM, [RIGHT[0], "Done.", "I cannot."], interface=PLAIN)
    start = turn_start(played, 1)
    assert start is not None
    assert len(start.completions) == 2
    assert start.tokens == len(FORM.completion("I cannot."))
    guided = Interface(guidelines=("Call a tool.",))
    again = probe(start, RIGHT[1], "Done.", interface=guided)
    assert again.diagnosis.turns[1].label is Label.PASS
    assert again.end is End.FINISHED
    text = FORM.text(again.token_ids_T)
    assert "Call a tool." in text
    assert again.sampled_tokens == len(FORM.completion(RIGHT[1])) + len(FORM.completion("Done."))
    assert not any(again.mask_T[: again.sampled[2].begin])


def test_a_replay_that_does_not_fit_fails_the_turn() -> None:
    played = play(TASK, FORM, [RIGHT[0], "Done.", "I cannot."], interface=PLAIN)
    start = turn_start(played, 1)
    assert start is not None
    huge = replace(start, completions=((5,) * WIDE.context,))
    again = probe(huge, "never said")
    assert (again.end, again.diagnosis.turns[1].label) == (End.CONTEXT, Label.NOT_REACHED)


@pytest.mark.parametrize("said", [["I cannot."], [RIGHT[0], "Done.", "I cannot."]])
def test_the_first_failed_turn_is_probed(said: list[str]) -> None:
    assert turn_to_probe(play(TASK, FORM, said, interface=PLAIN)) == len(said) // 2
