"""What a sweep runs: its config, its space, and how that is searched; checked, started and gone on with."""

from __future__ import annotations

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

from envs.errors import UserError, unknown_value
from envs.folders import make_folder
from envs.trusting import import_names, trust_names
from seal_ray.algorithm.checks import check_memory, check_run
from seal_ray.algorithm.config import SealConfig, make_config
from seal_ray.algorithm.seal import Seal
from seal_ray.config.fields import attribute
from seal_ray.report.files import replace_yaml
from seal_ray.run.signature import Signature
from tuning.running import CHECKPOINTS, RETRIES, OnEvent, cpus_of_main, run_trials
from tuning.sweep.parameter import Value
from tuning.sweep.results import CONFIG_FILE, METRIC, SweepManifest
from tuning.sweep.space import DEFAULT_SPACE, Space, read_space, with_values
from tuning.trial import CONFIG, MAIN

TRIALS = 16
"""Trials of a sweep that names no number."""

REDUCTION = 3
"""ASHA lets one in so many trials go on beyond each of its rungs (Li et al. 2020, arXiv 1810.05934, use 4)."""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What is to be swept: `trials` points of a space, on top of a config."""

    config: SealConfig
    space: Space
    scheduler: str
    search: str
    trials: int

    @property
    def rounds(self) -> int:
        """Rounds of a trial that is not stopped."""
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
    if scheduler not in _SCHEDULERS:
        raise unknown_value("--scheduler", scheduler, _SCHEDULERS)
    if search not in _SEARCHES:
        raise unknown_value("--search", search, _SEARCHES)
    if trials is not None and trials < 1:
        raise UserError(f"--trials: {trials} is not possible; a sweep has at least 1.")
    if rounds is not None and rounds < 1:
        raise UserError(f"--rounds: {rounds} is not possible; a trial has at least 1.")
    words = [*overrides, *([] if rounds is None else [f"training.rounds={rounds}"])]
    config = make_config(presets, overrides=words, seed=seed)
    trust_names(config.to_sections(), Path(", ".join(presets)))
    found = read_space(space or DEFAULT_SPACE, config)
    if scheduler == "pbt" and search != "random":
        raise UserError(f"--search: pbt changes settings while trials run, and {search} cannot; take random.")
    if scheduler == "pbt" and (trials or TRIALS) < 2:
        raise UserError("--trials: pbt copies trials from each other, and needs at least 2.")
    if search == "grid":
        if found.grid_size is None:
            ranges = next(each.name for each in found.parameters if each.choices is None)
            raise UserError(f"--search: a grid needs values of every parameter, and {ranges} has low and high.")
        if trials is not None:
            raise UserError(f"--trials: the grid has {found.grid_size} points, each a trial; leave the number out.")
        trials = found.grid_size
    return SweepPlan(config, found, scheduler, search, trials or TRIALS)


def check_plan(plan: SweepPlan, *, memory: bool = True) -> None:
    """Raises `UserError` where a trial cannot run, or could not be held against others."""
    spec = plan.config.spec
    model = check_run(spec)
    if memory:
        check_memory(spec, model)
    evaluation = plan.config.spec.evaluation
    if not evaluation.interval:
        raise UserError("evaluation.interval: 0 leaves nothing to go by; give the rounds between two evaluations.")
    if evaluation.split == "test":
        raise UserError("evaluation.split: a sweep chooses, and never by the test split; take dev.")
    if plan.scheduler == "pbt" and evaluation.interval >= plan.rounds:
        raise UserError(
            f"evaluation.interval: {evaluation.interval} leaves pbt nothing to go by in {plan.rounds} rounds; lower it."
        )


def _costliest(plan: SweepPlan) -> dict[str, SealConfig]:
    """The config with each parameter at the edge where a trial asks for most, and with all of them there."""
    edges: dict[str, Value] = {}
    for each in plan.space.parameters:
        edges[each.name] = max(each.probes, key=lambda value: _asked(with_values(plan.config, {each.name: value})))
    found = {f"{name}={value}": with_values(plan.config, {name: value}) for name, value in edges.items()}
    return found | {"this sweep": with_values(plan.config, edges)}


def _asked(config: SealConfig) -> tuple[float, float]:
    """The GPUs and CPUs of a trial."""
    asked = Seal.default_resource_request(config).required_resources
    return asked.get("GPU", 0.0), asked.get("CPU", 0.0)


def start(plan: SweepPlan, out: Path, *, tell: OnEvent, retries: int = RETRIES, engine_factory: Any = None) -> None:
    """Runs a sweep in a new folder, until its end or an interrupt. Ray must be connected.

    Raises `UserError` where the folder exists, or the cluster can hold no trial.
    """
    if out.exists():
        raise UserError(f"{out} exists; go on with --resume {out}, or give another folder.")
    main = cpus_of_main(_costliest(plan))
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
    choices_of = [each.choices for each in plan.space.parameters]
    Signature(out).sign(imports=import_names([plan.config.to_sections(), choices_of]))
    evaluation = plan.config.spec.evaluation
    choices = tune.grid_search if plan.search == "grid" else tune.choice
    space: dict[str, Any] = {CONFIG: str(file), MAIN: main, **plan.space.for_tune(choices=choices)}
    if engine_factory is not None:
        space["engine_factory"] = engine_factory
    every, kept = plan.config.spec.training.checkpoint_every, CHECKPOINTS
    if plan.scheduler == "pbt":
        # What it copies must be as old as the evaluation that it goes by, and there until the copy begins.
        every, kept = evaluation.interval, 4
    run_trials(
        out,
        space,
        tell=tell,
        retries=retries,
        checkpoint_every=every,
        checkpoints=kept,
        search=_SEARCHES[plan.search](plan),
        scheduler=_SCHEDULERS[plan.scheduler](plan),
        samples=1 if plan.search == "grid" else plan.trials,
    )


def _asha(plan: SweepPlan) -> TrialScheduler:
    interval = plan.config.spec.evaluation.interval
    return AsyncHyperBandScheduler(
        time_attr="round",
        metric=METRIC,
        mode="max",
        max_t=plan.rounds,
        grace_period=min(interval, plan.rounds),
        reduction_factor=REDUCTION,
    )


def _pbt(plan: SweepPlan) -> TrialScheduler:
    return PopulationBasedTraining(
        time_attr="round",
        metric=METRIC,
        mode="max",
        perturbation_interval=plan.config.spec.evaluation.interval,
        hyperparam_mutations=plan.space.for_tune(choices=list),
        custom_explore_fn=partial(_inside, plan.space),
        log_config=False,
    )


def _inside(space: Space, config: dict[str, Any]) -> dict[str, Any]:
    """The settings that PBT has perturbed, brought back into the space."""
    found = copy.deepcopy(config)
    for each in space.parameters:
        name = attribute(*each.path)
        found[name] = each.clamped(found[name])
    return found


_SCHEDULERS: Mapping[str, Callable[[SweepPlan], TrialScheduler | None]] = {
    "asha": _asha,
    "pbt": _pbt,
    "none": lambda _: None,
}


def _variants(plan: SweepPlan) -> Any:
    return BasicVariantGenerator(constant_grid_search=True, random_state=plan.config.seed)


_SEARCHES: Mapping[str, Callable[[SweepPlan], Any]] = {
    "random": _variants,
    "optuna": lambda plan: OptunaSearch(metric=METRIC, mode="max", seed=plan.config.seed),
    "grid": _variants,
}
