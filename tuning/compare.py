"""Running a comparison on Ray Tune: every arm with every seed, stopped and gone on with, failures retried and told."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import ray
from ray import tune

from envs.errors import UserError, unknown_value
from seal_ray.algorithm.seal import Seal
from seal_ray.config import sections
from seal_ray.config.checks import check_config, check_memory
from seal_ray.config.presets import about, make_config, preset_names
from seal_ray.config.seal_config import SealConfig
from seal_ray.report.run_folder import RunFolder
from seal_ray.run.cluster import check_asked
from tuning.collect import Manifest, mark_failed, mark_started, read_manifest, trial_folder, write_manifest
from tuning.trial import MAIN, RUN, SealTrial, with_main

RETRIES = 2
"""Times that a failed trial goes on from its last checkpoint before it is given up."""

_STOPS = (signal.SIGINT, signal.SIGTERM)
"""Signals that stop a comparison in good order."""

_LEAST_OF_MAIN = 0.1
"""CPUs that a trial's main process asks for at the least."""

_TUNE = "tune"
"""Tune's own folder in that of a comparison: its state, and the checkpoints to go on from."""

_SAME = {
    "environment": ("source", "split", "bfcl_split", "categories", "difficulty", "tasks", "protocol"),
    "training": ("rounds", "groups", "group_size"),
    "evaluation": tuple(sections.Evaluation.model_fields),
    "solver": ("model",),
}
"""Section → settings that must be the same in all arms, or the comparison is of something else."""

_ENVIRONMENT = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # paths in settings are relative to where the command was given
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the run folders have it all
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # each is told in a line
    "TUNE_GLOBAL_CHECKPOINT_S": "1",  # a kill forgets no trial that ended over a second ago
    "RAY_AIR_NEW_OUTPUT": "0",  # the other output honours that it is not wanted
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be compared: arm → its settings, each with every seed. The settings' own seed does not count."""

    arms: Mapping[str, SealConfig]
    seeds: Sequence[int]
    baseline: str

    @property
    def rounds(self) -> int:
        """Rounds of each trial."""
        return next(iter(self.arms.values())).section(sections.Training).rounds


class Happening(Enum):
    """What a trial can do."""

    STARTED = "started"
    ROUND = "round"
    RETRIED = "retried"
    FAILED = "failed"
    FINISHED = "finished"
    STOPPING = "stopping"
    """The comparison was interrupted, and waits for the rounds under way. It has no trial."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a trial; `metrics` are those of a round, `error` what it failed of."""

    happening: Happening
    trial: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    error: str = ""


Tell = Callable[[Event], None]


def make_plan(
    arms: Sequence[str],
    *,
    seeds: int,
    rounds: int | None = None,
    model: str | None = None,
    baseline: str | None = None,
    overrides: Sequence[str] = (),
) -> Plan:
    """The plan for method presets as arms, on a model preset, with `overrides` in all of them.

    The baseline is `vanilla` where it is an arm, else the first. Raises `UserError` for what cannot be compared.
    """
    if not arms:
        raise UserError("--arms: there are none; give method presets, for instance --arms vanilla,fixed,rules.")
    for arm in arms:
        if arm not in preset_names("method"):
            raise unknown_value("--arms", arm, preset_names("method"))
        if arms.count(arm) > 1:
            raise UserError(f"--arms: {arm!r} is there twice; give each arm once.")
    if seeds < 1:
        raise UserError(
            f"--seeds: {seeds} is not possible; a comparison needs at least 1, and at least 2 for intervals."
        )
    if rounds is not None and rounds < 1:
        raise UserError(f"--rounds: {rounds} is not possible; a trial has at least 1.")
    if model is not None and model not in preset_names("model"):
        raise unknown_value("--preset", model, preset_names("model"))
    if baseline is not None and baseline not in arms:
        raise unknown_value("--baseline", baseline, arms)
    words = [*overrides, *([] if rounds is None else [f"training.rounds={rounds}"])]
    under = [] if model is None else [model]
    configs = {arm: make_config([*under, arm], overrides=words) for arm in arms}
    return Plan(configs, range(seeds), baseline or ("vanilla" if "vanilla" in arms else arms[0]))


def check_plan(plan: Plan, *, memory: bool = True) -> None:
    """Raises `UserError` where an arm cannot run, or arms differ in what must be equal."""
    first = next(iter(plan.arms))
    for arm, config in plan.arms.items():
        model = check_config(config)
        if memory:
            check_memory(config, model)
        if not config.section(sections.Evaluation).interval:
            raise UserError(
                "evaluation.interval: 0 leaves nothing to compare; give the rounds between two evaluations."
            )
        left, right = plan.arms[first].to_sections(), config.to_sections()
        for section, keys in _SAME.items():
            for key in keys:
                if left[section][key] != right[section][key]:
                    raise UserError(
                        f"{section}.{key}: it is {left[section][key]!r:.80} in the arm {first} and "
                        f"{right[section][key]!r:.80} in {arm}; arms are compared at equal tasks, rounds and rollouts."
                    )


