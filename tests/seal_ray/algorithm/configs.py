"""A small config for whole rounds, and what tests that play them in Ray are marked with."""

from __future__ import annotations

from typing import Any

import pytest

from seal_ray.algorithm.config import SealConfig
from tests.seal_ray.algorithm.engines import TASKS, Half

ROUNDS_IN_RAY = [
    pytest.mark.usefixtures("cluster"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""Marks of tests that play whole rounds."""


def small_config(engine: Half, **learners: Any) -> SealConfig:
    """A config for rounds of a few seconds: 4 groups of 4 on a scripted engine, two gradient steps a round."""
    config = (
        SealConfig()
        .environment(tasks=TASKS)
        .engine(kind="transformers", dtype="float32", num_cpus_per_engine=0.1)
        .solver(dtype="float32", prompt=2048, response=128, context=3072)
        .curator(kind="none")
        .training(
            groups=4,
            group_size=4,
            minibatch_groups=2,
            lr=1e-3,
            kl=0.0,
            rounds=4,
            microbatch_tokens=512,
            # A script samples nothing, so that its log-probs are not the model's.
            ratio_tolerance=1e9,
        )
        .evaluation(interval=0)
        .env_runners(num_env_runners=0, num_cpus_per_env_runner=0.1)
        .learners(**learners)
        .fault_tolerance(engine_timeout=120.0)
    )
    config.engine_factory = engine
    config.seed = 0
    return config
