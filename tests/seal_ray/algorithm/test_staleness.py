"""Rounds that are played with the weights before the last update, while the solver learns."""

from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import pytest
import ray

from envs.errors import UserError
from envs.roles import SOLVER
from seal_ray.agent import RatioError
from seal_ray.algorithm import co_evolution
from seal_ray.algorithm.checks import check_run
from seal_ray.algorithm.config import SealConfig
from seal_ray.rollout.types import Group, played_trajectories
from seal_ray.training.rows import RoundRows, make_rows
from tests.seal_ray.algorithm.configs import ROUNDS_IN_RAY, small_config
from tests.seal_ray.algorithm.engines import Half, Logged
from tests.seal_ray.algorithm.runs import assert_equal, built, check_resumes, timeless_state
from tests.seal_ray.algorithm.test_coevolution import pairs_config
from tests.seal_ray.algorithm.test_seal_rounds import deliveries, kill_soon

pytestmark = [*ROUNDS_IN_RAY, pytest.mark.long]


@pytest.mark.usefixtures("wide_prior")
def test_a_round_plays_the_weights_before_the_last_update_and_resumes(tmp_path: Path) -> None:
    def config() -> SealConfig:
        stale = {"dynamic_sampling": True, "staleness": 1, "importance_cap": 2.0}
        return pairs_config().curator(probe_points=8).training(**stale, ratio_tolerance=None)  # then it has no bound

    run = check_resumes(config, tmp_path)
    updates, lags = 0, []
    for report in run.reports:
        played = [each for group in report.groups for each in group.trajectories]
        versions = {version for each in played for version in compress(each.versions_T, each.mask_T)}
        lags.append({updates - version for version in versions})
        updates += "solver/steps" in report.metrics
    assert lags == [{0}, {1}, {1}]


@pytest.mark.only_by(target="long")
def test_an_engine_that_restarts_while_the_learners_learn_gets_the_weights_of_its_round() -> None:
    config = small_config(Half(pause=0.1), num_learners=2, num_cpus_per_learner=0.1).engine(num_engines=2)
    config.training(staleness=1, importance_cap=2.0)
    with built(config.copy(copy_frozen=False)) as run:
        expected, weights = run.play(3), run.weights
    with built(config.copy(copy_frozen=False)) as run:
        solver = run.algorithm.solver
        solver.in_buckets = True  # as on GPUs
        assert run.play(1) == expected[:1]
        (actor, _) = solver.engines.actors
        killer = kill_soon(ray.get(actor.processes.remote()), 0.4)
        assert run.play(2) == expected[1:]
        killer.join()
        assert solver.engines.restarts == 1
        solver.settle()
        assert deliveries(actor)[0][0] == "StoredWeights"
        assert_equal(run.weights, weights)


def test_a_held_round_is_restored_whatever_its_calls_hold(tmp_path: Path) -> None:
    """No other reader of JSON here takes so many levels, or digits."""
    arguments = f'{{"folder": {"[" * 40}{"7" * 60}{"]" * 40}}}'
    told = Half(writes={SOLVER: (f'<tool_call>\n{{"name": "cd", "arguments": {arguments}}}\n</tool_call>',)})
    config = small_config(told).training(staleness=1, importance_cap=2.0)
    with built(config.copy(copy_frozen=False)) as run:
        run.round()
        run.algorithm.save_to_path(tmp_path / "state")
        state = timeless_state(run)
    assert "7" * 60 in str(state["ahead"])
    with built(config.copy(copy_frozen=False)) as again:
        again.algorithm.restore_from_path(tmp_path / "state")
        assert timeless_state(again) == state
        file = tmp_path / "state" / "state.json"
        file.write_text(file.read_text("utf-8").replace('"ahead": "{', '"ahead": "{\\"waves\\": 3}{'), "utf-8")
        with pytest.raises(UserError, match="is the state of another run"):
            again.algorithm.restore_from_path(tmp_path / "state")


def test_a_fault_in_learning_ends_the_next_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    completions: list[int] = []

    def counted_rows(groups: Sequence[Group], **options: Any) -> RoundRows:
        completions.append(sum(len(each.sampled) for each in played_trajectories(groups)))
        return make_rows(groups, **options)

    monkeypatch.setattr(co_evolution, "make_rows", counted_rows)
    config = small_config(Half()).training(staleness=1, importance_cap=2.0, ratio_tolerance=1e-9)
    config.engine_factory = Logged(pause=2.0, file=str(tmp_path / "calls"))
    with built(config) as run, pytest.raises(RatioError):
        run.round()
    calls = (tmp_path / "calls").read_text("utf-8").split()
    first, rollouts = completions[0], 16
    assert first > 3 * rollouts
    assert calls.count("generate") <= first + 2 * rollouts, "each dialogue of the next round has begun at most"


def test_stale_rollouts_need_a_cap() -> None:
    with pytest.raises(UserError, match=r"^training.importance_cap: with training.staleness=1"):
        check_run(small_config(Half()).training(staleness=1).spec)
