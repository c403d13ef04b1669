"""Tune runs `Seal` as it runs any RLlib algorithm: search spaces on the config, results by the metrics' names."""

from pathlib import Path

import pytest
from ray import tune

from seal_ray.algorithm.seal import Seal
from tests.seal_ray.algorithm.configs import small_config
from tests.seal_ray.algorithm.engines import Half

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.filterwarnings("ignore"), pytest.mark.long]


def test_two_trials_of_a_search_space(tmp_path: Path) -> None:
    config = small_config(Half())
    config.num_cpus_for_main_process = 1
    config.training(lr=tune.grid_search([1e-4, 1e-2])).evaluation(interval=1, tasks=4)
    # Each actor has its own bundle in the trial's placement group.
    config.env_runners(num_env_runners=1).engine(num_cpus_per_engine=0.1)
    tuner = tune.Tuner(
        Seal,
        param_space=config,  # type: ignore[arg-type] # RLlib's configs are taken too
        tune_config=tune.TuneConfig(metric="evaluation/success", mode="max", max_concurrent_trials=1),
        run_config=tune.RunConfig(storage_path=str(tmp_path), stop={"training_iteration": 2}, verbose=0),
    )
    grid = tuner.fit()
    assert not grid.errors
    results = [grid[place] for place in range(len(grid))]
    assert sorted(result.config["lr"] for result in results if result.config) == [1e-4, 1e-2]
    for result in results:
        metrics = result.metrics or {}
        assert metrics["round"] == 2
        assert 0 <= metrics["evaluation"]["success"] <= 1
        assert metrics["solver/rollouts"] == 16
    best = grid.get_best_result()
    assert best.config is not None
    assert best.config["seed"] == 0
