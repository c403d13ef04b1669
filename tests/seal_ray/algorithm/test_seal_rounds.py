"""Whole rounds on scripted engines: repeatable, resumable, the same after deaths, and strict about what engines say."""

import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from ray.util import remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from envs.errors import EnvironmentFault
from envs.sources import find_task
from envs.task import Task
from seal_ray.agent import RatioError
from seal_ray.algorithm.config import SealConfig
from seal_ray.algorithm.seal import Seal
from seal_ray.report.files import RunFolder
from seal_ray.rollout import engine_pool
from seal_ray.rollout import runner as runner_module
from seal_ray.rollout.dispatch import TooManyFaults
from seal_ray.rollout.engine_actor import Payload
from seal_ray.rollout.engine_pool import EngineLost
from seal_ray.rollout.priority import LOWEST
from seal_ray.rollout.runner import StaleWeights
from seal_ray.rollout.tasks import TaskStream
from seal_ray.run import recorder
from seal_ray.run.checkpoints import newest
from tests.seal_ray.algorithm.configs import ROUNDS_IN_RAY, small_config
from tests.seal_ray.algorithm.engines import Half, WrongAtFirst
from tests.seal_ray.algorithm.runs import Played, Run, assert_equal, built, check_resumes, measured, played

pytestmark = [*ROUNDS_IN_RAY, pytest.mark.long]


@dataclass(frozen=True)
class Undisturbed:
    """Four rounds that nothing happens to."""

    rounds: list[Played]
    metrics: list[dict[str, float]]
    weights: dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def undisturbed(cluster: str) -> Undisturbed:
    with built(small_config(Half())) as run:
        rounds = run.play(4)
    metrics = list(map(measured, run.reports))
    assert all(0 < each["solver/success"] < 1 for each in metrics), "there is something to learn"
    assert sum(each.get("solver/steps", 0) for each in metrics) > 2
    return Undisturbed(rounds, metrics, run.weights)


