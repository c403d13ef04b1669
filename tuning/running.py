"""Running trials on Ray Tune: graceful stops, resuming, retries of failures, and an event for every change."""

import os
import re
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from ray import tune
from ray.exceptions import OutOfMemoryError
from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler

from envs.errors import SealError, UserError
from seal_ray.algorithm.config import SealConfig
from seal_ray.algorithm.seal import Seal
from seal_ray.rllib import keep_keys_from_trials, tune_files_signed
from seal_ray.run.cluster import check_available, largest_resources
from tuning.record import TrialsManifest, has_ended, mark_ended, mark_failed, mark_started
from tuning.trial import DIRECTORY, SealTrial, run_folder, with_main
from tuning.trust import TUNE, sign_tune_files, trust_trials

RETRIES = 2
"""Number of times that a failed trial resumes from its last checkpoint before it is given up."""

CHECKPOINTS = 2
"""Number of checkpoints of a trial that are kept."""

_STOPS = (signal.SIGINT, signal.SIGTERM)
"""Signals that let the current rounds end."""

_LEAST_MAIN_CPUS = 0.1
"""Smallest CPU request of a trial's main process."""

_ENVIRONMENT = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # a trial changes to the command's working directory
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the run folders have all metrics
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # an event reports them
    "TUNE_GLOBAL_CHECKPOINT_S": "1",  # a kill loses no trial that ended over a second ago
    "RAY_AIR_NEW_OUTPUT": "0",  # the new output ignores verbose=0
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


class MemoryFault(SealError, RuntimeError):
    """A machine ran out of memory, and Ray ended processes of a trial."""


class TrialEventKind(Enum):
    STARTED = "started"
    ROUND = "round"
    RETRIED = "retried"
    FAILED = "failed"
    ENDED = "ended"
    """After its last round, or because a scheduler stopped it."""
    STOPPING = "stopping"
    """An interrupt; Tune waits for the current rounds. The event has no trial."""


@dataclass(frozen=True, slots=True)
class TrialEvent:
    """A change of a trial: a round has `metrics`, a failure an `error`."""

    kind: TrialEventKind
    trial: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    error: str = ""


OnEvent = Callable[[TrialEvent], None]


def check_new_folder(folder: Path, kind: type[TrialsManifest]) -> None:
    """Raises `UserError` if the folder of a new comparison or sweep exists."""
    if folder.exists():
        resume = f"seal-ray {kind.COMMAND} --resume {folder}"
        raise UserError(f"{folder} exists; resume it with {resume}, or give another --name.")


def run_trials(
    out: Path,
    space: Mapping[str, Any],
    *,
    on_event: OnEvent,
    retries: int,
    checkpoint_every: int,
    checkpoints: int = CHECKPOINTS,
    search: Any = None,
    scheduler: TrialScheduler | None = None,
    samples: int = 1,
) -> None:
    """Runs the trials of a parameter space of Tune, until their end or an interrupt. Ray must be connected.

    Args:
        out: Gets Tune's state in a subfolder, with the last `checkpoints` of each trial.
        search: With its own metric, like the scheduler; without one every point of the space is a trial.

    Raises:
        MemoryFault: A machine ran out of memory; the trials can be resumed.
    """
    with _tune_environment():
        tuner = tune.Tuner(
            SealTrial,
            param_space={**space, DIRECTORY: os.getcwd()},
            tune_config=tune.TuneConfig(
                trial_name_creator=_name,
                trial_dirname_creator=_name,
                search_alg=search,
                scheduler=scheduler,
                num_samples=samples,
            ),
            run_config=tune.RunConfig(
                name=TUNE,
                storage_path=str(out.resolve()),
                verbose=0,
                callbacks=[_Events(scheduler)],
                failure_config=tune.FailureConfig(max_failures=retries),
                checkpoint_config=tune.CheckpointConfig(
                    num_to_keep=checkpoints, checkpoint_frequency=checkpoint_every, checkpoint_at_end=False
                ),
            ),
        )
        sign_tune_files(out, out / TUNE)
        _fit(tuner, on_event, out)


def check_resumable(out: Path, kind: type[TrialsManifest]) -> None:
    """Raises `UserError` unless the trials of a manifest of this kind can be resumed and are trusted."""
    kind.read(out).check_resumable(out)
    if not tune.Tuner.can_restore(str(out.resolve() / TUNE)):
        raise UserError(f"{out} stopped before its first trial; remove it, and start again.")
    trust_trials(out, kind)


def resume_trials(out: Path, kind: type[TrialsManifest], *, on_event: OnEvent) -> None:
    """Resumes unfinished trials from their last checkpoints; failed ones start again. Ray must be connected.

    Raises:
        UserError: As `check_resumable`, or the cluster can never hold a trial that is left.
        MemoryFault: As `run_trials`.
    """
    check_resumable(out, kind)
    with _tune_environment():
        path = str(out.resolve() / TUNE)
        check_fit(tune.ExperimentAnalysis(path).get_all_configs())
        _fit(tune.Tuner.restore(path, SealTrial, resume_unfinished=True, restart_errored=True), on_event, out)


