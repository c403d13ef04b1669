"""Rounds of another commit, in a process of its own that plays one when it is told to.

The process runs this file with that commit's code: what it imports below must be there since the first commit that is
compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

_READY = "the rounds can begin"


def phases_of(result: Mapping[str, Any]) -> dict[str, float]:
    """Phase of a round → seconds, of what `train()` returned."""
    return {
        name.removeprefix("perf/").removesuffix("_seconds"): float(value)
        for name, value in result.items()
        if name.startswith("perf/") and name.endswith("_seconds")
    }


class OtherRounds:
    """Plays rounds of the code in `tree`."""

    def __init__(self, tree: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(tree), "RAY_ADDRESS": "local"}
        environment.pop("GOMP_SPINCOUNT", None)  # the package of this process has set it; the other decides for itself
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            cwd=tree,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        self._answer(_READY)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # the end of its input ends it

    def next(self) -> tuple[float, dict[str, float]]:
        """Seconds of the next round, and of its phases."""
        assert self._process.stdin is not None
        self._process.stdin.write("next\n")
        self._process.stdin.flush()
        took, phases = json.loads(self._answer("["))
        return took, phases

    def _answer(self, beginning: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:  # engines and libraries write there too
            if line.startswith(beginning):
                return line
        raise RuntimeError("the process with the other commit's code ended")


def _play() -> None:
    import time

    from seal_ray.algorithm.config import make_config
    from seal_ray.run.cluster import connected

    config = make_config(["tiny"], overrides=["evaluation.interval=0"])
    with connected():
        algorithm: Any = config.build_algo()
        print(_READY, flush=True)
        for _ in sys.stdin:
            started = time.perf_counter()
            result = algorithm.train()
            getattr(algorithm.solver, "settle", lambda: None)()  # its engines may still be taking the weights
            print(json.dumps([time.perf_counter() - started, phases_of(result)]), flush=True)
        algorithm.stop()


if __name__ == "__main__":
    _play()
