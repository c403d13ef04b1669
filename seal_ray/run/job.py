"""Training a run: rounds until the end or a stop, each written down; checkpoints to go on from."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seal_ray.algorithm.config import SealConfig
from seal_ray.config import sections
from seal_ray.report.run_folder import RunFolder
from seal_ray.run import checkpoints
from seal_ray.run.recorder import Recorder

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
    """Trains to the last round, from the start or from the checkpoint `resume`. Ray must be connected.

    `report` gets each round's metrics. A first interrupt lets the round end, writes a checkpoint and returns; a second
    one is raised as `KeyboardInterrupt`.
    """
    training, evaluation = config.section(sections.Training), config.section(sections.Evaluation)
    say("starting engines, env runners and learners")
    algorithm: Seal = config.build_algo()  # type: ignore[assignment]
    recorder = None
    try:
        if resume is not None:
            checkpoints.restore(algorithm, resume)
        recorder = Recorder(algorithm, folder, resumed=resume is not None, wandb=wandb)
        with _stop_on_interrupt(say) as asked_to_stop:

            def due() -> bool:
                last = algorithm.round == training.rounds or asked_to_stop()
                return last or algorithm.round % training.checkpoint_every == 0

            if resume is None and evaluation.interval:
                say("evaluating the model as it is")
                report(recorder.write_start())
            while algorithm.round < training.rounds and not asked_to_stop():
                report(recorder.play_round(algorithm.train, save=due))
            # An interrupt between two rounds has no round to end.
            found = checkpoints.stored(folder.checkpoints)
            if not found or checkpoints.round_of(found[-1]) < algorithm.round:
                checkpoints.save(algorithm, folder, keep=training.checkpoints_kept)
        return Outcome(algorithm.round, stopped=algorithm.round < training.rounds)
    finally:
        if recorder is not None:
            recorder.close()
        algorithm.stop()


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
