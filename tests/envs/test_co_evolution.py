"""The games of two and of three agents: PettingZoo's contract, the moves, rejected proposals, rewards, seeds."""

import json
from typing import Any, TypeVar

import pytest
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

from envs import co_evolution_v0, co_evolution_v1
from envs.bfcl.splits import scenario_split
from envs.bfcl.tasks import get_task
from envs.co_evolution import CoEvolutionGame, GameOutcome
from envs.co_evolution_tasks import WrittenTasksGame, near_the_middle
from envs.diagnosis import Label
from envs.dialects import DIALECTS
from envs.errors import UserError
from envs.interface import Interface, RecoveryLevel
from envs.interface.guard import LeakGuard
from envs.roles import CURATOR, SOLVER, TASK_WRITER
from envs.sources import find_task
from tests.envs.test_toolworld import content

PLAIN = "{}"
WANTED = json.dumps({"category": "base", "scenes": ["files"], "turns": [["files.show"], ["files.copy"]]})
STUCK = WANTED.replace("files.show", "files.go_up")
TASK = get_task("multi_turn_base_0")


@pytest.mark.parametrize("version", [co_evolution_v0, co_evolution_v1])
def test_pettingzoos_compliance_tests_pass(version: Any) -> None:
    api_test(version.env(), num_cycles=150)
    parallel_api_test(version.parallel_env(), num_cycles=150)
    seed_test(version.env, num_cycles=60)
    parallel_seed_test(version.parallel_env, num_cycles=60)


G = TypeVar("G", bound=CoEvolutionGame)


def begun(game: G) -> G:
    game.reset(seed=0)
    return game


def finish(game: CoEvolutionGame) -> GameOutcome:
    """Plays the ground truth to the end of the game."""
    dialogue = game.dialogue
    assert dialogue is not None
    while not dialogue.over:
        turn = dialogue.turn
        game.step(DIALECTS["qwen"].render_calls(dialogue.task.turns[turn].ground_truth))
        if not dialogue.over and dialogue.turn == turn:
            game.step("Done.")
    assert game.last_outcome is not None
    return game.last_outcome


def test_the_curator_reads_the_profile_and_moves_first() -> None:
    game = begun(co_evolution_v0.raw_env([TASK], guard=LeakGuard([TASK])))
    assert game.agent_selection == CURATOR
    assert game.observe(CURATOR) == {"text": game.profile.render()}
    assert game.observe(SOLVER) == {"text": ""}
    game.step('{"recovery": "class", "guidelines": ["Check the folder first."]}')
    assert game.agent_selection == SOLVER
    assert "Check the folder first." in game.observe(SOLVER)["text"]
    outcome = finish(game)
    assert outcome.interface == Interface(recovery=RecoveryLevel.CLASS, guidelines=("Check the folder first.",))
    assert game.rewards == {CURATOR: 1.0, SOLVER: 1.0}
    assert game.terminations == {CURATOR: True, SOLVER: True}
    assert game.profile.total.get(f"label/{Label.PASS}").turns == len(TASK.turns)


@pytest.mark.parametrize(
    ("proposal", "rejection"),
    [
        *(("", ""), ("nonsense", ""), ("[1]", ""), ('{"recovery": "answers"}', ""), ("[" * 100_000, "")),
        ('{"guidelines": ["{{ secret }}"]}', ""),
        (
            '{"guidelines": ["The report is final_report.pdf."]}',
            "proposal: guidelines.0: it contains an argument value of a task.",
        ),
    ],
)
def test_a_proposal_that_is_not_valid_costs_the_curator_its_reward_only(proposal: str, rejection: str) -> None:
    incumbent = Interface(guidelines=("Stay calm.",))
    game = begun(co_evolution_v0.raw_env([TASK], incumbent=incumbent, guard=LeakGuard([TASK])))
    game.step(proposal)
    outcome = finish(game)
    assert outcome.interface == incumbent
    assert outcome.rejection is not None
    assert rejection in outcome.rejection
    assert game.infos[CURATOR]["rejection"] == outcome.rejection
    assert game.rewards == {CURATOR: 0.0, SOLVER: 1.0}


def test_the_curators_reward_can_be_chosen_and_a_cut_off_dialogue_truncates_both_agents() -> None:
    game = begun(co_evolution_v0.raw_env([TASK], curator_reward=lambda outcome: 1.0 - outcome.reward))
    game.step(PLAIN)
    while game.agent_selection == SOLVER:
        game.step("<tool_call>broken")
    assert game.truncations == {CURATOR: True, SOLVER: True}
    assert game.rewards == {CURATOR: 1.0, SOLVER: 0.0}


def series(game: CoEvolutionGame) -> list[tuple[str, str]]:
    """Six games from seed 3 on: the task and what the curator reads."""
    seen = []
    for seed in (3, *[None] * 5):
        game.reset(seed=seed)
        seen.append((game.infos[SOLVER]["task"], game.observe(CURATOR)["text"]))
        game.step(PLAIN)
        while game.agent_selection == SOLVER:
            game.step("no")
    return seen


