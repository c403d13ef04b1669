"""Written tasks in whole rounds: they are played and paid for, three agents learn, and state goes on bit for bit."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from envs.interface import Interface
from envs.interface.document import dump_interface
from envs.roles import CURATOR, SOLVER, TASK_WRITER
from envs.specifications import Rejected, writable
from policies.trajectory import derive_seed
from seal_ray.algorithm.config import SealConfig
from seal_ray.algorithm.seal import Seal
from tests.seal_ray.algorithm.configs import ROUNDS_IN_RAY, small_config
from tests.seal_ray.algorithm.engines import Half
from tests.seal_ray.algorithm.test_seal_rounds import built, measured, played, same

pytestmark = [*ROUNDS_IN_RAY, pytest.mark.long]

ROUNDS = 3
_OURS = ("solver", "diagnosis", "interface", "curator", "writer", "pool")


@cache
def specifications() -> tuple[str, ...]:
    """Specifications of one request that have a task at each round of these tests, and one that has none."""
    source = writable("toolworld")
    found: list[str] = []
    number = 0
    while len(found) < 12:
        specification = source.draw(random.Random(number), category="base", depth=1)
        if all(not isinstance(source.compose(specification, task_seed(at)), Rejected) for at in range(ROUNDS)):
            found.append(specification.dump())
        number += 1
    return (*found, found[0].replace('"turns": [[', '"turns": [["files.go_up", '))


def task_seed(round_number: int) -> int:
    return derive_seed(0, "written task", round_number) % 10**9


@cache
def written_ids() -> tuple[str, ...]:
    """The ids of all tasks that can be written."""
    source = writable("toolworld")
    made = [source.compose(source.read(text), task_seed(at)) for text in specifications()[:-1] for at in range(ROUNDS)]
    return tuple(task.id for task in made if not isinstance(task, Rejected))


CUES = tuple(
    dump_interface(Interface(guidelines=(text,))) for text in ("Be brief and polite.", "Write valid calls only.")
)


def config(*, shared: bool = False, **writer: Any) -> SealConfig:
    found = (
        small_config(Half(known=written_ids(), writes={CURATOR: CUES, TASK_WRITER: specifications()}))
        .solver(**({"lora_rank": 2} if shared else {}))
        .writer(
            **{
                "kind": "learning",
                "engine": "transformers",
                "update_every": 2,
                "specifications": 6,
                "context": 3072,
                "response": 200,
                "retries": 0,
                "share": 0.5,
                "lr": 1e-4,
                "kl": 0.0,
                **writer,
            }
        )
    )
    found.fault_tolerance(engine_timeout=600.0)
    return found


def three(*, shared: bool) -> SealConfig:
    return config(shared=shared).curator(
        kind="coevolved",
        engine="transformers",
        retries=0,
        update_every=2,
        lr=1e-4,
        kl=0.0,
        plain_share=0.5,
        context=3072,
    )


def all_measured(result: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in result.items() if name.split("/")[0] in _OURS and "/" in name}


def all_weights(algorithm: Seal) -> dict[str, dict[str, torch.Tensor]]:
    return {name: dict(agent.weights()) for name, agent in algorithm.agents.items() if agent.learns}


@dataclass(frozen=True)
class Unwritten:
    """Two rounds in which nobody writes: their tasks, their metrics, their dialogues."""

    tasks: list[list[str]]
    metrics: list[dict[str, float]]
    dialogues: list[Any]


@pytest.fixture(scope="module")
def unwritten(cluster: str) -> Unwritten:
    found = Unwritten([], [], [])
    with built(small_config(Half())) as algorithm:
        for _ in range(2):
            found.metrics.append(measured(algorithm.train()))
            found.dialogues.append(played(algorithm))
            found.tasks.append([group.plan.task for group in algorithm.last_round])
    return found


def test_written_tasks_are_played_beside_those_of_the_stream(unwritten: Unwritten) -> None:
    with built(config(kind="random", depth=1)) as algorithm:
        first = all_measured(algorithm.train())
        tasks = [group.plan.task for group in algorithm.last_round]
        places = list(zip(tasks, unwritten.tasks[0], strict=True))
        assert all(task == drawn for task, drawn in places if "_written_" not in task), "the others are the stream's"
        written = {group.plan.task for group in algorithm.last_round if "_written_" in group.plan.task}
        assert len(written) == first["writer/groups"] == 2
        assert first["writer/specifications"] == first["pool/tasks"] == 6
        second = all_measured(algorithm.train())
        assert second["pool/unplayed"] == 2
        assert second["writer/reward"] == pytest.approx(0.6065, abs=1e-4), "a solver that does not know them fails"
        assert len(algorithm.authorship.last_pool) == 6


@pytest.mark.parametrize("shared", [False, True], ids=["engines of their own", "one engine, three adapters"])
def test_three_agents_go_on_bit_for_bit_from_the_middle_of_a_window(shared: bool, tmp_path: Path) -> None:
    with built(three(shared=shared)) as algorithm:
        assert set(algorithm.agents) == {SOLVER, CURATOR, TASK_WRITER}
        assert len({id(agent.engines) for agent in algorithm.agents.values()}) == (1 if shared else 3)
        results, rounds = [], []
        for number in range(ROUNDS):
            results.append(all_measured(algorithm.train()))
            rounds.append(played(algorithm))
            if number == 0:
                algorithm.save_to_path(str(tmp_path / "state"))
        expected, pool = all_weights(algorithm), algorithm.authorship.get_state()
        versions = {name: agent.version for name, agent in algorithm.agents.items()}
    assert any(result.get("writer/gradient_norm", 0) > 0 for result in results), results
    assert any(result["writer/rejections"] > 0 for result in results), results
    assert any(result["writer/groups"] > 0 for result in results)
    with built(three(shared=shared)) as algorithm:
        algorithm.restore_from_path(str(tmp_path / "state"))
        for result, dialogues in zip(results[1:], rounds[1:], strict=True):
            assert same(all_measured(algorithm.train()), result)
            assert played(algorithm) == dialogues
        found = all_weights(algorithm)
        assert algorithm.authorship.get_state() == pool
        assert {name: agent.version for name, agent in algorithm.agents.items()} == versions
    for name, tensors in expected.items():
        assert all(torch.equal(found[name][key], tensor) for key, tensor in tensors.items()), name


GARBAGE = ("", "[" * 200, "{", '{"category": "base"}', "__import__('os')")


def test_a_writer_of_garbage_costs_its_reward_only(unwritten: Unwritten) -> None:
    garbage = config()
    garbage.engine_factory = Half(writes={TASK_WRITER: GARBAGE})
    with built(garbage) as algorithm:
        for metrics, dialogues in zip(unwritten.metrics, unwritten.dialogues, strict=True):
            result = algorithm.train()
            assert played(algorithm) == dialogues
            assert same(measured(result), metrics)
            assert all_measured(result)["pool/tasks"] == 0
        assert [bool(row["rejection"]) for row in algorithm.authorship.last_drafts] == [True] * 6
