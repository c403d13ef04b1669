"""Processes that start as forks of one (tests/startup) draw different random numbers."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import ray

from tests.readme import ROOT

pytestmark = [
    pytest.mark.long,
    pytest.mark.only_by(target="long"),
]


class Drawing:
    """The draws of a worker of Ray in its first thread and in another, and whether it began with our code imported."""

    def draw(self) -> tuple[set[str], bool]:
        with ThreadPoolExecutor(1) as another:
            ids = {self._id(), another.submit(self._id).result()}
        return {*ids, str(np.random.random())}, "seal_ray.algorithm.seal" in sys.modules

    def _id(self) -> str:
        return ray.ObjectRef.from_random().hex()


def test_forks_draw_ids_of_their_own() -> None:
    """In a pytest of its own: workers are no forks if a test has changed a variable that the server had read."""
    options = ("-q", "-o", "python_functions=check_*", "-p", "no:cacheprovider")
    others = ("PYTEST_", "SEAL_RAY_TESTS", "RAY_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    command = (sys.executable, "-m", "pytest", *options, __file__)
    done = subprocess.run(command, env=own, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "1 passed" in done.stdout


@pytest.mark.usefixtures("cluster")
def check_forks_draw_ids_of_their_own() -> None:
    actors: list[Any] = [ray.remote(Drawing).options(num_cpus=0.1).remote() for _ in range(3)]
    drawn, forks = zip(*ray.get([actor.draw.remote() for actor in actors]), strict=True)
    for actor in actors:
        ray.kill(actor)
    assert len(set.union(*drawn)) == 9
    assert all(forks)
