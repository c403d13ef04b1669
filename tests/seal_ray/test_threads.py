"""Threads that wait for each other must not take the cores that other processes need."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "PASSIVE"}, "0")],
    ids=["nothing", "a count", "a policy"],
)
def test_openmp_spins_briefly_unless_the_user_said_how(given: dict[str, str], spins: str) -> None:
    """What OpenMP itself says that it has read, in a process that imports the learner's mathematics."""
    # What vLLM preloads, where an engine was started in this process, would be OpenMP before anything is imported.
    without = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "LD_PRELOAD"}
    others = {name: value for name, value in os.environ.items() if name not in without}
    done = subprocess.run(
        [sys.executable, "-c", "import seal_ray.grpo.forward"],
        env={**others, "OMP_DISPLAY_ENV": "VERBOSE", **given},
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr) == [spins]
