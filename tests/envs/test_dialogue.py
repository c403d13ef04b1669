"""The dialogue: Gymnasium's contract, the two protocols, their budgets, and what is shown when."""

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from envs.bfcl.tasks import get_task
from envs.diagnosis import Label
from envs.dialogue import MAX_STEPS, REVEAL, Dialogue, Protocol
from envs.errors import UserError
from envs.registration import DIALOGUE_ID
from envs.task import ToolCall
from tests.envs.perturbing import BROKEN, truth
from tests.envs.players import Action, begun, play, play_ground_truth

PWD = (ToolCall("pwd", {}),)


def test_gymnasiums_own_check_passes() -> None:
    check_env(Dialogue(get_task("multi_turn_miss_func_3")), skip_render_check=True)
    name = "multi_turn_long_context_150"
    made = gymnasium.make(DIALOGUE_ID, task=name, dialect="toolace", protocol="seal", render_mode="ansi")
    check_env(made.unwrapped, skip_render_check=True)
    observation, _ = made.reset(seed=1)
    assert made.render() == observation


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vector_environments_play_as_single_ones(mode: str) -> None:
    name = "multi_turn_miss_func_3"
    single = gymnasium.make(DIALOGUE_ID, task=name)
    vector = gymnasium.make_vec(DIALOGUE_ID, num_envs=2, vectorization_mode=mode, task=name)
    try:
        observations, _ = vector.reset(seed=1)
        assert list(observations) == [single.reset(seed=1)[0]] * 2
        assert len(observations[0]) > 200
        said = single.unwrapped.dialect.render_calls([ToolCall("ls", {"a": "ünï\ud83d☃"})])  # type: ignore[attr-defined]
        observations, rewards, *_ = vector.step((said, "Done."))
        assert observations[0] == single.step(said)[0] != observations[1]
        assert list(rewards) == [0.0, 0.0]
    finally:
        vector.close()


def test_the_first_observation_shows_tools_and_user_and_nothing_more_when_plain() -> None:
    task = get_task("multi_turn_base_0")
    dialogue = Dialogue(task)
    observation, info = dialogue.reset()
    assert observation == f"{dialogue.dialect.render_tools(task.tools)}\n\n{task.turns[0].user}"
    assert [(message.role, message.content) for message in info["messages"]] == [("user", task.turns[0].user)]
    assert info["tools"] == task.tools


def test_held_out_tools_are_shown_when_they_are_revealed() -> None:
    task = get_task("multi_turn_miss_func_16")
    hidden = [tool.name for tool in task.turns[1].revealed]
    assert hidden == ["cp", "echo"]
    dialogue = Dialogue(task)
    observation, _ = dialogue.reset()
    assert '"name": "cp"' not in observation
    observation, *_ = dialogue.step("I cannot copy.")
    assert observation == f"{[dict(tool.document) for tool in task.turns[1].revealed]}\n{REVEAL}"


def test_official_steps_without_a_call_end_the_turn_and_hidden_tools_run() -> None:
    dialogue = begun(get_task("multi_turn_miss_func_16"))
    observation, *_ = dialogue.step(dialogue.dialect.render_calls([ToolCall("echo", {"content": "hi"})]))
    assert "terminal_output" in observation
    dialogue.step(BROKEN)
    assert dialogue.turn == 1


def test_seal_errors_return_and_the_turn_goes_on() -> None:
    dialogue = begun(get_task("multi_turn_miss_func_16"), protocol=Protocol.SEAL)
    calls = (ToolCall("echo", {"content": "hi"}), ToolCall("no_such_tool", {}))
    for action in (BROKEN, *(dialogue.dialect.render_calls([call]) for call in calls)):
        observation, _, terminated, truncated, _ = dialogue.step(action)
        assert "[ERROR]" in observation
        assert (terminated, truncated, dialogue.turn) == (False, False, 0)
    dialogue.step("I cannot copy.")
    assert dialogue.turn == 1


