"""What importing the package sets for the whole process: how threads wait, and how often garbage is collected."""

import os
import re
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "PASSIVE"}, "0")],
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


@pytest.mark.parametrize(
    ("before", "after"),
    [("", (50_000, 10, 10)), ("gc.set_threshold(9, 8, 7)", (9, 8, 7))],
    ids=["Python's", "the user's"],
)
def test_garbage_is_collected_less_often_unless_the_user_said_how(before: str, after: tuple[int, ...]) -> None:
    program = f"import gc; {before}\nimport seal_ray; print(*gc.get_threshold())"
    # Without what the tests set for all their processes.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert tuple(map(int, done.stdout.split())) == after