def start(plan: Plan, out: Path, *, tell: Tell, retries: int = RETRIES, engine_factory: Any = None) -> None:
    """Runs a comparison in a new folder, until its end or an interrupt. Ray must be connected.

    Raises `UserError` where the folder exists, or the cluster can hold no trial.
    """
    if out.exists():
        raise UserError(f"{out} exists; go on with --resume {out}, or give another folder.")
    cpus_of_main = _cpus_of_main(plan)
    names = {arm: about(arm) if arm in preset_names("method") else "" for arm in plan.arms}
    seeds, here = tuple(plan.seeds), str(out.resolve())
    manifest = Manifest(arms=names, seeds=seeds, rounds=plan.rounds, baseline=plan.baseline, folder=here)
    runs = []
    for arm, seed in manifest.trials():
        folder = RunFolder(trial_folder(out, arm, seed).resolve())
        folder.write_config({"seed": seed, **plan.arms[arm].to_sections()})
        runs.append(str(folder.path))
    write_manifest(out, manifest)
    training = next(iter(plan.arms.values())).section(sections.Training)
    space: dict[str, Any] = {RUN: tune.grid_search(runs), MAIN: cpus_of_main}
    if engine_factory is not None:
        space["engine_factory"] = engine_factory
    with _prepared():
        tuner = tune.Tuner(
            SealTrial,
            param_space=space,
            tune_config=tune.TuneConfig(trial_name_creator=_name_of, trial_dirname_creator=_name_of),
            run_config=tune.RunConfig(
                name=_TUNE,
                storage_path=here,
                verbose=0,
                callbacks=[_Events()],
                failure_config=tune.FailureConfig(max_failures=retries),
                checkpoint_config=tune.CheckpointConfig(
                    num_to_keep=2, checkpoint_frequency=training.checkpoint_every, checkpoint_at_end=False
                ),
            ),
        )
        _fit(tuner, tell)


def check_resumable(out: Path) -> Manifest:
    """The comparison to go on with. Raises `UserError` where the folder holds none that can."""
    manifest = read_manifest(out)
    if str(out.resolve()) != manifest.folder:
        raise UserError(f"{out} was started as {manifest.folder}; move it back there to go on with it.")
    if not tune.Tuner.can_restore(str(out.resolve() / _TUNE)):
        raise UserError(f"{out} stopped before its first trial; remove it, and start the comparison again.")
    return manifest


def resume(out: Path, *, tell: Tell) -> None:
    """Goes on with a comparison: unfinished trials from their last checkpoints, failed ones from the begin.

    Ray must be connected. Raises `UserError` as `check_resumable` does.
    """
    check_resumable(out)
    with _prepared():
        path = str(out.resolve() / _TUNE)
        _fit(tune.Tuner.restore(path, SealTrial, resume_unfinished=True, restart_errored=True), tell)


def _fit(tuner: tune.Tuner, tell: Tell) -> None:
    before = {name: signal.getsignal(name) for name in _STOPS}
    _Events.told.append(tell)
    try:
        tuner.fit()
    finally:
        _Events.told.remove(tell)
        for name, handler in before.items():
            signal.signal(name, handler)


class _Events(tune.Callback):
    """Tells what trials do, and marks those that are given up.

    Tune stores its callbacks and makes them anew on resuming, which nothing that writes to a terminal survives: whom to
    tell is therefore known to the process alone.
    """

    told: ClassVar[list[Tell]] = []

    def setup(self, *_: Any, **info: Any) -> None:  # noqa: ARG002 - Tune passes it
        stop = signal.getsignal(signal.SIGINT)  # Tune's, which lets the rounds under way end

        def stopping(*args: Any) -> None:
            self._say(Event(Happening.STOPPING))
            if callable(stop):
                stop(*args)
            for name in _STOPS:
                signal.signal(name, signal.default_int_handler)

        # Ray took SIGTERM, and would end at once.
        for name in _STOPS:
            signal.signal(name, stopping)

    def on_trial_start(self, *_: Any, **info: Any) -> None:
        mark_started(_run_of(info["trial"]))
        self._say(Event(Happening.STARTED, _name_of(info["trial"])))

    def on_trial_result(self, *_: Any, **info: Any) -> None:
        if "round" in info["result"]:
            self._say(Event(Happening.ROUND, _name_of(info["trial"]), info["result"]))

    def on_trial_recover(self, *_: Any, **info: Any) -> None:
        self._say(Event(Happening.RETRIED, _name_of(info["trial"]), error=_error_of(info["trial"])))

    def on_trial_error(self, *_: Any, **info: Any) -> None:
        mark_failed(_run_of(info["trial"]), _error_of(info["trial"]))
        self._say(Event(Happening.FAILED, _name_of(info["trial"]), error=_error_of(info["trial"])))

    def on_trial_complete(self, *_: Any, **info: Any) -> None:
        self._say(Event(Happening.FINISHED, _name_of(info["trial"])))

    def _say(self, event: Event) -> None:
        for tell in self.told:
            tell(event)


def _run_of(trial: Any) -> Path:
    return Path(trial.config[RUN])


def _name_of(trial: Any) -> str:
    return _run_of(trial).name


def _error_of(trial: Any) -> str:
    return last_error(Path(trial.error_file).read_text("utf-8", "replace"))


def last_error(text: str) -> str:
    """What a trial failed of last, in a line, from Tune's file of its errors with their tracebacks."""
    last = text.rpartition("Failure # ")[2].partition("\n")[2].strip()
    named = re.findall(r"^(?:\w+\.)*(\w+: \S.*)$", last, re.MULTILINE)
    return (named[-1] if named else last.partition("\n")[0])[:500] or "it left no message"


def _cpus_of_main(plan: Plan) -> float:
    """The CPUs that the main process of each trial asks for: one, or what a small cluster has left beside the actors.

    Raises `UserError` where the cluster can never hold a trial; Tune would wait for ever.
    """
    there, main = ray.cluster_resources(), 1.0
    for arm, config in plan.arms.items():
        asked = with_main(Seal.default_resource_request(config), _LEAST_OF_MAIN).required_resources
        check_asked(f"a trial of {arm}", asked)
        main = min(main, round(there["CPU"] - asked["CPU"] + _LEAST_OF_MAIN, 4))
    return main


@contextmanager
def _prepared() -> Iterator[None]:
    """Sets Tune's environment variables meanwhile."""
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
