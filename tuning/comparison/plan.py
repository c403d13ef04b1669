"""What a comparison runs: every arm with every seed, checked, started and gone on with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray import tune

from envs.errors import UserError, check_known, unknown_value
from envs.trusting import import_names, trust_names
from seal_ray.algorithm.checks import check_memory, check_run, check_seed
from seal_ray.algorithm.config import SealConfig, make_config
from seal_ray.config.presets import about, is_preset_file, kind_of, parse_words, preset_names
from seal_ray.config.sections import check_kind_has
from seal_ray.proposing.recorded import recorded_windows
from seal_ray.report.files import Row, RunFolder
from seal_ray.run.signature import Signature
from tuning.comparison.beginning import beginnings
from tuning.comparison.collect import ARM_NAME, ComparisonManifest, trial_folder
from tuning.recipe import check_arms
from tuning.running import RETRIES, OnEvent, cpus_of_main, run_trials
from tuning.trial import MAIN, RUN


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """What is to be compared: arm → its settings, each with every seed. The settings' own seed is the first.

    `threshold` is the success that the report holds trials to, as a share, where it is not the baseline's own.
    `starts` has, for each arm, what an earlier comparison has of the model before training, `abouts` what an arm is.
    """

    arms: Mapping[str, SealConfig]
    seeds: Sequence[int]
    baseline: str
    threshold: float | None = None
    starts: Mapping[str, Row] = field(default_factory=dict)
    abouts: Mapping[str, str] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """Rounds of each trial."""
        return next(iter(self.arms.values())).spec.training.rounds


def make_plan(
    arms: Sequence[str],
    *,
    seeds: int,
    first_seed: int = 0,
    rounds: int | None = None,
    model: str | None = None,
    baseline: str | None = None,
    threshold: float | None = None,
    overrides: Sequence[str] = (),
    like: Path | None = None,
) -> ComparisonPlan:
    """The plan for method presets as arms, on a model preset, with `overrides` in all of them.

    Presets are those of the package and YAML files, whose arms are called as the files are, without the ending. The
    evaluations before training are taken from the comparison `like`. The baseline is `vanilla` where it is an arm, else
    the first. Raises `UserError` for what cannot be compared.
    """
    if not arms:
        raise UserError("--arms: there are none; give method presets, for instance --arms vanilla,fixed,rules.")
    presets: dict[str, str] = {}
    for preset in arms:
        _check_preset("--arms", preset, "method")
        arm = _name_of(preset)
        if arm in presets:
            raise UserError(f"--arms: {arm!r} is there twice; give each arm once.")
        presets[arm] = preset
    if seeds < 1:
        raise UserError(
            f"--seeds: {seeds} is not possible; a comparison needs at least 1, and at least 2 for intervals."
        )
    if rounds is not None and rounds < 1:
        raise UserError(f"--rounds: {rounds} is not possible; a trial has at least 1.")
    if model is not None:
        _check_preset("--preset", model, "model")
    if baseline is not None and baseline not in presets:
        raise unknown_value("--baseline", baseline, presets)
    words = [*overrides, *([] if rounds is None else [f"training.rounds={rounds}"])]
    under = [] if model is None else [model]
    configs = {
        arm: make_config([*under, preset], overrides=words, seed=first_seed, shared=True)
        for arm, preset in presets.items()
    }
    _check_words(words, configs.values())
    for arm, config in configs.items():
        trust_names(config.to_sections(), Path(presets[arm] if model is None else f"{presets[arm]}, {model}"))
    against = baseline or ("vanilla" if "vanilla" in presets else next(iter(presets)))
    found = {} if like is None else beginnings(like, {arm: config.to_sections() for arm, config in configs.items()})
    abouts = {arm: about(preset) for arm, preset in presets.items()}
    return ComparisonPlan(configs, range(first_seed, first_seed + seeds), against, threshold, found, abouts)


def _check_words(words: Sequence[str], configs: Iterable[SealConfig]) -> None:
    """Raises `UserError` for a setting that no arm has."""
    sections = [config.to_sections() for config in configs]
    for section, values in parse_words(words).items():
        for key in values:
            if all(key not in each[section] for each in sections):
                check_kind_has(section, sections[0][section]["kind"], key)


def _check_preset(option: str, preset: str, kind: str) -> None:
    """Raises `UserError` where this is no preset of the kind, neither of the package nor in a file."""
    if not is_preset_file(preset):
        check_known(option, preset_names(kind), preset)
    elif kind_of(preset) != kind:
        raise UserError(f"{option}: {preset} is a {kind_of(preset)} preset; a {kind} preset is needed.")


def _name_of(preset: str) -> str:
    """What an arm is called. Raises `UserError` for a file whose name is none for a folder, or a preset's already."""
    if not is_preset_file(preset):
        return preset
    name = Path(preset).stem
    if name in preset_names() or not re.fullmatch(ARM_NAME, name):
        raise UserError(
            f"--arms: {preset}: the arm is called after the file; give it a name of letters, digits, '.', '_' and '-' "
            "that no preset of the package has."
        )
    return name


def check_plan(plan: ComparisonPlan, *, memory: bool = True) -> None:
    """Raises `UserError` where an arm cannot run, or arms differ in what must be equal."""
    for config in plan.arms.values():
        spec = config.spec
        model = check_run(spec)
        check_seed(plan.seeds[-1])
        for seed in plan.seeds[1:]:
            recorded_windows(spec, seed=seed)  # each may replay a run of its own
        if memory:
            check_memory(spec, model)
        if not spec.evaluation.interval:
            raise UserError(
                "evaluation.interval: 0 leaves nothing to compare; give the rounds between two evaluations."
            )
    check_arms({arm: config.to_sections() for arm, config in plan.arms.items()})


def start(
    plan: ComparisonPlan, out: Path, *, tell: OnEvent, retries: int = RETRIES, engine_factory: Any = None
) -> None:
    """Runs a comparison in a new folder, until its end or an interrupt. Ray must be connected.

    Raises `UserError` where the folder exists, or the cluster can hold no trial.
    """
    if out.exists():
        raise UserError(f"{out} exists; go on with --resume {out}, or give another folder.")
    main = cpus_of_main(plan.arms)
    names = {arm: plan.abouts.get(arm, "") for arm in plan.arms}
    seeds, here = tuple(plan.seeds), str(out.resolve())
    manifest = ComparisonManifest(
        arms=names,
        seeds=seeds,
        rounds=plan.rounds,
        baseline=plan.baseline,
        folder=here,
        threshold=plan.threshold,
    )
    runs = []
    for arm, seed in manifest.trials():
        folder = RunFolder(trial_folder(out, arm, seed).resolve())
        folder.write_config({"seed": seed, **plan.arms[arm].to_sections()})
        if arm in plan.starts:
            folder.start.replace([plan.starts[arm]])
        runs.append(str(folder.path))
    manifest.write(out)
    Signature(out).sign(imports=import_names([config.to_sections() for config in plan.arms.values()]))
    space: dict[str, Any] = {RUN: tune.grid_search(runs), MAIN: main}
    if engine_factory is not None:
        space["engine_factory"] = engine_factory
    training = next(iter(plan.arms.values())).spec.training
    run_trials(out, space, tell=tell, retries=retries, checkpoint_every=training.checkpoint_every)
