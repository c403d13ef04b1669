"""Training a run: rounds until the end or a stop, recorded in the run folder, with checkpoints to resume from.

Commands and trials share `Recorder`.
"""

import math
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter

from seal_ray.algorithm.config import SealConfig
from seal_ray.algorithm.report import EvaluationReport, RoundReport
from seal_ray.algorithm.seal import Seal
from seal_ray.report.files import RunFolder
from seal_ray.report.page import write_page
from seal_ray.report.pictures import draw_curves
from seal_ray.report.trackers import Trackers
from seal_ray.rollout.types import Group
from seal_ray.run import checkpoints
from seal_ray.run.round_log import interleaved_members, write_round_log
from seal_ray.training.rows import RowWeight

Metrics = dict[str, float]


class Recorder:
    """Writes the reports of an algorithm to its run folder; it must be closed.

    Later rounds than the algorithm's are removed from the folder, and all rounds if the run is not `resumed`.
    """

    def __init__(self, algorithm: Seal, folder: RunFolder, *, resumed: bool, wandb: str = "off") -> None:
        self._algorithm = algorithm
        self._folder = folder
        self._spec = algorithm.spec

        after = algorithm.round if resumed else None
        logged = len(folder.metrics.lines())
        folder.truncate_after(-1 if after is None else after)
        rewound = len(folder.metrics.lines()) < logged
        config = algorithm.config.to_sections()
        self._trackers = Trackers(folder, config=config, wandb=wandb, rewound=rewound)
        self._unfinished: Path | None = None
        """A checkpoint that learners write at present."""
        self._drawer = ThreadPoolExecutor(1)
        self._drawing: Future[None] | None = None

    def write_start(self) -> Metrics:
        """Evaluates the model before training as round 0, unless the folder has that evaluation."""
        rows = self._folder.start.rows()
        if rows:
            metrics = {"round": 0.0, **rows[0]["metrics"]}
            self._folder.evaluations.append({"round": 0, "suites": rows[0]["suites"]})
        else:
            evaluation = self._algorithm.play_evaluation()
            metrics = {"round": 0.0, **_evaluation_metrics(evaluation)}
            self._write_evaluation(0, evaluation)
        self._write(metrics)
        self._trackers.write(0, metrics)
        self._draw(metrics)
        return metrics

    def play_round(self, train: Callable[[], object], *, save: Callable[[], bool]) -> Metrics:
        """Records the round that `train` plays, and writes a checkpoint after it if `save()` is true.

        Learners with sharded weights write it during the next round. The last round is always evaluated, unless the run
        has no evaluations.
        """
        algorithm, training = self._algorithm, self._spec.training
        started = perf_counter()
        train()
        report = algorithm.report
        assert report is not None
        metrics = {name: float(value) for name, value in report.metrics.items() if not math.isnan(value)}
        metrics["perf/round_seconds"] = perf_counter() - started
        metrics["perf/peak_memory_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        evaluation = report.evaluation
        if evaluation is None and self._spec.evaluation.interval and report.round == training.rounds:
            evaluation = algorithm.play_evaluation()
        if evaluation is not None:
            metrics |= _evaluation_metrics(evaluation)
        saved, was_saving, started = save(), self._unfinished is not None, perf_counter()
        self.finish_checkpoint()
        if saved:
            self.begin_checkpoint()
        if saved or was_saving:
            metrics["perf/checkpoint_seconds"] = perf_counter() - started
        if evaluation is not None:  # before the metrics, by which a run counts as finished
            self._write_evaluation(report.round, evaluation)
        self._write(metrics)
        self._write_report(report)
        self._trackers.write(report.round, metrics)
        if saved:
            played = (member.trajectory for _, member in interleaved_members(report.groups))
            self._trackers.write_dialogues(report.round, played)
            if not algorithm.is_saving or report.round == training.rounds:
                self.finish_checkpoint()
        self._draw(metrics)
        return metrics

    def begin_checkpoint(self) -> None:
        """Writes a checkpoint, which `finish_checkpoint` keeps."""
        self._unfinished = write_checkpoint(self._algorithm, self._folder)

    def finish_checkpoint(self) -> None:
        """Blocks until the last checkpoint is written, and keeps it."""
        part, self._unfinished = self._unfinished, None
        if part is not None:
            self._algorithm.finish_saving()
            checkpoints.keep(part, most=self._spec.training.checkpoints_kept)

    def close(self) -> None:
        """Finishes all writing; it may be called twice. Raises the error of a failed picture."""
        self._drawer.shutdown()
        self._trackers.close()
        checkpoints.remove_older_states(self._folder.checkpoints)
        self._end_drawing()

    def _write(self, metrics: Metrics) -> None:
        self._folder.append_metrics(
            int(metrics["round"]), {name: value for name, value in metrics.items() if name != "round"}
        )

    def _write_report(self, report: RoundReport) -> None:
        folder, number = self._folder, report.round
        played = {arm.id for group in report.groups for arm in group.plan.arms}
        folder.append_interfaces(
            number, {place: arm.interface for place, arm in enumerate(report.arms) if arm.id in played}
        )
        folder.proposals.append({"round": number, "proposals": report.curator.proposals})
        if report.curator.known:
            folder.arms.append({"round": number, "rounds": report.window_rounds, "arms": report.curator.known})
        if report.task_writer.proposals:
            folder.drafts.append({"round": number, "drafts": report.task_writer.proposals})
        if report.task_writer.known:
            folder.pool.append({"round": number, "tasks": report.task_writer.known})
        folder.profiles.append({"round": number, "profile": report.profile})
        self._write_log("round", number, report.groups, report.weighted)

    def _write_evaluation(self, number: int, evaluation: EvaluationReport) -> None:
        self._folder.evaluations.append({"round": number, "suites": evaluation.outcomes})
        self._write_log("evaluation", number, evaluation.groups)

    def _write_log(
        self, kind: str, number: int, groups: Sequence[Group], weighted: Mapping[int, RowWeight] | None = None
    ) -> None:
        write_round_log(
            self._folder.log_of(kind, number),
            groups,
            task=f"{kind} {number}",
            model=self._spec.solver.model,
            sources=[each for each in (self._spec.environment.source, self._spec.evaluation.source) if each],
            weighted=weighted,
            most=self._spec.training.trajectories_kept,
        )

    def _draw(self, metrics: Metrics) -> None:
        """Draws the curves and the page after an evaluation or a checkpoint, in a thread: it takes a few seconds."""
        if {"evaluation/success", "perf/checkpoint_seconds"} & metrics.keys():
            self._end_drawing()
            self._drawing = self._drawer.submit(self._draw_now)

    def _draw_now(self) -> None:
        draw_curves(self._folder.metrics.rows(), self._folder.curves, title=self._folder.path.name)
        write_page(self._folder)

    def _end_drawing(self) -> None:
        drawing, self._drawing = self._drawing, None
        if drawing is not None:
            drawing.result()


def write_checkpoint(algorithm: Seal, folder: RunFolder) -> Path:
    """Writes the algorithm's state and the solver as a model folder (and as an adapter), under a temporary name.

    Learners with sharded weights may still write: `Recorder.finish_checkpoint` waits for them. The states of all
    checkpoints but the newest are removed first, to free the disk.

    The run's last checkpoint has a folder for each other agent that learns too, of the agent's name.

    `checkpoints.keep` makes it a checkpoint. The rows of its rounds are written in between: after a kill before that,
    these rounds are played again from the checkpoint before.
    """
    part = folder.checkpoints / f"round_{algorithm.round:06d}{checkpoints.PART}"
    shutil.rmtree(part, ignore_errors=True)
    checkpoints.remove_older_states(folder.checkpoints)
    algorithm.save_to_path(str((part / checkpoints.STATE).resolve()), wait=False)
    is_last = algorithm.round >= algorithm.spec.training.rounds
    for agent in algorithm.agents.values():
        is_solver = agent is algorithm.solver
        if not is_solver and not (is_last and agent.spec.trainable):
            continue
        adapter = part / checkpoints.ADAPTER if is_solver else None
        agent.export(part / (checkpoints.MODEL if is_solver else agent.name), adapter=adapter)
    return part


def _evaluation_metrics(evaluation: EvaluationReport) -> Metrics:
    finite = {name: float(value) for name, value in evaluation.metrics.items() if math.isfinite(value)}
    named = {f"evaluation/{name}": value for name, value in finite.items()}
    return {**named, "perf/evaluation_seconds": evaluation.seconds}


def train(
    config: SealConfig,
    folder: RunFolder,
    *,
    resume: Path | None = None,
    wandb: str = "off",
    say: Callable[[str], None],
    report: Callable[[Mapping[str, float]], None],
) -> int:
    """Trains to the last round, from the start or from the checkpoint `resume`. Ray must be connected.

    Returns the number of finished rounds, fewer than the run has after an interrupt.

    A first interrupt lets the round end, writes a checkpoint and returns; a second one raises `KeyboardInterrupt`.

    Args:
        say: Gets progress messages.
        report: Gets the metrics of each round.
    """
    spec = config.spec
    training, evaluation = spec.training, spec.evaluation
    say("starting engines, env runners and learners")
    algorithm: Seal = config.build_algo()  # type: ignore[assignment]
    with ExitStack() as at_the_end:
        at_the_end.callback(algorithm.stop)
        if resume is not None:
            checkpoints.check_state(resume)
            algorithm.restore_from_path(str((resume / checkpoints.STATE).resolve()))
        recorder = Recorder(algorithm, folder, resumed=resume is not None, wandb=wandb)
        at_the_end.callback(recorder.close)
        stop_requested = at_the_end.enter_context(_stop_on_interrupt(say))

        def due() -> bool:
            last = algorithm.round == training.rounds or stop_requested()
            return last or algorithm.round % training.checkpoint_every == 0

        if resume is None and evaluation.interval:
            say("evaluating the model before training")
            report(recorder.write_start())
        while algorithm.round < training.rounds and not stop_requested():
            report(recorder.play_round(algorithm.train, save=due))
        recorder.finish_checkpoint()
        # After an interrupt between two rounds the last round may have no checkpoint.
        stored = checkpoints.stored(folder.checkpoints)
        if not stored or checkpoints.round_of(stored[-1]) < algorithm.round:
            recorder.begin_checkpoint()
            recorder.finish_checkpoint()
        return algorithm.round


@contextmanager
def _stop_on_interrupt(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    requested = False

    def request(*_: object) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True
        say("stopping after this round, with a checkpoint; interrupt again to stop at once")

    before = {name: signal.signal(name, request) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: requested
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
        sys.stdout.flush()
