"""The cost of a round of training without engine and learner, and its memory: `python -m tests.bench.rounds`.

Some rounds of the tiny preset, as `seal-ray train` runs them, in stretches of some that follow on each other; what is
delivered after a stretch is waited for. After a stretch the requests of its rounds are sent to an engine of the same
kind alone, with the same weights, no environment, no Ray and no order among them but a dialogue's own: what that takes
is the engine's own time. Overhead is the share of the rounds that is neither this nor the learner's update, without the
first stretch. The log of all dialogues is written as in a run; its share is of the CPU seconds of all processes.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import torch

from policies.engine import Engine, GenRequest
from policies.engine.choice import default_kind, start_engine
from policies.engine.requests import checkpoint_shapes
from policies.prompting import ChatFormat
from policies.trajectory import Trajectory, derive_seed
from seal_ray.algorithm.config import make_config
from seal_ray.algorithm.seal import Seal
from seal_ray.run.cluster import connected
from seal_ray.run.round_log import write_round_log
from seal_ray.training.weights import full_weights
from tests.bench.memory import Memory

ROUNDS = 9
STRETCH = 3
GOAL_OVERHEAD, GOAL_LOGS, GOAL_GIB = 0.05, 0.02, 6.0


def _requests(trajectory: Trajectory, form: ChatFormat, most: int) -> list[GenRequest]:
    """The requests of a dialogue in order; budgets make no difference to the samples."""
    return [
        GenRequest(
            trajectory.token_ids_T[: span.begin],
            max_tokens=most,
            seed=derive_seed(trajectory.seed, place),
            stop_token_ids=form.stop_token_ids,
        )
        for place, span in enumerate(trajectory.sampled)
    ]


class _Alone:
    """An engine without other requests."""

    def __init__(self, algorithm: Seal) -> None:
        solver, engine = algorithm.solver, algorithm.spec.engine
        self._solver = solver
        self._dtype = engine.dtype
        self._form = ChatFormat.load(solver.model.path, solver.model.dialect)
        self._runner = asyncio.Runner()
        self._version = 0
        starting = start_engine(
            default_kind(), solver.model, context=solver.spec.context, dtype=engine.dtype, concurrent=engine.concurrent
        )
        self._engine: Engine = self._runner.run(starting)

    def seconds(self, played: Sequence[Trajectory], weights: Mapping[str, torch.Tensor]) -> float:
        """The time for the requests of these dialogues with these weights, from an empty cache."""
        dialogues = [_requests(each, self._form, self._solver.spec.response) for each in played]
        self._version += 1
        sent = full_weights(weights, checkpoint_shapes(self._solver.model.path), self._dtype)
        self._runner.run(self._engine.update_weights(sent, self._version))
        started = time.perf_counter()
        self._runner.run(self._all(dialogues))
        return time.perf_counter() - started

    async def _all(self, dialogues: Sequence[list[GenRequest]]) -> None:
        async def one(requests: list[GenRequest]) -> None:
            for request in requests:
                await self._engine.generate(request)

        await asyncio.gather(*map(one, dialogues))

    def close(self) -> None:
        self._runner.run(self._engine.close())
        self._runner.close()


def phases_of(result: Mapping[str, Any]) -> dict[str, float]:
    """Phase of a round → seconds, of what `train()` returned."""
    return {
        name.removeprefix("perf/").removesuffix("_seconds"): float(value)
        for name, value in result.items()
        if name.startswith("perf/") and name.endswith("_seconds")
    }


@dataclass(frozen=True)
class _Round:
    """A round, with the weights that it was sampled with."""

    seconds: float
    phases: Mapping[str, float]
    trajectories: Sequence[Trajectory]
    weights: Mapping[str, torch.Tensor]
    cpu: float
    log_cpu: float


def _cpu_seconds() -> float:
    """The CPU seconds so far of this process and all below it."""
    own = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in (own, *own.children(recursive=True)))


def _log_seconds(algorithm: Seal) -> float:
    """The CPU seconds of the log of a round."""
    assert algorithm.report is not None
    groups, weighted, model = algorithm.report.groups, algorithm.report.weighted, algorithm.spec.solver.model
    sources = [algorithm.spec.environment.source]
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        write_round_log(Path(folder, "x"), groups, task="x", model=model, sources=sources, weighted=weighted)
        return time.process_time() - started


def _stretch(algorithm: Seal, rounds: int) -> list[_Round]:
    """Rounds that follow on each other. The last delivery is awaited, and counts for the last round."""
    found: list[_Round] = []

    for number in range(rounds):
        weights = algorithm.solver.weights()
        started, cpu = time.perf_counter(), _cpu_seconds()
        result = algorithm.train()
        if number + 1 == rounds:
            algorithm.solver.settle()
        seconds, cpu = time.perf_counter() - started, _cpu_seconds() - cpu
        assert algorithm.report is not None
        trajectories = [each for group in algorithm.report.groups for each in group.trajectories]
        found.append(_Round(seconds, phases_of(result), trajectories, weights, cpu, _log_seconds(algorithm)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    if given.rounds <= STRETCH:
        parser.error(f"--rounds: {given.rounds} is too few; the first {STRETCH} do not count.")
    config = make_config(["tiny"], overrides=["evaluation.interval=0"])
    took, outside, cpu, logs = [], [], [], []
    with ExitStack() as stack:
        memory = stack.enter_context(Memory())
        stack.enter_context(connected())
        algorithm = config.build_algo()
        assert isinstance(algorithm, Seal)
        stack.callback(algorithm.stop)
        alone = _Alone(algorithm)
        stack.callback(alone.close)
        for first in range(0, given.rounds, STRETCH):
            numbers = range(first, min(first + STRETCH, given.rounds))
            for played in _stretch(algorithm, len(numbers)):
                engine = alone.seconds(played.trajectories, played.weights)
                took.append(played.seconds)
                outside.append(played.seconds - engine - played.phases["learn"])
                cpu.append(played.cpu)
                logs.append(played.log_cpu)
                print(
                    f"round {len(took)}: {played.seconds:.1f} s: {_said(played.phases)}; engine alone {engine:.2f}",
                    flush=True,
                )
    overhead = sum(outside[STRETCH:]) / sum(took[STRETCH:])
    print(
        f"overhead outside engine and learner, without the first stretch: {overhead:.1%} (goal {GOAL_OVERHEAD:.0%}); "
        f"logs {sum(logs[STRETCH:]) / sum(cpu[STRETCH:]):.2%} of its CPU seconds (goal {GOAL_LOGS:.0%}); "
        f"memory of all processes at most {memory.peak / 2**30:.2f} GiB (goal {GOAL_GIB:g}, without the second engine)"
    )


def _said(phases: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.2f}" for name, seconds in phases.items())


if __name__ == "__main__":
    main()
