"""The three-agent game: PettingZoo's contract, the writer's move, rejected specifications, rewards, seeds."""

import json

import pytest
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

from envs import co_evolution_v0, co_evolution_v1
from envs.co_evolution_tasks import WrittenTasksGame, near_the_middle
from envs.errors import UserError
from envs.roles import CURATOR, SOLVER, TASK_WRITER
from envs.sources import find_task
from tests.envs.test_co_evolution import finish
from tests.envs.test_toolworld import content

PLAIN = "{}"
WANTED = json.dumps({"category": "base", "scenes": ["files"], "turns": [["files.show"], ["files.copy"]]})
STUCK = WANTED.replace("files.show", "files.go_up")


def test_pettingzoos_compliance_tests_pass() -> None:
    api_test(co_evolution_v1.env(), num_cycles=500)
    parallel_api_test(co_evolution_v1.parallel_env(), num_cycles=500)
    seed_test(co_evolution_v1.env, num_cycles=200)
    parallel_seed_test(co_evolution_v1.parallel_env, num_cycles=200)


def play(game: WrittenTasksGame, text: str, *, right: bool = True) -> dict[str, float]:
    """One game to its end. Returns the rewards."""
    game.reset()
    assert game.agent_selection == TASK_WRITER
    game.step(text)
    assert game.agent_selection == CURATOR
    game.step(PLAIN)
    if right:
        finish(game)
    while not right and game.dialogue is not None and not game.dialogue.over:
        game.step("Done.")
    return dict(game.rewards)


def test_the_writer_moves_first_and_its_task_is_played() -> None:
    game = co_evolution_v1.raw_env()
    game.reset(seed=0)
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
    game = co_evolution_v1.raw_env()
    game.reset(seed=0)
    assert play(game, WANTED)[TASK_WRITER] == pytest.approx(0.6065, abs=1e-4)
    assert play(game, WANTED, right=False)[TASK_WRITER] == 1.0
    assert play(game, WANTED.replace("copy", "sort"), right=False)[TASK_WRITER] == pytest.approx(0.6065, abs=1e-4)
    assert play(game, WANTED, right=False)[TASK_WRITER] == pytest.approx(near_the_middle(1 / 3))


@pytest.mark.parametrize("text", ["", "nonsense", "[1]", STUCK, WANTED[:-2], "[" * 100_000, WANTED * 2])
def test_a_rejected_specification_costs_the_writer_its_reward_only(text: str) -> None:
    game = co_evolution_v1.raw_env()
    game.reset(seed=0)
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


def test_a_source_that_composes_nothing_and_version_0() -> None:
    with pytest.raises(UserError, match="source: 'bfcl' composes no tasks"):
        co_evolution_v1.raw_env(source="bfcl")
    game = co_evolution_v0.raw_env()
    assert game.possible_agents == [CURATOR, SOLVER]
    assert game.metadata["name"] == "co_evolution_v0"
    assert co_evolution_v1.raw_env().metadata["name"] == "co_evolution_v1"
