"""Running trials on Ray Tune: stopped in good order, resumed, failures retried and reported as they happen."""

from __future__ import annotations

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

import ray
from ray import tune
from ray.exceptions import OutOfMemoryError
from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler

from envs.errors import SealError, UserError
from seal_ray.algorithm.config import SealConfig
from seal_ray.algorithm.seal import Seal
from seal_ray.rllib import keep_keys_from_trials, tune_files_signed
from seal_ray.run.cluster import check_asked
from tuning.record import TrialsManifest, has_ended, mark_ended, mark_failed, mark_started
from tuning.trial import SealTrial, run_folder, with_main
from tuning.trust import TUNE, sign_tune_files, trust_trials

RETRIES = 2
"""Times that a failed trial goes on from its last checkpoint before it is given up."""

CHECKPOINTS = 2
"""Checkpoints of a trial that are kept."""

_STOPS = (signal.SIGINT, signal.SIGTERM)
"""Signals that stop in good order."""

_LEAST_OF_MAIN = 0.1
"""CPUs that a trial's main process asks for at the least."""

_ENVIRONMENT = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # paths in settings are relative to where the command was given
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the run folders have it all
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # each is reported in a line
    "TUNE_GLOBAL_CHECKPOINT_S": "1",  # a kill forgets no trial that ended over a second ago
    "RAY_AIR_NEW_OUTPUT": "0",  # the other output honours that it is not wanted
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


class MemoryFault(SealError, RuntimeError):
    """A machine ran out of memory, and Ray ended processes of a trial."""


class TrialEventKind(Enum):
    """What a trial can do."""

    STARTED = "started"
    ROUND = "round"
    RETRIED = "retried"
    FAILED = "failed"
    ENDED = "ended"
    """After its last round, or because a scheduler stopped it."""
    STOPPING = "stopping"
    """Tune was interrupted, and waits for the rounds under way. It has no trial."""


@dataclass(frozen=True, slots=True)
class TrialEvent:
    """Something that happened to a trial; `metrics` are those of a round, `error` what it failed of."""

    happening: TrialEventKind
    trial: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    error: str = ""


OnEvent = Callable[[TrialEvent], None]


