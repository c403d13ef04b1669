"""Whole rounds on scripted engines: repeatable, resumable, the same after deaths, and strict about what engines say."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from ray.exceptions import RayActorError
from ray.util import remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from seal_ray.rollout.groups import TooManyFaults

from envs.errors import EnvironmentFault
from envs.sources import find_task
from envs.task import Task
from policies.engine import BASE, Engine, EngineDead, GenRequest
from seal_ray.agent import RatioError
from seal_ray.algorithm.config import SealConfig
from seal_ray.algorithm.seal import Seal
from seal_ray.report.files import RunFolder
from seal_ray.rollout import runner as runner_module
from seal_ray.rollout.engine_actor import EngineSpec
from seal_ray.rollout.engine_pool import EngineLost, RemoteEngine
from seal_ray.rollout.runner import SealEnvRunner, StaleWeights
from seal_ray.run import recorder
from seal_ray.run.checkpoints import newest
from tests.seal_ray.algorithm.configs import ROUNDS_IN_RAY, small_config
from tests.seal_ray.algorithm.engines import Half

pytestmark = [*ROUNDS_IN_RAY, pytest.mark.long]

Round = list[tuple[int, int, float, tuple[int, ...]]]
"""(group, seed, reward, tokens) of each dialogue."""


@contextmanager
def built(config: SealConfig) -> Iterator[Seal]:
    algorithm = config.build_algo()
    assert isinstance(algorithm, Seal)
    try:
        yield algorithm
    finally:
        algorithm.stop()


def played(algorithm: Seal) -> Round:
    return [
        (group.plan.number, each.seed, each.reward, each.token_ids_T)
        for group in algorithm.last_round
        for each in group.trajectories
    ]


def train(algorithm: Seal, rounds: int) -> list[Round]:
    found = []
    for _ in range(rounds):
        algorithm.train()
        found.append(played(algorithm))
    return found


def measured(result: dict[str, Any]) -> dict[str, float]:
    """All metrics but times."""
    return {
        name: float(value)
        for name, value in result.items()
        if name.split("/")[0] in ("solver", "diagnosis", "interface", "curator") and "/" in name
    }


def same(left: dict[str, float], right: dict[str, float]) -> bool:
    return left.keys() == right.keys() and all(left[k] == right[k] or left[k] != left[k] for k in left)


def weights(algorithm: Seal) -> dict[str, torch.Tensor]:
    return dict(algorithm.solver.weights())


@pytest.fixture(scope="module")
def undisturbed(cluster: str) -> dict[str, Any]:
    """Four rounds that nothing happens to."""
    with built(small_config(Half())) as algorithm:
        results = []
        rounds = []
        for _ in range(4):
            results.append(measured(algorithm.train()))
            rounds.append(played(algorithm))
        return {"rounds": rounds, "results": results, "weights": weights(algorithm)}


def test_rounds_have_something_to_learn(undisturbed: dict[str, Any]) -> None:
    for result in undisturbed["results"]:
        assert 0 < result["solver/success"] < 1
        assert result["solver/rollouts"] == 16
        assert result["solver/groups_kept"] + result["solver/groups_dropped_equal"] == 4
    assert sum(result["solver/steps"] for result in undisturbed["results"] if "solver/steps" in result) > 2
    seeds = [seed for each in undisturbed["rounds"] for _, seed, *_ in each]
    assert len(seeds) == len(set(seeds)) == 64


def test_the_same_seed_gives_the_same_run(undisturbed: dict[str, Any]) -> None:
    with built(small_config(Half())) as algorithm:
        for expected in undisturbed["results"][:2]:
            assert same(measured(algorithm.train()), expected)


def test_a_restored_run_goes_on_as_if_undisturbed(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    with built(small_config(Half())) as algorithm:
        train(algorithm, 2)
        algorithm.save_to_path(str(tmp_path / "state"))
    with built(small_config(Half())) as algorithm:
        algorithm.restore_from_path(str(tmp_path / "state"))
        for place in (2, 3):
            assert same(measured(algorithm.train()), undisturbed["results"][place])
            assert played(algorithm) == undisturbed["rounds"][place]
        assert all(torch.equal(weights(algorithm)[name], tensor) for name, tensor in undisturbed["weights"].items())


def test_groups_that_teach_nothing_are_replaced_whatever_the_timing(tmp_path: Path) -> None:
    def resampling(engine: Half) -> SealConfig:
        return small_config(engine).training(fill="resample", group_size=2).environment(sampler="success")

    with built(resampling(Half())) as algorithm:
        results, rounds = [], []
        for number in range(3):
            results.append(algorithm.train())
            rounds.append(played(algorithm))
            if number == 0:
                algorithm.save_to_path(str(tmp_path / "state"))
        for result in results:
            groups = result["solver/groups"]
            assert result["solver/groups_replaced"] == groups - 4 <= 8
            assert result["solver/groups_kept"] == groups - result["solver/groups_dropped_equal"]
            assert result["solver/groups_kept"] == 4 or groups == 12
            assert result["solver/rollouts"] == 2 * groups
        assert max(result["solver/waves"] for result in results) > 1
        numbers = [number for each in rounds for number, *_ in each]
        assert sorted(set(numbers)) == list(range(len(numbers) // 2))
        expected = weights(algorithm)
    config = resampling(Half(pause=0.05)).env_runners(num_env_runners=2).engine(num_engines=2)
    with built(config) as algorithm:
        algorithm.restore_from_path(str(tmp_path / "state"))
        for place in (1, 2):
            assert same(measured(algorithm.train()), measured(results[place]))
            assert played(algorithm) == rounds[place]
        assert all(torch.equal(weights(algorithm)[name], tensor) for name, tensor in expected.items())


def kill_soon(pids: list[int], after: float) -> threading.Thread:
    def kill() -> None:
        time.sleep(after)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def _pid(*_: object) -> int:
    return os.getpid()


def runner_pids(algorithm: Seal) -> list[int]:
    """The processes of both runners; waits for those that are being started."""
    group = algorithm.env_runner_group
    assert group is not None
    deadline = time.monotonic() + 120
    while True:
        found: list[int] = group.foreach_env_runner(_pid, local_env_runner=False)
        if len(found) == 2:
            return found
        assert time.monotonic() < deadline, "a killed runner does not come back"
        time.sleep(0.2)
        group.probe_unhealthy_env_runners()


@dataclass(frozen=True)
class _Telling(Half):
    """Tells in a file that its engine starts."""

    told: str = ""

    async def __call__(self, spec: EngineSpec) -> Engine:
        Path(self.told).touch()
        return await super().__call__(spec)


class _Waiting(SealEnvRunner):
    """Is not there before the engine starts."""

    def __init__(self, *, config: Any, **settings: Any) -> None:
        deadline = time.monotonic() + 60
        while not Path(config.engine_factory.told).exists():
            assert time.monotonic() < deadline, "the engine waits for the runners"
            time.sleep(0.05)
        super().__init__(config=config, **settings)


def test_engines_start_while_runners_do(tmp_path: Path) -> None:
    config = small_config(_Telling(told=str(tmp_path / "told")))
    with built(config.env_runners(num_env_runners=1, env_runner_cls=_Waiting)) as algorithm:
        assert algorithm.train()["solver/rollouts"]


def test_killed_runners_and_engines_change_nothing(undisturbed: dict[str, Any]) -> None:
    config = small_config(Half(pause=0.15)).env_runners(num_env_runners=2).engine(num_engines=2)
    with built(config) as algorithm:
        algorithm.train()
        assert played(algorithm) == undisturbed["rounds"][0]
        # One of two runners.
        killer = kill_soon(runner_pids(algorithm)[:1], 0.4)
        algorithm.train()
        killer.join()
        assert played(algorithm) == undisturbed["rounds"][1]
        # An engine, and with it all that it was asked.
        engine, _ = algorithm.solver.engines.actors
        killer = kill_soon(ray.get(engine.processes.remote()), 0.4)
        algorithm.train()
        killer.join()
        assert played(algorithm) == undisturbed["rounds"][2]
        assert algorithm.solver.engines.restarts == 1
        # All runners.
        killer = kill_soon(runner_pids(algorithm), 0.4)
        result = algorithm.train()
        killer.join()
        assert played(algorithm) == undisturbed["rounds"][3]
        assert result["perf/runner_restarts"] >= 3
        assert all(torch.equal(weights(algorithm)[name], tensor) for name, tensor in undisturbed["weights"].items())


def deliveries(actor: Any) -> tuple[list[str], dict[str, torch.Tensor]]:
    """The types of what an engine's actor was given since it began, and the content of the last of them."""

    def read(self: Any) -> tuple[list[str], dict[str, torch.Tensor]]:
        given = [weights for weights, _ in self._engine.weight_updates]
        return [type(weights).__name__ for weights in given], {name: each.clone() for name, each in given[-1].items()}

    found: tuple[list[str], dict[str, torch.Tensor]] = ray.get(actor.__ray_call__.remote(read))
    return found


