"""`SealTrial`: `Seal` as a trial of Ray Tune, which writes the same run folder as `seal-ray train`."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray.tune.execution.placement_groups import PlacementGroupFactory
from ray.tune.result import DONE, TRIAL_INFO

from seal_ray.algorithm.config import make_config
from seal_ray.algorithm.seal import Seal
from seal_ray.config.sections import attribute
from seal_ray.report.files import TRIALS, RunFolder, log_path
from seal_ray.run.recorder import Metrics, Recorder
from tuning.record import neighbour_evaluation

RUN, CONFIG, MAIN, DIRECTORY = "run", "config", "main_cpus", "directory"
"""Keys of a trial's config that are no settings: its run folder, the YAML file of its settings, the CPUs of its main
process, and the command's working directory, to which paths in settings are relative. Without the file it is
`config.yaml` in the run folder; without the run folder it is `trials/<trial id>` next to the file."""


class SealTrial(Seal):
    """A training run as a trial. Its config has `RUN` or `CONFIG`, and flat settings (`lr`) on top of the file's.

    A step is a round; its result has the metrics of `seal_ray/metrics.py`, with the metrics of an evaluation until the
    next one. Before the first round the model is evaluated, unless a neighbouring trial has done that; after the last
    round it is evaluated and written to the run folder. A trial that resumes from a checkpoint drops later rounds.

    Both paths must be the same on every machine of a cluster.
    """

    def __init__(self, config: Mapping[str, Any], **kwargs: Any) -> None:
        # RLlib drops Tune's information on the trial.
        trial = config.get(TRIAL_INFO)
        if os.path.isdir(directory := config.get(DIRECTORY, "")):  # a cluster can have been started elsewhere
            os.chdir(directory)
        self._folder = run_folder(config, str(trial.trial_id) if trial else "default")
        self._recorder: Recorder | None = None
        self._evaluated: Metrics = {}
        super().__init__(trial_settings(config), **kwargs)  # type: ignore[arg-type] # RLlib takes dicts too

    @classmethod
    def default_resource_request(cls, config: Any) -> PlacementGroupFactory:
        request = super().default_resource_request(trial_settings(config))
        return with_main(request, config[MAIN]) if MAIN in config else request

    def step(self) -> Metrics:
        rounds = self.spec.training.rounds
        recorder = self._recorder or self._open()
        if self.round >= rounds:  # the trial was stopped after its last checkpoint
            return {**self._evaluated, DONE: True}
        metrics = recorder.play_round(super().step, save=lambda: self.round == rounds)
        self._keep(metrics)
        return {**self._evaluated, **metrics, DONE: self.round >= rounds}

    def load_checkpoint(self, checkpoint_dir: Any) -> None:
        super().load_checkpoint(checkpoint_dir)
        self._close()

    def cleanup(self) -> None:
        self._close()
        super().cleanup()

    def _open(self) -> Recorder:
        folder = RunFolder(self._folder)
        folder.write_config({"seed": self.config.seed, **self.config.to_sections()})
        resumed = self.round > 0
        self._recorder = recorder = Recorder(self, folder, resumed=resumed)
        if resumed:
            for row in folder.metrics.rows():
                self._keep(row)
        elif self.spec.evaluation.interval:
            if not folder.start.rows() and (known := neighbour_evaluation(folder.path, self.config.to_sections())):
                evaluation, neighbour = known
                folder.start.replace([evaluation])
                if (log := log_path(neighbour, "evaluation", 0)).is_file():
                    shutil.copyfile(log, folder.log_of("evaluation", 0))
            self._keep(recorder.write_start())
        return recorder

    def _close(self) -> None:
        if self._recorder is not None:
            self._recorder.close()
        self._recorder = None

    def _keep(self, metrics: Mapping[str, Any]) -> None:
        evaluation = {name: value for name, value in metrics.items() if name.startswith("evaluation/")}
        self._evaluated = evaluation or self._evaluated


def run_folder(config: Mapping[str, Any], trial_id: str) -> Path:
    return Path(config[RUN]) if RUN in config else Path(config[CONFIG]).parent / TRIALS / trial_id


def with_main(request: PlacementGroupFactory, cpus: float) -> PlacementGroupFactory:
    """The request with so many CPUs for the main process, whose bundle is the first."""
    main, *others = request.bundles
    return PlacementGroupFactory([{**main, "CPU": cpus}, *others], strategy=request.strategy)


def trial_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The flat settings of a trial: its file's, and its own on top of them."""
    file = Path(config[CONFIG]) if CONFIG in config else Path(config[RUN]) / "config.yaml"
    base = make_config(None, file=file)
    flat = {attribute(name, key): value for name, keys in base.to_sections().items() for key, value in keys.items()}
    own = {key: value for key, value in config.items() if key not in (RUN, CONFIG, MAIN, DIRECTORY)}
    return {**flat, "seed": base.seed, **own}
