"""One small Ray cluster for all tests of this folder that a test process runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import ray


@pytest.fixture(scope="session")
def ray_here() -> Iterator[None]:
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield
    ray.shutdown()