def test_a_seed_starts_the_same_series_and_no_seed_goes_on() -> None:
    game = co_evolution_v0.raw_env()
    first = series(game)
    assert first == series(game) == series(co_evolution_v0.raw_env())
    assert len({task for task, _ in first}) > 1
    assert len({profile for _, profile in first}) == 6, "the profile grows from game to game"


def test_a_task_can_be_named_and_must_be_in_the_set() -> None:
    game = co_evolution_v0.raw_env()
    name = scenario_split().train[5].id
    game.reset(options={"task": name})
    assert game.infos[SOLVER]["task"] == name
    with pytest.raises(UserError, match="task: 'multi_turn_base_x' is not known"):
        game.reset(options={"task": "multi_turn_base_x"})
    with pytest.raises(UserError, match="at least one"):
        co_evolution_v0.raw_env([])


def test_in_parallel_only_the_mover_counts() -> None:
    game = co_evolution_v0.parallel_env([TASK])
    observations, infos = game.reset(seed=0)
    assert set(observations) == set(infos) == {CURATOR, SOLVER}
    assert game.unwrapped.agent_selection == CURATOR
    calls = DIALECTS["qwen"].render_calls(TASK.turns[0].ground_truth)
    observations, _, _, _, infos = game.step({CURATOR: PLAIN, SOLVER: calls})
    assert infos[CURATOR]["active_agent"] == SOLVER
    assert str(TASK.turns[0].user) in observations[SOLVER]["text"], "the solver's early action was ignored"
    while game.agents:
        _, rewards, terminations, truncations, _ = game.step({CURATOR: "ignored", SOLVER: "no"})
    assert rewards == {CURATOR: 0.0, SOLVER: 0.0}
    assert all(terminations.values())
    assert not any(truncations.values())


# The game of three agents.


def play(game: WrittenTasksGame, text: str, *, right: bool = True) -> dict[str, float]:
    """One game to its end. Returns the rewards."""
    game.reset()
    for agent, said in ((TASK_WRITER, text), (CURATOR, PLAIN)):
        assert game.agent_selection == agent
        game.step(said)
    if right:
        finish(game)
    while game.agents and not any(game.terminations.values()):
        game.step("Done.")
    return dict(game.rewards)


def test_the_writer_moves_first_and_its_task_is_played() -> None:
    game = begun(co_evolution_v1.raw_env())
    text = game.observe(TASK_WRITER)["text"]
    assert "files: show, open_in" in text
    assert game.profile.render() in text
    game.step(WANTED)
    task = game.infos[TASK_WRITER]["task"]
    assert game.infos[TASK_WRITER]["rejection"] is None
    assert task.startswith("toolworld_written_train_base_")
    assert [game.infos[agent]["task"] for agent in (CURATOR, SOLVER)] == [task, task]
    game.step(PLAIN)
    assert finish(game).task_id == task
    assert game.rewards == {TASK_WRITER: near_the_middle(1.0), CURATOR: 1.0, SOLVER: 1.0}
    assert game.terminations == {TASK_WRITER: True, CURATOR: True, SOLVER: True}
    assert content(find_task(task))


def test_the_writer_is_paid_by_the_success_of_its_specification_so_far() -> None:
    game = begun(co_evolution_v1.raw_env())
    other = WANTED.replace("copy", "sort")
    played = [(WANTED, True), (WANTED, False), (other, False), (WANTED, False)]
    rewards = [play(game, text, right=right)[TASK_WRITER] for text, right in played]
    assert rewards == pytest.approx([0.6065, 1.0, 0.6065, near_the_middle(1 / 3)], abs=1e-4)


@pytest.mark.parametrize("text", ["", "nonsense", "[1]", STUCK, WANTED[:-2], "[" * 100_000, WANTED * 2])
def test_a_rejected_specification_costs_the_writer_its_reward_only(text: str) -> None:
    game = begun(co_evolution_v1.raw_env())
    rewards = play(game, text)
    assert game.infos[TASK_WRITER]["rejection"]
    assert "_written_" not in game.infos[TASK_WRITER]["task"]
    assert rewards == {TASK_WRITER: 0.0, CURATOR: 1.0, SOLVER: 1.0}


def test_the_same_seed_and_moves_give_the_same_games() -> None:
    found = []
    for _ in range(2):
        game = co_evolution_v1.raw_env()
        game.reset(seed=3)
        rewards = [play(game, text) for text in (WANTED, STUCK, WANTED)]
        found.append((rewards, game.infos[TASK_WRITER]["task"], game.profile.to_dict()))
    assert found[0] == found[1]


def test_a_source_that_composes_nothing_is_refused_and_versions_have_names() -> None:
    with pytest.raises(UserError, match="source: 'bfcl' composes no tasks"):
        co_evolution_v1.raw_env(source="bfcl")
    games = co_evolution_v0.raw_env(), co_evolution_v1.raw_env()
    assert games[0].possible_agents == [CURATOR, SOLVER]
    assert [game.metadata["name"] for game in games] == ["co_evolution_v0", "co_evolution_v1"]