def test_an_engine_on_another_machine_gets_copies(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    """The memory that the learner stores its weights in is not there: it gets the same weights another way."""
    told = Half(pause=0.1, elsewhere=str(tmp_path / "begun"))
    config = small_config(told, num_learners=1, num_cpus_per_learner=0.1).engine(num_engines=2)
    with built(config) as algorithm:
        assert train(algorithm, 2) == undisturbed["rounds"][:2]
        algorithm.solver.settle()
        actors = algorithm.solver.engines.actors
        found = [deliveries(actor) for actor in actors]
        assert sorted(types for types, _ in found) == [["StoredWeights"] * 3, ["dict"] * 3]
        for _, last in found:
            held = {f"language_model.{name}": tensor for name, tensor in last.items()}
            assert all(torch.equal(held[name], tensor) for name, tensor in weights(algorithm).items())
        (there,) = (actor for actor, (types, _) in zip(actors, found, strict=True) if "dict" in types)
        killer = kill_soon(ray.get(there.processes.remote()), 0.2)
        assert train(algorithm, 1) == undisturbed["rounds"][2:3]
        killer.join()
        assert algorithm.solver.engines.restarts == 1


@ray.remote
def first_round(config: SealConfig) -> Round:
    with built(config) as algorithm:
        return train(algorithm, 1)[0]


def test_a_trials_learner_leaves_engines_their_bundles(undisturbed: dict[str, Any]) -> None:
    """It takes any bundle that has room; an engine that found its own taken would wait for ever."""
    config = small_config(Half(), num_learners=1, num_cpus_per_learner=0.1).engine(
        num_engines=4, num_cpus_per_engine=0.1
    )
    group = Seal.default_resource_request(config)()
    in_trial = PlacementGroupSchedulingStrategy(group, 0, placement_group_capture_child_tasks=True)
    try:
        found = ray.get(first_round.options(scheduling_strategy=in_trial).remote(config), timeout=120)
        assert found == undisturbed["rounds"][0]
    finally:
        remove_placement_group(group)


def test_an_engine_that_dies_too_often_ends_the_run() -> None:
    config = small_config(Half(pause=0.15)).fault_tolerance(max_engine_restarts=0)
    with built(config) as algorithm:
        (engine,) = algorithm.solver.engines.actors
        killer = kill_soon(ray.get(engine.processes.remote()), 0.3)
        with pytest.raises(EngineLost, match="max_engine_restarts"):
            algorithm.train()
        killer.join()


def test_a_killed_learner_ends_the_trial_and_the_checkpoint_goes_on(
    undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    with built(small_config(Half(), num_learners=1, num_cpus_per_learner=0.1)) as algorithm:
        assert train(algorithm, 2) == undisturbed["rounds"][:2]
        algorithm.save_to_path(str(tmp_path / "state"))
        (pid,) = (each.get() for each in algorithm.learner_group.foreach_learner(_pid))
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        with pytest.raises(Exception, match=r"(?i)actor|learner"):
            train(algorithm, 1)
    with built(small_config(Half())) as algorithm:
        algorithm.restore_from_path(str(tmp_path / "state"))
        assert train(algorithm, 2) == undisturbed["rounds"][2:]
        assert all(torch.equal(weights(algorithm)[name], tensor) for name, tensor in undisturbed["weights"].items())


def test_a_poisoned_task_costs_its_group_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with built(small_config(Half()).fault_tolerance(max_fault_share=0.3)) as algorithm:
        bad = algorithm._planner.tasks.task_id(1)

        def poisoned(name: str, sources: Sequence[str]) -> Task:
            if name == bad:
                raise EnvironmentFault("the simulator cannot be built")
            return find_task(name, sources)

        monkeypatch.setattr(runner_module, "find_task", poisoned)
        result = algorithm.train()
        assert (result["diagnosis/faults"], result["solver/groups_dropped_short"]) == (4, 1)
        assert result["solver/rollouts"] == 12
        assert {fault.kind for group in algorithm.last_round for fault in group.faults} == {"EnvironmentFault"}


def test_garbage_is_counted_typed_and_bounded() -> None:
    with built(small_config(Half(garbage=0.15)).fault_tolerance(retries=0, max_fault_share=1.0)) as algorithm:
        result = algorithm.train()
        faults = [fault for group in algorithm.last_round for fault in group.faults]
        assert 0 < result["diagnosis/faults"] == len(faults) < 16
        assert {fault.kind for fault in faults} <= {"ValueError", "BadRequest"}
    lost = pytest.raises(TooManyFaults, match=r"of 16 dialogues were lost to faults \(\d+ ")
    with built(small_config(Half(garbage=0.9)).fault_tolerance(retries=1)) as algorithm, lost:
        algorithm.train()


def test_an_engine_with_other_weights_stops_the_run() -> None:
    stale = pytest.raises(StaleWeights, match="version 1 instead of 0; the update did not reach the engine")
    with built(small_config(Half(version_offset=1))) as algorithm, stale:
        algorithm.train()
    # The version is right and the weights are not.
    wrong = pytest.raises(RatioError, match=r"solver's log-probs are .* more than 0.001 \(training.ratio_tolerance\)")
    with built(small_config(Half()).training(ratio_tolerance=None)) as algorithm, wrong:
        algorithm.train()


def test_an_engine_that_came_back_answers_nobody_until_it_has_its_weights() -> None:
    with built(small_config(Half())) as algorithm:
        algorithm.train()
        algorithm.solver.settle()
        (actor,) = algorithm.solver.engines.actors
        held = ray.get(actor.versions.remote())
        (pid,) = ray.get(actor.processes.remote())
        os.kill(pid, signal.SIGKILL)
        wait_until_alive(actor)
        assert held != ray.get(actor.versions.remote()) == {BASE: 0}
        engine = RemoteEngine(actor, policy=BASE, version=held[BASE], timeout=60.0)
        with pytest.raises(EngineDead, match="does not hold version"):
            asyncio.run(engine.generate(GenRequest((1, 2), max_tokens=4)))
        with pytest.raises(EngineDead, match="does not hold version"):
            asyncio.run(engine.score((1, 2, 3), 2))
        algorithm.train()
        assert algorithm.solver.engines.restarts == 1


def wait_until_alive(actor: Any) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            ray.get(actor.versions.remote())
        except RayActorError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return


def test_an_interrupt_between_two_rounds_leaves_a_checkpoint_too(tmp_path: Path) -> None:
    config, folder = small_config(Half()).training(checkpoint_every=100), RunFolder(tmp_path)

    def interrupt(_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    outcome = recorder.train(config, folder, say=lambda _: None, report=interrupt)
    assert outcome == recorder.TrainingOutcome(rounds=1, stopped=True)
    assert newest(folder.path).name == "round_000001"