def check_fit(configs: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises `UserError` if the cluster, which may have shrunk, can never hold a trial that is left.

    `configs` has the config of each trial by its id.
    """
    for trial_id, config in configs.items():
        folder = run_folder(config, trial_id)
        if not has_ended(folder):
            check_available(f"the trial {folder.name}", SealTrial.default_resource_request(config).required_resources)


def _fit(tuner: tune.Tuner, on_event: OnEvent, out: Path) -> None:
    before = {name: signal.getsignal(name) for name in _STOPS}
    _Events.listeners.append(on_event)
    try:
        with tune_files_signed(partial(sign_tune_files, out)):
            tuner.fit()
    except RuntimeError as error:
        # Tune retries a trial whose process dies, but fails itself if Ray killed the process for lack of memory.
        if not isinstance(error.__cause__, OutOfMemoryError):
            raise
        raise MemoryFault(
            "a machine ran out of memory, and Ray ended the processes of a trial; end other programs there, or use "
            "fewer or smaller engines, and resume with --resume."
        ) from None
    finally:
        _Events.listeners.remove(on_event)
        for name, handler in before.items():
            signal.signal(name, handler)


class _Events(tune.Callback):
    """Sends the events of trials to listeners, marks trials that end or are given up, and keeps ASHA's state.

    Tune pickles its callbacks and restores them on resuming. Listeners, which write to a terminal, cannot be pickled,
    so they are an attribute of the class. Tune forgets the results that ASHA has recorded of ended trials: they are
    this callback's state.
    """

    listeners: ClassVar[list[OnEvent]] = []

    def __init__(self, scheduler: TrialScheduler | None = None) -> None:
        self._scheduler = scheduler

    def setup(self, *_: Any, **info: Any) -> None:  # noqa: ARG002 - Tune passes it
        stop = signal.getsignal(signal.SIGINT)  # Tune's handler, which lets the current rounds end

        def stopping(*args: Any) -> None:
            self._send(TrialEventKind.STOPPING)
            if callable(stop):
                stop(*args)
            for name in _STOPS:
                signal.signal(name, signal.default_int_handler)

        # Ray's own handler of SIGTERM would end the process at once.
        for name in _STOPS:
            signal.signal(name, stopping)

    def on_trial_start(self, *_: Any, **info: Any) -> None:
        mark_started(_folder(info["trial"]))
        self._send(TrialEventKind.STARTED, info)

    def on_trial_result(self, *_: Any, **info: Any) -> None:
        if "round" in info["result"]:
            self._send(TrialEventKind.ROUND, info, metrics=info["result"])

    def on_trial_recover(self, *_: Any, **info: Any) -> None:
        self._send(TrialEventKind.RETRIED, info, error=_error(info["trial"]))

    def on_trial_error(self, *_: Any, **info: Any) -> None:
        mark_failed(_folder(info["trial"]), _error(info["trial"]))
        self._send(TrialEventKind.FAILED, info, error=_error(info["trial"]))

    def on_trial_complete(self, *_: Any, **info: Any) -> None:
        mark_ended(_folder(info["trial"]))
        self._send(TrialEventKind.ENDED, info)

    def get_state(self) -> dict[str, Any] | None:
        return dict(vars(self._scheduler)) if isinstance(self._scheduler, AsyncHyperBandScheduler) else None

    def set_state(self, state: dict[str, Any]) -> None:
        vars(self._scheduler).update(state)

    def _send(self, kind: TrialEventKind, info: Mapping[str, Any] | None = None, **more: Any) -> None:
        for listener in self.listeners:
            listener(TrialEvent(kind, _name(info["trial"]) if info else "", **more))


def _folder(trial: Any) -> Path:
    return run_folder(trial.config, trial.trial_id)


def _name(trial: Any) -> str:
    return _folder(trial).name


def _error(trial: Any) -> str:
    return last_error(Path(trial.error_file).read_text("utf-8", "replace"))


def last_error(text: str) -> str:
    """The last error of a trial in one line, from Tune's file of its errors with their tracebacks."""
    last = text.rpartition("Failure # ")[2].partition("\n")[2].strip()
    named = re.findall(r"^(?:\w+\.)*(\w+: \S.*)$", last, re.MULTILINE)
    return (named[-1] if named else last.partition("\n")[0])[:500] or "it left no message"


def main_process_cpus(configs: Mapping[str, SealConfig]) -> float:
    """The CPUs of each trial's main process: one, or what the actors leave on a small cluster.

    `configs` are the configs that trials can have, by name. Raises `UserError` if the cluster can never hold one of
    them; Tune would wait forever.
    """
    available, main = largest_resources(), 1.0
    for name, config in configs.items():
        request = with_main(Seal.default_resource_request(config), _LEAST_MAIN_CPUS).required_resources
        check_available(f"a trial of {name}", request)
        main = min(main, round(available["CPU"] - request["CPU"] + _LEAST_MAIN_CPUS, 4))
    return main


@contextmanager
def _tune_environment() -> Iterator[None]:
    """Sets Tune's environment variables and hides a warning within the block."""
    keep_keys_from_trials()
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    try:
        with warnings.catch_warnings():
            # Actors cannot be reused: engines and learners are built for one config.
            warnings.filterwarnings("ignore", "Consider boosting PBT performance by enabling `reuse_actors`")
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
