"""The cost of OpenMP's waiting threads for a learner, alone and with other processes: `python -m tests.bench.threads`.

Forward and backward pass of eight rows of the tiny model with two threads, in a process for each setting, and again
next to two processes that compute.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

PASSES, ROWS, TOKENS, THREADS, BUSY = 12, 8, 267, 2, 2
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "OpenMP's default": {},
    "1,000 turns": {"GOMP_SPINCOUNT": "1000"},
    "10,000 turns, ours": {"GOMP_SPINCOUNT": "10000"},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
}


def main() -> None:
    for busy in (0, BUSY):
        with _busy(busy):
            found = {name: _seconds(setting) for name, setting in SETTINGS.items()}
        default = found["OpenMP's default"]
        said = ", ".join(f"{name} {1000 * each:.0f} ms ({default / each:.2f})" for name, each in found.items())
        print(f"next to {busy} busy processes: {said}", flush=True)
    print("medians, and in brackets how many times as fast as OpenMP's default")


def _seconds(setting: Mapping[str, str]) -> float:
    without = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}
    environment = {name: value for name, value in os.environ.items() if name not in without} | dict(setting)
    command = [sys.executable, "-m", __spec__.name, "pass"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


@contextmanager
def _busy(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _pass() -> None:
    """Prints the median seconds of a pass. Nothing of `seal_ray` is imported, which would set what is measured."""
    import torch

    from policies import tiny
    from tests.policies.models import load

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    model = load(tiny.FOLDER)
    ids = torch.randint(5, int(model.config.vocab_size), (ROWS, TOKENS))
    took = []
    for _ in range(PASSES + 3):
        started = time.perf_counter()
        model(input_ids=ids, labels=ids).loss.backward()
        took.append(time.perf_counter() - started)
        model.zero_grad()
    print(statistics.median(took[3:]))


if __name__ == "__main__":
    _pass() if sys.argv[1:] == ["pass"] else main()