def test_groups_that_teach_nothing_are_replaced_whatever_the_timing(tmp_path: Path) -> None:
    def sampling(engine: Half) -> SealConfig:
        return small_config(engine).training(dynamic_sampling=True, group_size=2)

    moved = sampling(Half(pause=0.05)).env_runners(num_env_runners=2).engine(num_engines=2)
    run = check_resumes(lambda: sampling(Half()), tmp_path, moved=moved)
    metrics = [report.metrics for report in run.reports]
    for each in metrics:
        groups = each["solver/groups"]
        assert each["solver/groups_replaced"] == groups - 4 <= 8
        assert each["solver/groups_kept"] == groups - each["solver/groups_dropped_equal"]
        assert each["solver/groups_kept"] == 4 or groups == 12
        assert each["solver/rollouts"] == 2 * groups
    assert max(each["solver/waves"] for each in metrics) > 1
    numbers = [number for report in run.reports for number, *_ in played(report)]
    assert sorted(set(numbers)) == list(range(len(numbers) // 2))


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


def runner_pids(run: Run) -> list[int]:
    """The processes of both runners; waits for those that are being started."""
    group = run.algorithm.env_runner_group
    assert group is not None
    deadline = time.monotonic() + 120
    while True:
        found: list[int] = group.foreach_env_runner(_pid, local_env_runner=False)
        if len(found) == 2:
            return found
        assert time.monotonic() < deadline, "a killed runner does not come back"
        time.sleep(0.2)
        group.probe_unhealthy_env_runners()


def test_killed_runners_and_engines_change_nothing(undisturbed: Undisturbed) -> None:
    config = small_config(Half(pause=0.15)).env_runners(num_env_runners=2).engine(num_engines=2)
    with built(config) as run:
        before = os.getpriority(os.PRIO_PROCESS, 0)
        assert run.play(1) == undisturbed.rounds[:1]
        assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in runner_pids(run)] == [LOWEST, LOWEST]
        assert os.getpriority(os.PRIO_PROCESS, 0) == before, "the learner keeps its own"
        # One of two runners.
        killer = kill_soon(runner_pids(run)[:1], 0.4)
        assert run.play(1) == undisturbed.rounds[1:2]
        killer.join()
        # An engine, and with it all its requests.
        engine, _ = run.algorithm.solver.engines.actors
        killer = kill_soon(ray.get(engine.processes.remote()), 0.4)
        assert run.play(1) == undisturbed.rounds[2:3]
        killer.join()
        assert run.algorithm.solver.engines.restarts == 1
        # All runners.
        killer = kill_soon(runner_pids(run), 0.4)
        assert run.play(1) == undisturbed.rounds[3:]
        killer.join()
        assert run.reports[-1].metrics["perf/runner_restarts"] >= 3
        assert_equal(run.weights, undisturbed.weights)


def deliveries(actor: Any) -> tuple[list[str], dict[str, torch.Tensor]]:
    """The types of what an engine's actor was given since it began, and the content of the last of them."""

    def read(self: Any) -> tuple[list[str], dict[str, torch.Tensor]]:
        given = [weights for weights, _ in self.engine.weight_updates]
        return [type(weights).__name__ for weights in given], {name: each.clone() for name, each in given[-1].items()}

    found: tuple[list[str], dict[str, torch.Tensor]] = ray.get(actor.__ray_call__.remote(read))
    return found


def test_weights_in_buckets_are_the_same_and_a_restarted_engine_gets_them_again(
    undisturbed: Undisturbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seal_ray.training.learner_group.BUCKET", 1)
    config = small_config(Half(pause=0.1), num_learners=2, num_cpus_per_learner=0.1).engine(num_engines=2)
    with built(config) as run:
        run.algorithm.solver.in_buckets = True  # as on GPUs
        assert run.play(2) == undisturbed.rounds[:2]
        run.algorithm.solver.settle()
        actors = run.algorithm.solver.engines.actors
        for actor in actors:
            types, last = deliveries(actor)
            assert types == ["StoredWeights", "dict", "dict"], "the first before the buckets were chosen"
            held = {f"language_model.{name}": tensor for name, tensor in last.items()}
            assert_equal({name: held[name] for name in run.weights}, run.weights)
        killer = kill_soon(ray.get(actors[0].processes.remote()), 0.2)
        assert run.play(1) == undisturbed.rounds[2:3]
        killer.join()
        assert run.algorithm.solver.engines.restarts == 1
        run.algorithm.solver.settle()
        assert deliveries(actors[0])[0] == ["dict", "dict"]


def test_engines_get_weights_in_the_type_in_which_they_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)  # no products in bfloat16
    with built(small_config(Half()).engine(dtype="bfloat16")) as run:
        run.play(1)
        run.algorithm.solver.settle()
        _, held = deliveries(run.algorithm.solver.engines.actors[0])
    assert {tensor.dtype for tensor in held.values()} == {torch.float32}


def test_an_engine_on_another_machine_gets_copies(
    undisturbed: Undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory that the learner stores its weights in is not there: it gets the same weights another way."""
    put, sent = ray.put, list[Any]()

    def noted(value: Any) -> Any:
        sent.append(value)
        return put(value)

    monkeypatch.setattr(ray, "put", noted)
    told = Half(pause=0.1, elsewhere=str(tmp_path / "begun"))
    config = small_config(told, num_learners=1, num_cpus_per_learner=0.1).engine(num_engines=2)
    with built(config) as run:
        assert run.play(2) == undisturbed.rounds[:2]
        run.algorithm.solver.settle()
        actors = run.algorithm.solver.engines.actors
        found = [deliveries(actor) for actor in actors]
        assert sorted(types for types, _ in found) == [["StoredWeights"] * 3, ["dict"] * 3]
        for _, last in found:
            held = {f"language_model.{name}": tensor for name, tensor in last.items()}
            assert_equal({name: held[name] for name in run.weights}, run.weights)
        given = [each.weights for each in sent if isinstance(each, Payload)]
        assert given, "the files"
        assert not any(isinstance(each, dict) for each in given), "no copies pass through this process"
        (there,) = (actor for actor, (types, _) in zip(actors, found, strict=True) if "dict" in types)
        killer = kill_soon(ray.get(there.processes.remote()), 0.2)
        assert run.play(1) == undisturbed.rounds[2:3]
        killer.join()
        assert run.algorithm.solver.engines.restarts == 1


@ray.remote
def first_round(config: SealConfig) -> Played:
    with built(config) as run:
        return run.play(1)[0]


def test_a_trials_learner_leaves_engines_their_bundles(undisturbed: Undisturbed) -> None:
    """It takes any bundle that has room; an engine that found its own taken would wait for ever."""
    learning = small_config(Half(), num_learners=1, num_cpus_per_learner=0.1)
    config = learning.engine(num_engines=4, num_cpus_per_engine=0.1)
    group = Seal.default_resource_request(config)()
    in_trial = PlacementGroupSchedulingStrategy(group, 0, placement_group_capture_child_tasks=True)
    try:
        found = ray.get(first_round.options(scheduling_strategy=in_trial).remote(config), timeout=120)
        assert found == undisturbed.rounds[0]
    finally:
        remove_placement_group(group)


def test_an_engine_that_dies_too_often_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_pool, "MAX_RESTARTS", 0)
    with built(small_config(Half(pause=0.15))) as run:
        (engine,) = run.algorithm.solver.engines.actors
        killer = kill_soon(ray.get(engine.processes.remote()), 0.3)
        with pytest.raises(EngineLost, match="an engine died more than"):
            run.round()
        killer.join()


def test_a_killed_learner_ends_the_trial_and_its_checkpoint_continues(undisturbed: Undisturbed, tmp_path: Path) -> None:
    with built(small_config(Half(), num_learners=1, num_cpus_per_learner=0.1)) as run:
        assert run.play(2) == undisturbed.rounds[:2]
        run.algorithm.save_to_path(str(tmp_path / "state"))
        (pid,) = (each.get() for each in run.algorithm.learner_group.foreach_learner(_pid))
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        with pytest.raises(Exception, match=r"(?i)actor|learner"):
            run.play(1)
    with built(small_config(Half())) as run:
        run.algorithm.restore_from_path(str(tmp_path / "state"))
        assert run.play(2) == undisturbed.rounds[2:]
        assert_equal(run.weights, undisturbed.weights)


def test_a_broken_task_costs_its_group_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_config(Half()).fault_tolerance(max_fault_share=0.3)
    broken = TaskStream(config.spec.environment, config.spec.seed).task_id(1)

    def find(name: str, sources: Sequence[str]) -> Task:
        if name == broken:
            raise EnvironmentFault("the simulator cannot be built")
        return find_task(name, sources)

    monkeypatch.setattr(runner_module, "find_task", find)
    with built(config) as run:
        report = run.round()
    assert (report.metrics["diagnosis/faults"], report.metrics["solver/groups_dropped_short"]) == (4, 1)
    assert report.metrics["solver/rollouts"] == 12
    assert {fault.kind for group in report.groups for fault in group.faults} == {"EnvironmentFault"}


def test_a_dialogue_that_fails_is_played_once_more(undisturbed: Undisturbed, monkeypatch: pytest.MonkeyPatch) -> None:
    with built(small_config(WrongAtFirst())) as run:
        assert run.play(1) == undisturbed.rounds[:1]
    monkeypatch.setattr(runner_module, "RETRIES", 0)
    with built(small_config(WrongAtFirst())) as run, pytest.raises(TooManyFaults, match="16 of 16 dialogues"):
        run.round()


def test_garbage_is_counted_typed_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = pytest.raises(TooManyFaults, match=r"of 16 dialogues were lost to faults \(\d+ ")
    with built(small_config(Half(garbage=0.9))) as run, lost:
        run.round()
    monkeypatch.setattr(runner_module, "RETRIES", 0)
    with built(small_config(Half(garbage=0.15)).fault_tolerance(max_fault_share=1.0)) as run:
        report = run.round()
    faults = [fault for group in report.groups for fault in group.faults]
    assert 0 < report.metrics["diagnosis/faults"] == len(faults) < 16
    assert {fault.kind for fault in faults} <= {"ValueError", "BadRequest"}


def test_an_engine_with_other_weights_stops_the_run() -> None:
    stale = pytest.raises(StaleWeights, match="version 1 instead of 0; the update did not reach the engine")
    with built(small_config(Half(version_offset=1))) as run, stale:
        run.round()
    # The version is right and the weights are not.
    wrong = pytest.raises(RatioError, match=r"solver's log-probs are .* more than 0.001 \(training.ratio_tolerance\)")
    with built(small_config(Half()).training(ratio_tolerance=None)) as run, wrong:
        run.round()


def test_an_interrupt_between_two_rounds_leaves_a_checkpoint_too(tmp_path: Path) -> None:
    config, folder = small_config(Half()).training(checkpoint_every=100), RunFolder(tmp_path)

    def interrupt(_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    assert recorder.train(config, folder, say=lambda _: None, report=interrupt) == 1
    assert newest(folder.path).name == "round_000001"
