"""A small config for whole rounds, and what tests that play them in Ray are marked with."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from policies import tiny
from policies.models import open_model
from seal_ray.algorithm.config import SealConfig
from tests.policies.models import random_qwen2
from tests.seal_ray.algorithm.engines import TASKS, Half

ROUNDS_IN_RAY = [
    pytest.mark.usefixtures("cluster"),
    *(
        pytest.mark.filterwarnings(f"ignore::{warning}Warning")
        for warning in ("Deprecation", "User", "Future", "Resource", "pytest.PytestUnraisableException")
    ),
]
"""Marks of tests that play whole rounds."""


@cache
def small_model() -> Path:
    """The folder of a random model of one layer with the tokenizer of `tiny`. It is gone with this process."""
    folder = Path(tempfile.mkdtemp(prefix="seal-ray-small-model-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tiny.FOLDER / name, folder)
    vocabulary = int(open_model(tiny.NAME).config["vocab_size"])
    shape: Any = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "max_position_embeddings": 4096}
    return random_qwen2(folder, seed=1, vocab_size=vocabulary, **shape)


def small_config(engine: Half, **learners: Any) -> SealConfig:
    """A config for rounds of a second: 4 groups of 4 on a scripted engine, two gradient steps a round.

    A script's completions do not depend on the model that learns, which is `small_model`.
    """
    config = (
        SealConfig()
        .environment(tasks=TASKS)
        .engine(kind="transformers", dtype="float32", num_cpus_per_engine=0.1)
        .solver(model=str(small_model()), dtype="float32", prompt=2048, response=128, context=3072)
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
