"""The plan of a comparison: every arm with every seed; made, checked and started."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ray import tune

from envs.errors import UserError, check_known, unknown_value
from envs.trusting import import_names, trust_names
from seal_ray.algorithm.checks import check_memory, check_run, check_seed
from seal_ray.algorithm.config import SealConfig, apply, make_config
from seal_ray.config.presets import is_preset_file, parse_places, parse_words, preset_names, read_preset
from seal_ray.config.sections import check_kind_has
from seal_ray.proposing.recorded import recorded_windows
from seal_ray.report.files import Row, RunFolder
from seal_ray.run.signature import Signature
from tuning.comparison.collect import ARM_NAME, ComparisonManifest, Match, trial_folder
from tuning.comparison.merge import initial_evaluations
from tuning.comparison.preregistration import NAME, Preregistration
from tuning.recipe import check_arms
from tuning.running import RETRIES, OnEvent, check_new_folder, main_process_cpus, run_trials
from tuning.trial import MAIN, RUN


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """The arms of a comparison, all with every seed.

    Attributes:
        arms: Arm → its settings, with the first seed.
        threshold: Success, as a share, to which the report measures times; by default the baseline's own.
        match: The quantity that is equal in comparisons of arms.
        starts: Arm → the evaluation before training that an earlier comparison has made.
        abouts: Arm → its description.
        frozen: The preregistration of which it is a part.
    """

    arms: Mapping[str, SealConfig]
    seeds: Sequence[int]
    baseline: str
    threshold: float | None = None
    match: Match = "rollouts"
    starts: Mapping[str, Row] = field(default_factory=dict)
    abouts: Mapping[str, str] = field(default_factory=dict)
    frozen: Preregistration | None = None

    @property
    def rounds(self) -> int:
        return next(iter(self.arms.values())).spec.training.rounds

    @property
    def sections(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Arm → its settings by section."""
        return {arm: config.to_sections() for arm, config in self.arms.items()}

    def preregistration(self, measures: Sequence[str]) -> Preregistration:
        """The plan, frozen with these measures. Raises `UserError` for an unknown measure, or without a threshold."""
        if self.threshold is None:
            raise UserError("--threshold: none given; a preregistration needs one, since the default is of the runs.")
        return Preregistration.freeze(**self.fields(""), settings=self.sections, measures=tuple(measures))

    def fields(self, folder: str) -> dict[str, Any]:
        """The fields of the manifest of a comparison in that folder."""
        own = {name: getattr(self, name) for name in ("rounds", "baseline", "threshold", "match")}
        abouts = {arm: self.abouts.get(arm, "") for arm in self.arms}
        return {"arms": abouts, "seeds": tuple(self.seeds), "folder": folder, **own}


def make_plan(
    arms: Sequence[str],
    *,
    seeds: int | None = None,
    first_seed: int | None = None,
    rounds: int | None = None,
    model: str | None = None,
    baseline: str | None = None,
    threshold: float | None = None,
    match: Match | None = None,
    overrides: Sequence[str] = (),
    like: Path | None = None,
) -> ComparisonPlan:
    """The plan for method presets as arms.

    Args:
        arms: Presets of the package, or YAML files, whose arms have the file's name without its ending.
        seeds: Number of seeds, 3 if not given; the `first_seed` is 0 if not given.
        model: The model preset under all arms; `overrides` are settings on top of them.
        baseline: `vanilla` if it is an arm, else the first, if not given.
        like: A comparison whose evaluations before training are reused.

    Raises:
        UserError: The arms cannot be compared.
    """
    if not arms:
        raise UserError("--arms: none given; give method presets, for instance --arms vanilla,fixed,rules.")
    presets: dict[str, str] = {}
    for preset in arms:
        _check_preset("--arms", preset, "method")
        arm = _arm_name(preset)
        if arm in presets:
            raise UserError(f"--arms: {arm!r} is there twice; give each arm once.")
        presets[arm] = preset
    first_seed, seeds = first_seed or 0, 3 if seeds is None else seeds
    if seeds < 1:
        raise UserError(f"--seeds: {seeds} is not possible; give at least 1, and at least 2 for intervals.")
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
    sections = {arm: config.to_sections() for arm, config in configs.items()}
    return ComparisonPlan(
        configs,
        range(first_seed, first_seed + seeds),
        baseline or ("vanilla" if "vanilla" in presets else next(iter(presets))),
        threshold,
        match or "rollouts",
        starts={} if like is None else initial_evaluations(like, sections),
        abouts={arm: read_preset(preset)["about"] for arm, preset in presets.items()},
    )


