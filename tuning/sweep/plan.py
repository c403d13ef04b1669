"""The plan of a sweep: a config, a space, a search and a scheduler; made, checked and started."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler, PopulationBasedTraining, TrialScheduler
from ray.tune.search import BasicVariantGenerator
from ray.tune.search.optuna import OptunaSearch

from envs.errors import UserError, check_known
from envs.folders import make_folder
from envs.trusting import import_names, trust_names
from seal_ray.algorithm.checks import check_memory, check_run
from seal_ray.algorithm.config import SealConfig, make_config
from seal_ray.algorithm.seal import Seal
from seal_ray.config.sections import attribute
from seal_ray.report.files import replace_yaml
from seal_ray.run.signature import Signature
from tuning.running import CHECKPOINTS, RETRIES, OnEvent, check_new_folder, main_process_cpus, run_trials
from tuning.sweep.parameter import Value
from tuning.sweep.results import CONFIG_FILE, METRIC, SweepManifest
from tuning.sweep.space import DEFAULT_SPACE, Space, read_space, with_values
from tuning.trial import CONFIG, MAIN

TRIALS = 16
"""Default number of trials."""

REDUCTION = 3
"""ASHA continues one in so many trials after each of its rungs (Li et al. 2020, arXiv 1810.05934, use 4)."""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A sweep: `trials` points of a space, on top of a config."""

    config: SealConfig
    space: Space
    scheduler: str
    search: str
    trials: int

    @property
    def rounds(self) -> int:
        """Rounds of a trial that is not stopped early."""
        return self.config.spec.training.rounds


def make_plan(
    *,
    presets: Sequence[str] = (),
    overrides: Sequence[str] = (),
    space: Path | None = None,
    scheduler: str = "asha",
    search: str = "random",
    trials: int | None = None,
    rounds: int | None = None,
    seed: int | None = None,
) -> SweepPlan:
    """The plan for a config and a space file. Raises `UserError` for what cannot be swept."""
    check_known("--scheduler", SCHEDULERS, scheduler)
    check_known("--search", SEARCHES, search)
    if trials is not None and trials < 1:
        raise UserError(f"--trials: {trials} is not possible; give at least 1.")
    words = [*overrides, *([] if rounds is None else [f"training.rounds={rounds}"])]
    config = make_config(presets, overrides=words, seed=seed)
    trust_names(config.to_sections(), Path(", ".join(presets)))
    points = read_space(space or DEFAULT_SPACE, config)
    if scheduler == "pbt" and search != "random":
        raise UserError(f"--search: pbt changes settings while trials run, and {search} cannot; take random.")
    if scheduler == "pbt" and (trials or TRIALS) < 2:
        raise UserError("--trials: pbt copies trials from each other, and needs at least 2.")
    if search == "grid":
        if points.grid_size is None:
            ranges = next(each.name for each in points.parameters if each.choices is None)
            raise UserError(f"--search: a grid needs values of every parameter, and {ranges} has a range.")
        if trials is not None:
            raise UserError(f"--trials: the grid has {points.grid_size} points, each a trial; leave the number out.")
        trials = points.grid_size
    return SweepPlan(config, points, scheduler, search, trials or TRIALS)


def check_plan(plan: SweepPlan, *, weights: bool = True) -> None:
    """Raises `UserError` if a trial cannot run, or trials could not be compared.

    Without `weights` neither they nor this machine's memory are needed: for plans.
    """
    spec = plan.config.spec
    model = check_run(spec, weights=weights)
    if weights:
        check_memory(spec, model)
    evaluation = spec.evaluation
    if not evaluation.interval:
        raise UserError("evaluation.interval: 0 leaves nothing to compare; give the rounds between two evaluations.")
    if evaluation.split == "test":
        raise UserError("evaluation.split: a sweep selects settings, and must not use the test split; use dev.")
    if plan.scheduler == "pbt" and evaluation.interval >= plan.rounds:
        raise UserError(
            f"evaluation.interval: {evaluation.interval} gives pbt no evaluation within {plan.rounds} rounds; lower it."
        )