def run_trials(
    out: Path,
    space: Mapping[str, Any],
    *,
    tell: OnEvent,
    retries: int,
    checkpoint_every: int,
    checkpoints: int = CHECKPOINTS,
    search: Any = None,
    scheduler: TrialScheduler | None = None,
    samples: int = 1,
) -> None:
    """Runs the trials of a parameter space of Tune, until their end or an interrupt. Ray must be connected.

    Tune's state goes to a folder in `out`, with the last `checkpoints` of each trial. Search and scheduler know
    themselves what they go by; without a search every point of the space is tried. Raises `MemoryFault`; trials can
    then be gone on with.
    """
    with _prepared():
        tuner = tune.Tuner(
            SealTrial,
            param_space=dict(space),
            tune_config=tune.TuneConfig(
                trial_name_creator=_name_of,
                trial_dirname_creator=_name_of,
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
        _fit(tuner, tell, out)


def check_resumable(out: Path, kind: type[TrialsManifest]) -> None:
    """Raises `UserError` unless the trials of a manifest of this kind can be resumed and are trusted."""
    started_as = kind.read(out).folder
    if str(out.resolve()) != started_as:
        raise UserError(f"{out} was started as {started_as}; move it back there to go on with it.")
    if not tune.Tuner.can_restore(str(out.resolve() / TUNE)):
        raise UserError(f"{out} stopped before its first trial; remove it, and start again.")
    trust_trials(out, kind)


def resume_trials(out: Path, kind: type[TrialsManifest], *, tell: OnEvent) -> None:
    """Goes on: unfinished trials from their last checkpoints, failed ones from the begin. Ray must be connected.

    Raises `UserError` as `check_resumable` does and where the cluster can never hold a trial that is left, and
    `MemoryFault` as `run_trials`.
    """
    check_resumable(out, kind)
    with _prepared():
        path = str(out.resolve() / TUNE)
        _check_fit(tune.ExperimentAnalysis(path).get_all_configs())
        _fit(tune.Tuner.restore(path, SealTrial, resume_unfinished=True, restart_errored=True), tell, out)


def _check_fit(configs: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises `UserError` where the cluster can never hold a trial that is left; it may be smaller than the one before.

    `configs` are those of the trials, by their ids.
    """
    for trial_id, config in configs.items():
        folder = run_folder(config, trial_id)
        if not has_ended(folder):
            asked = SealTrial.default_resource_request(config).required_resources
            check_asked(f"the trial {folder.name}", asked)


def _fit(tuner: tune.Tuner, tell: OnEvent, out: Path) -> None:
    before = {name: signal.getsignal(name) for name in _STOPS}
    _Events.told.append(tell)
    try:
        with tune_files_signed(partial(sign_tune_files, out)):
            tuner.fit()
    except RuntimeError as error:
        # Tune takes the end of a trial's process for a failure of the trial, and this end for one of its own.
        if not isinstance(error.__cause__, OutOfMemoryError):
            raise
        raise MemoryFault(
            "a machine ran out of memory, and Ray ended the processes of a trial; end what else runs there, or have "
            "fewer or smaller engines, and go on with --resume."
        ) from None
    finally:
        _Events.told.remove(tell)
        for name, handler in before.items():
            signal.signal(name, handler)


class _Events(tune.Callback):
    """Tells what trials do, and marks those that are given up.

    Tune stores its callbacks and makes them anew on resuming, which nothing that writes to a terminal survives: whom to
    tell is therefore known to the process alone.

    It keeps what ASHA knows of trials that have ended, which Tune forgets on resuming.
    """

    told: ClassVar[list[OnEvent]] = []

    def __init__(self, scheduler: TrialScheduler | None = None) -> None:
        self._scheduler = scheduler

    def setup(self, *_: Any, **info: Any) -> None:  # noqa: ARG002 - Tune passes it
        stop = signal.getsignal(signal.SIGINT)  # Tune's, which lets the rounds under way end

        def stopping(*args: Any) -> None:
            self._say(TrialEvent(TrialEventKind.STOPPING))
            if callable(stop):
                stop(*args)
            for name in _STOPS:
                signal.signal(name, signal.default_int_handler)

        # Ray took SIGTERM, and would end at once.
        for name in _STOPS:
            signal.signal(name, stopping)

    def on_trial_start(self, *_: Any, **info: Any) -> None:
        mark_started(_folder_of(info["trial"]))
        self._say(TrialEvent(TrialEventKind.STARTED, _name_of(info["trial"])))

    def on_trial_result(self, *_: Any, **info: Any) -> None:
        if "round" in info["result"]:
            self._say(TrialEvent(TrialEventKind.ROUND, _name_of(info["trial"]), info["result"]))

    def on_trial_recover(self, *_: Any, **info: Any) -> None:
        self._say(TrialEvent(TrialEventKind.RETRIED, _name_of(info["trial"]), error=_error_of(info["trial"])))

    def on_trial_error(self, *_: Any, **info: Any) -> None:
        mark_failed(_folder_of(info["trial"]), _error_of(info["trial"]))
        self._say(TrialEvent(TrialEventKind.FAILED, _name_of(info["trial"]), error=_error_of(info["trial"])))

    def on_trial_complete(self, *_: Any, **info: Any) -> None:
        mark_ended(_folder_of(info["trial"]))
        self._say(TrialEvent(TrialEventKind.ENDED, _name_of(info["trial"])))

    def get_state(self) -> dict[str, Any] | None:
        return dict(vars(self._scheduler)) if isinstance(self._scheduler, AsyncHyperBandScheduler) else None

    def set_state(self, state: dict[str, Any]) -> None:
        vars(self._scheduler).update(state)

    def _say(self, event: TrialEvent) -> None:
        for tell in self.told:
            tell(event)


def _folder_of(trial: Any) -> Path:
    return run_folder(trial.config, trial.trial_id)


def _name_of(trial: Any) -> str:
    return _folder_of(trial).name


def _error_of(trial: Any) -> str:
    return last_error(Path(trial.error_file).read_text("utf-8", "replace"))


def last_error(text: str) -> str:
    """What a trial failed of last, in a line, from Tune's file of its errors with their tracebacks."""
    last = text.rpartition("Failure # ")[2].partition("\n")[2].strip()
    named = re.findall(r"^(?:\w+\.)*(\w+: \S.*)$", last, re.MULTILINE)
    return (named[-1] if named else last.partition("\n")[0])[:500] or "it left no message"


def cpus_of_main(configs: Mapping[str, SealConfig]) -> float:
    """The CPUs that the main process of each trial asks for: one, or what a small cluster has left beside the actors.

    `configs` are those that trials can have, by what they are called. Raises `UserError` where the cluster can never
    hold one of them; Tune would wait for ever.
    """
    there, main = ray.cluster_resources(), 1.0
    for name, config in configs.items():
        asked = with_main(Seal.default_resource_request(config), _LEAST_OF_MAIN).required_resources
        check_asked(f"a trial of {name}", asked)
        main = min(main, round(there["CPU"] - asked["CPU"] + _LEAST_OF_MAIN, 4))
    return main


@contextmanager
def _prepared() -> Iterator[None]:
    """Tune's environment variables, and one warning less, meanwhile."""
    keep_keys_from_trials()
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    try:
        with warnings.catch_warnings():
            # Engines and learners are built for one config.
            warnings.filterwarnings("ignore", "Consider boosting PBT performance by enabling `reuse_actors`")
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