def preregistered_plan(
    file: Path,
    arms: Sequence[str] = (),
    *,
    seeds: int | None = None,
    first_seed: int | None = None,
    overrides: Sequence[str] = (),
    like: Path | None = None,
) -> ComparisonPlan:
    """The plan of a preregistration's file, or of a part of it: these arms, and `seeds` of its seeds.

    Raises `UserError` for arms or seeds that it does not have, or for an override other than of a `PLACE`.
    """
    frozen = Preregistration.load(file, "--preregistered")
    check_known("--arms", frozen.arms, *arms)
    chosen = [seed for seed in frozen.seeds if seed >= (first_seed or 0)][:seeds]
    if not chosen or not 0 <= (seeds or 0) <= len(chosen):
        raise UserError(f"--seeds, --first-seed: {file} has the seeds {', '.join(map(str, frozen.seeds))}.")
    places = parse_places(overrides, "--preregistered")
    configs = {}
    for arm in arms or frozen.arms:
        trust_names(frozen.settings[arm], file)
        configs[arm] = apply(apply(SealConfig(), frozen.settings[arm]), places)
        configs[arm].seed = chosen[0]
    plan = ComparisonPlan(configs, chosen, frozen.baseline, frozen.threshold, frozen.match, {}, frozen.arms, frozen)
    starts = {} if like is None else initial_evaluations(like, plan.sections)
    return replace(plan, baseline=frozen.baseline if frozen.baseline in configs else next(iter(configs)), starts=starts)


def _check_words(words: Sequence[str], configs: Iterable[SealConfig]) -> None:
    """Raises `UserError` for a setting that no arm has."""
    sections = [config.to_sections() for config in configs]
    for section, values in parse_words(words).items():
        for key in values:
            if all(key not in each[section] for each in sections):
                check_kind_has(section, sections[0][section]["kind"], key)


def _check_preset(option: str, preset: str, kind: str) -> None:
    """Raises `UserError` unless this is a preset of the kind, of the package or in a file."""
    if not is_preset_file(preset):
        check_known(option, preset_names(kind), preset)
    elif (own := read_preset(preset)["kind"]) != kind:
        raise UserError(f"{option}: {preset} is a {own} preset; a {kind} preset is needed.")


def _arm_name(preset: str) -> str:
    """The name of a preset's arm. Raises `UserError` for a file without a valid name, or with a preset's."""
    if not is_preset_file(preset):
        return preset
    name = Path(preset).stem
    if name in preset_names() or not re.fullmatch(ARM_NAME, name):
        raise UserError(
            f"--arms: {preset}: the arm gets the file's name; give it a name of letters, digits, '.', '_' and '-' that "
            "no preset of the package has."
        )
    return name


def check_plan(plan: ComparisonPlan, *, weights: bool = True) -> None:
    """Raises `UserError` if an arm cannot run, or arms differ in settings that must be equal.

    Without `weights` neither they nor this machine's memory are needed: for plans.
    """
    for config in plan.arms.values():
        spec = config.spec
        model = check_run(spec, weights=weights)
        check_seed(plan.seeds[-1])
        for seed in plan.seeds[1:]:
            recorded_windows(spec, seed=seed)  # seeds may replay different runs
        if weights:
            check_memory(spec, model)
        if not spec.evaluation.interval:
            raise UserError("evaluation.interval: 0 leaves nothing to compare; give the rounds between evaluations.")
    check_arms(plan.sections)


def start(
    plan: ComparisonPlan, out: Path, *, on_event: OnEvent, retries: int = RETRIES, engine_factory: Any = None
) -> None:
    """Runs a comparison in a new folder, until its end or an interrupt. Ray must be connected.

    Raises `UserError` if the folder exists, or the cluster can never hold a trial.
    """
    check_new_folder(out, ComparisonManifest)
    main_cpus = main_process_cpus(plan.arms)
    manifest = ComparisonManifest(**plan.fields(str(out.resolve())))
    sections = plan.sections
    runs = []
    for arm, seed in manifest.trials():
        folder = RunFolder(trial_folder(out, arm, seed).resolve())
        folder.write_config({"seed": seed, **sections[arm]})
        if arm in plan.starts:
            folder.start.replace([plan.starts[arm]])
        runs.append(str(folder.path))
    manifest.write(out)
    if plan.frozen is not None:
        plan.frozen.save(out / NAME)
    Signature(out).sign(imports=import_names([*sections.values()]))
    space: dict[str, Any] = {RUN: tune.grid_search(runs), MAIN: main_cpus}
    if engine_factory is not None:
        space["engine_factory"] = engine_factory
    training = next(iter(plan.arms.values())).spec.training
    run_trials(out, space, on_event=on_event, retries=retries, checkpoint_every=training.checkpoint_every)
