"""Training a run: rounds until the end or a stop, each written down; checkpoints to go on from."""

from __future__ import annotations

import math
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from envs.interface import Interface
from envs.task import JSON
from seal_ray.config import sections
from seal_ray.config.seal_config import SealConfig
from seal_ray.report.curves import draw_curves
from seal_ray.report.metrics import describe
from seal_ray.report.run_folder import RunFolder
from seal_ray.report.writers import Writers
from seal_ray.run import checkpoints

if TYPE_CHECKING:
    from seal_ray.algorithm.seal import Seal

Metrics = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended: rounds finished, and whether it was stopped before its last."""

    rounds: int
    stopped: bool


def train(
    config: SealConfig,
    folder: RunFolder,
    *,
    resume: Path | None = None,
    wandb: str = "off",
    say: Callable[[str], None],
    report: Callable[[Metrics], None],
) -> Outcome:
    """Trains to the last round, from the begin or from the checkpoint `resume`. Ray must be connected.

    `report` gets each round's metrics. A first interrupt lets the round end, writes a checkpoint and returns; a second
    one is raised as `KeyboardInterrupt`.
    """
    training, evaluation = config.section(sections.Training), config.section(sections.Evaluation)
    say("starting engines, env runners and learners")
    algorithm: Seal = config.build_algo()  # type: ignore[assignment]
    writers = None
    try:
        if resume is not None:
            checkpoints.restore(algorithm, resume)
        folder.truncate_after(algorithm.round)
        after = algorithm.round if resume else None
        writers = Writers(folder, config=config.to_sections(), wandb=wandb, after_round=after)
        with _stop_on_interrupt(say) as asked_to_stop:
            if resume is None and evaluation.interval:
                say("evaluating the model as it is")
                _write(algorithm, {"round": 0, **_of_evaluation(algorithm.evaluate())}, folder, writers, report)
            while algorithm.round < training.rounds and not asked_to_stop():
                started = perf_counter()
                metrics = _numbers(algorithm.train())
                metrics["perf/round_seconds"] = perf_counter() - started
                metrics["perf/peak_memory_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
                last = algorithm.round == training.rounds or asked_to_stop()
                if last or algorithm.round % training.checkpoint_every == 0:
                    started = perf_counter()
                    checkpoints.save(algorithm, folder, keep=training.checkpoints_kept)
                    metrics["perf/checkpoint_seconds"] = perf_counter() - started
                _write(algorithm, metrics, folder, writers, report)
            if not checkpoints.stored(folder.checkpoints):
                checkpoints.save(algorithm, folder, keep=training.checkpoints_kept)
        return Outcome(algorithm.round, stopped=algorithm.round < training.rounds)
    finally:
        if writers is not None:
            writers.close()
        algorithm.stop()


def _write(
    algorithm: Seal, metrics: Metrics, folder: RunFolder, writers: Writers, report: Callable[[Metrics], None]
) -> None:
    number = int(metrics["round"])
    folder.append_metrics(number, {name: value for name, value in metrics.items() if name != "round"})
    if number:
        shown = {group.plan.arm: group.plan.interface for group in algorithm.last_round}
        folder.append_interfaces(number, [shown[arm] for arm in sorted(shown)] or [Interface.plain()])
        folder.append_profile(number, algorithm.profile.to_dict())
        folder.write_trajectories(number, _sample(algorithm))
    writers.write(number, metrics)
    # Drawing takes about a second: with what took far longer, and so before every end of a run.
    if {"evaluation/success", "perf/checkpoint_seconds"} & metrics.keys():
        draw_curves(folder.metrics.rows(), folder.curves, title=folder.path.name)
    report(metrics)


def _sample(algorithm: Seal) -> Iterator[dict[str, JSON]]:
    """The first dialogues of as many groups as are to be kept."""
    most = algorithm.config.section(sections.Diagnosis).trajectories_kept
    firsts = [group.trajectories[0] for group in algorithm.last_round if group.trajectories]
    yield from (trajectory.to_dict() for trajectory in firsts[:most])


def _numbers(result: Mapping[str, Any]) -> dict[str, float]:
    """Our metrics among all that RLlib reports. It reports nan for what was not measured in this round."""
    values = {name: float(value) for name, value in result.items() if _is_ours(name) and not isinstance(value, dict)}
    found = {name: value for name, value in values.items() if not math.isnan(value)}
    return {**found, **_of_evaluation(result.get("evaluation") or {})}


def _of_evaluation(result: Mapping[str, Any]) -> dict[str, float]:
    found = {f"evaluation/{name}": float(value) for name, value in result.items() if _is_ours(f"evaluation/{name}")}
    if "seconds" in result:
        found["perf/evaluation_seconds"] = float(result["seconds"])
    return found


def _is_ours(name: str) -> bool:
    try:
        describe(name)
    except ValueError:
        return False
    return True


@contextmanager
def _stop_on_interrupt(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        say("stopping after this round, with a checkpoint; interrupt again to stop at once")

    before = {name: signal.signal(name, ask) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
        sys.stdout.flush()