def test_the_official_budget_is_per_turn_and_stops_after_one_step_more() -> None:
    task = get_task("multi_turn_base_0")
    full = play(task, [[turn.ground_truth, *[PWD] * (MAX_STEPS - 1)] for turn in task.turns])
    assert full.success
    cut = play(task, [[task.turns[0].ground_truth, *[PWD] * MAX_STEPS], *truth(task)[1:]])
    assert len(cut.trace.turns[0]) == MAX_STEPS + 1
    assert cut.diagnosis.labels == (Label.PASS, *[Label.NOT_REACHED] * 3)
    assert not cut.success


def test_the_seal_budget_is_per_dialogue() -> None:
    task = get_task("multi_turn_base_0")
    cut = play(task, [[turn.ground_truth, *[PWD] * 9] for turn in task.turns], protocol=Protocol.SEAL)
    assert sum(len(steps) for steps in cut.trace.turns) == MAX_STEPS + 1, "20 with calls, and one that ended a turn"
    assert cut.diagnosis.labels[2:] == (Label.NOT_REACHED, Label.NOT_REACHED)
    last: list[list[Action]] = [*truth(task)[:-1], [task.turns[-1].ground_truth, *[PWD] * 30]]
    assert play(task, last, protocol=Protocol.SEAL).success, "nothing was left out when the budget ended"


def test_until_failure_a_turn_that_fails_ends_the_dialogue_and_nothing_else_does() -> None:
    task = get_task("multi_turn_miss_func_16")
    asked = next(index for index, turn in enumerate(task.turns) if not turn.ground_truth)
    failing = asked + 1
    idle: list[list[Action]] = [*truth(task)[:failing], [], *truth(task)[failing + 1 :]]
    lost = play(task, idle, protocol=Protocol.UNTIL_FAILURE)
    assert lost.diagnosis.labels[failing] not in (Label.PASS, Label.NOT_REACHED)
    assert set(lost.diagnosis.labels[failing + 1 :]) == {Label.NOT_REACHED}
    assert not lost.success
    wrong: list[list[Action]] = [*truth(task)[:asked], [PWD], *truth(task)[asked + 1 :]]
    won = play(task, wrong, protocol=Protocol.UNTIL_FAILURE)
    assert won.diagnosis.labels[asked] is not Label.PASS
    assert won.success, "a turn in which nothing is checked cannot lose the dialogue"
    first = get_task("multi_turn_base_0")
    dialogue = begun(first, protocol=Protocol.UNTIL_FAILURE)
    assert "[ERROR]" in dialogue.step(BROKEN)[0]
    assert dialogue.turn == 0, "errors return, as under the seal protocol"
    _, reward, terminated, truncated, info = dialogue.step("I cannot.")
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert len(info["diagnosis"].labels) == len(first.turns)


def test_reward_and_ends_come_with_the_last_step_only_and_a_reset_starts_over() -> None:
    task = get_task("multi_turn_base_1")
    dialogue = Dialogue(task)
    first, _ = dialogue.reset()
    ends = []
    for turn in task.turns:
        for action in (dialogue.dialect.render_calls(turn.ground_truth), "Done."):
            _, reward, terminated, truncated, info = dialogue.step(action)
            ends.append((reward, terminated, truncated, "diagnosis" in info))
    assert ends == [(0.0, False, False, False)] * (len(ends) - 1) + [(1.0, True, False, True)]
    assert dialogue.reset()[0] == first
    assert (dialogue.over, dialogue.turn_diagnoses) == (False, ())


def test_calls_at_the_wrong_time_are_clear_errors() -> None:
    task = get_task("multi_turn_base_1")
    dialogue = Dialogue(task)
    with pytest.raises(gymnasium.error.ResetNeeded):
        dialogue.step("hello")
    with pytest.raises(UserError, match="still running"):
        _ = dialogue.diagnosis
    over = play_ground_truth(task)
    with pytest.raises(gymnasium.error.ResetNeeded):
        over.step("hello")
    with pytest.raises(UserError, match="did you mean"):
        Dialogue(task, protocol="offical")