def costliest(plan: SweepPlan) -> dict[str, SealConfig]:
    """The configs with a parameter at the edge that requests most resources, and with all parameters there."""
    edges: dict[str, Value] = {}
    for parameter in plan.space.parameters:
        name = parameter.name
        edges[name] = max(parameter.edges, key=lambda value: _requested(with_values(plan.config, {name: value})))
    configs = {f"{name}={value}": with_values(plan.config, {name: value}) for name, value in edges.items()}
    return configs | {"this sweep": with_values(plan.config, edges)}


def _requested(config: SealConfig) -> tuple[float, float]:
    """The GPUs and CPUs of a trial."""
    request = Seal.default_resource_request(config).required_resources
    return request.get("GPU", 0.0), request.get("CPU", 0.0)


def start(plan: SweepPlan, out: Path, *, on_event: OnEvent, retries: int = RETRIES, engine_factory: Any = None) -> None:
    """Runs a sweep in a new folder, until its end or an interrupt. Ray must be connected.

    Raises `UserError` if the folder exists, or the cluster can never hold a trial.
    """
    check_new_folder(out, SweepManifest)
    main_cpus = main_process_cpus(costliest(plan))
    make_folder(out)
    file = out.resolve() / CONFIG_FILE
    replace_yaml(file, {"seed": plan.config.seed, **plan.config.to_sections()})
    SweepManifest(
        parameters=plan.space.parameters,
        scheduler=plan.scheduler,
        search=plan.search,
        trials=plan.trials,
        rounds=plan.rounds,
        folder=str(out.resolve()),
    ).write(out)
    values = [parameter.choices for parameter in plan.space.parameters]
    Signature(out).sign(imports=import_names([plan.config.to_sections(), values]))
    choices = tune.grid_search if plan.search == "grid" else tune.choice
    space: dict[str, Any] = {CONFIG: str(file), MAIN: main_cpus, **plan.space.for_tune(choices=choices)}
    if engine_factory is not None:
        space["engine_factory"] = engine_factory
    every, kept = plan.config.spec.training.checkpoint_every, CHECKPOINTS
    if plan.scheduler == "pbt":
        # PBT copies the checkpoint of the round whose evaluation it compares, which must still exist.
        every, kept = plan.config.spec.evaluation.interval, 4
    run_trials(
        out,
        space,
        on_event=on_event,
        retries=retries,
        checkpoint_every=every,
        checkpoints=kept,
        search=SEARCHES[plan.search](plan),
        scheduler=SCHEDULERS[plan.scheduler](plan),
        samples=1 if plan.search == "grid" else plan.trials,
    )


def _asha(plan: SweepPlan) -> TrialScheduler:
    return AsyncHyperBandScheduler(
        time_attr="round",
        metric=METRIC,
        mode="max",
        max_t=plan.rounds,
        grace_period=min(plan.config.spec.evaluation.interval, plan.rounds),
        reduction_factor=REDUCTION,
    )


def _pbt(plan: SweepPlan) -> TrialScheduler:
    return PopulationBasedTraining(
        time_attr="round",
        metric=METRIC,
        mode="max",
        perturbation_interval=plan.config.spec.evaluation.interval,
        hyperparam_mutations=plan.space.for_tune(choices=list),
        custom_explore_fn=partial(clamp_config, plan.space),
        log_config=False,
    )


def clamp_config(space: Space, config: dict[str, Any]) -> dict[str, Any]:
    """The settings after PBT has perturbed them, within the space."""
    settings = copy.deepcopy(config)
    for parameter in space.parameters:
        name = attribute(*parameter.path)
        settings[name] = parameter.clamped(settings[name])
    return settings


def _variants(plan: SweepPlan) -> Any:
    return BasicVariantGenerator(constant_grid_search=True, random_state=plan.config.seed)


SCHEDULERS: Mapping[str, Callable[[SweepPlan], TrialScheduler | None]] = {
    "asha": _asha,
    "pbt": _pbt,
    "none": lambda _: None,
}
SEARCHES: Mapping[str, Callable[[SweepPlan], Any]] = {
    "random": _variants,
    "optuna": lambda plan: OptunaSearch(metric=METRIC, mode="max", seed=plan.config.seed),
    "grid": _variants,
}
