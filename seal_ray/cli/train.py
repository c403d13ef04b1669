"""`seal-ray train`: the main job."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from envs.diagnosis import Label
from envs.errors import UserError
from envs.trusting import import_names, require_trust, trust_names, untrusted
from seal_ray.cli.console import make_console
from seal_ray.cli.options import DryRun, Rounds, Runs, Storage, Trust
from seal_ray.metrics import categories_of
from seal_ray.report.files import TRIALS

if TYPE_CHECKING:
    from policies.models import ModelFolder
    from seal_ray.algorithm.config import SealConfig


def command(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="section.key=value …", help="Settings, for instance training.rounds=10."),
    ] = None,
    preset: Annotated[
        list[str] | None, typer.Option(help="A model preset, a method preset, or both: see --presets, or YAML files.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file of settings, on top of the presets.")] = None,
    rounds: Rounds = None,
    seed: Annotated[int | None, typer.Option(help="Seed; the same seed repeats a run.", min=0)] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run, and of its folder in --runs.")] = None,
    runs: Runs = Path("runs"),
    resume: Annotated[str | None, typer.Option(help="Run to resume: its folder, or its copy in --storage.")] = None,
    storage: Storage = None,
    wandb: Annotated[str, typer.Option(help="off, auto (offline without a key), online or offline.")] = "auto",
    dry_run: DryRun = False,
    presets: Annotated[bool, typer.Option("--presets", help="List the presets.")] = False,
    _trust: Trust = False,
) -> None:
    """Train a solver: play, diagnose, reweight, learn. Ctrl-C writes a checkpoint; --resume resumes."""
    from seal_ray.algorithm.config import make_config

    console = make_console()
    if presets:
        _show_presets(console)
        return
    from seal_ray.run.signature import Signature, trust_signed_names
    from seal_ray.run.storage import fetched, is_stored, mirrored

    if resume is not None:
        if overrides or preset or config or name or rounds is not None or seed is not None:
            raise UserError("--resume: a run resumes with its own settings; give no others.")
        if dry_run and is_stored(resume):
            raise UserError("--dry-run: it fetches no run from a storage; read its config.yaml there.")
        folder_path, storage = fetched(resume, runs, storage)
        file = folder_path / "config.yaml"
        if not file.is_file() or (folder_path / TRIALS).exists():
            raise UserError(f"--resume: {folder_path} is no run; give a folder that seal-ray train has made.")
        made = make_config(None, file=file)
        if not dry_run:
            trust_signed_names(made.to_sections(), file, run=folder_path)
    else:
        words = [*(overrides or []), *([] if rounds is None else [f"training.rounds={rounds}"])]
        made = make_config(preset or [], file=config, overrides=words, seed=seed)
        folder_path = runs / (name or time.strftime("train-%Y%m%d-%H%M%S"))
        if not dry_run:
            _check_new(folder_path)
            trust_names(made.to_sections(), config or Path(", ".join(preset or [])))
    from seal_ray.algorithm.checks import check_memory, check_model, check_run

    if dry_run:
        if names := untrusted(import_names(made.to_sections())):
            console.print(f"neither imported nor checked: {', '.join(names)}", soft_wrap=True, markup=False)
            model = check_model(made.spec.solver, weights=False)
        else:
            model = check_run(made.spec, weights=False)
        _show_plan(console, made, model)
        _show_fit(console, made, model)
        return
    spec = made.spec
    check_memory(spec, check_run(spec))
    from seal_ray.report.files import RunFolder
    from seal_ray.report.trackers import WANDB
    from seal_ray.run import checkpoints
    from seal_ray.run.cluster import check_fits, connected
    from seal_ray.run.recorder import train

    if wandb not in WANDB:
        raise UserError(f"--wandb: {wandb!r:.40} is not known; allowed are {', '.join(WANDB)}.")
    for place in ("wandb/settings", ".wandb/settings") if wandb != "off" else ():
        if Path(place).is_file():
            require_trust("settings of wandb, which say where your key is sent", place)
    say = partial(console.print, soft_wrap=True, markup=False)
    checkpoint = None
    if resume is not None:
        checkpoint = next(reversed(checkpoints.stored(folder_path / "checkpoints")), None)
        if checkpoint is None:
            say(f"no checkpoint in {folder_path}; starting from scratch")
    progress = _Progress(console, spec.training.rounds)
    with mirrored(folder_path, storage, say, new=resume is None) as push:

        def report(metrics: Mapping[str, float]) -> None:
            progress.show(metrics)
            if "perf/checkpoint_seconds" in metrics:
                push()

        say(f"run {folder_path}: connecting to Ray")
        with connected():
            check_fits(spec)
            folder = RunFolder(folder_path)
            folder.write_config({"seed": made.seed, **made.to_sections()})
            Signature(folder.path).sign(imports=import_names(made.to_sections()))
            outcome = train(made, folder, resume=checkpoint, wandb=wandb, say=say, report=report)
    if outcome.stopped:
        say(f"stopped after round {outcome.rounds}; go on with: seal-ray train --resume {folder_path}")
    say(f"curves: {folder.curves}   model: {checkpoints.model_of(str(folder_path))}")


def _check_new(folder: Path) -> None:
    """Raises `UserError` where a folder of this name holds anything."""
    if (folder / "config.yaml").exists() and not (folder / TRIALS).exists():
        raise UserError(f"--name: {folder} holds a run; go on with --resume {folder}, or give another name.")
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"--name: {folder} holds something else than a run; give another name.")


class _Progress:
    """One line a round, and one for each evaluation."""

    def __init__(self, console: Console, rounds: int) -> None:
        self._console = console
        self._rounds = rounds
        self._seconds: list[float] = []

    def show(self, metrics: Mapping[str, float]) -> None:
        if metrics["round"]:
            self._show_round(metrics)
        if "evaluation/success" in metrics:
            parts = [f"{percent(metrics, f'evaluation/success/{name}')} {name}" for name in categories_of(metrics)]
            self._print(
                f"  evaluation, plain interface: {percent(metrics, 'evaluation/success')} success ({', '.join(parts)})"
            )

    def _show_round(self, metrics: Mapping[str, float]) -> None:
        number = int(metrics["round"])
        self._seconds.append(metrics["perf/round_seconds"])
        left = (self._rounds - number) * sum(self._seconds) / len(self._seconds)
        failures = [(metrics.get(f"diagnosis/share/{label}", 0.0), label) for label in Label if label.is_failure]
        worst = ", ".join(f"{100 * share:.0f} % {label}" for share, label in sorted(failures, reverse=True)[:2])
        self._print(
            f"round {number}/{self._rounds}: success {percent(metrics, 'solver/success')} "
            f"(plain {percent(metrics, 'solver/success_plain')}, shown {percent(metrics, 'solver/success_shown')}), "
            f"turns {worst}; {metrics['perf/tokens_per_second']:,.0f} tokens/s, "
            f"{metrics['perf/round_seconds']:.0f} s (rollout {metrics['perf/rollout_seconds']:.0f}, "
            f"learn {metrics['perf/learn_seconds']:.0f}), {minutes(left)} left"
        )

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)


def percent(metrics: Mapping[str, float], name: str) -> str:
    """A share among the metrics in percent, a dash where it was not measured."""
    value = metrics.get(name)
    return "–" if value is None or math.isnan(value) else f"{100 * value:.0f} %"


def minutes(seconds: float) -> str:
    """A time in minutes, a short one in seconds."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _show_presets(console: Console) -> None:
    from seal_ray.config.presets import about, preset_names

    table = Table("preset", "what it is", title="presets: a model, and a method on top of it")
    for kind in ("model", "method"):
        for each in preset_names(kind):
            table.add_row(each, about(each))
    console.print(table)


def _show_fit(console: Console, made: SealConfig, model: ModelFolder) -> None:
    """Says where this machine is too small: a plan may be for another one."""
    from seal_ray.algorithm.checks import check_memory

    try:
        check_memory(made.spec, model)
    except UserError as error:
        console.print(f"not on this machine: {error}", soft_wrap=True, markup=False)


def _show_plan(console: Console, made: SealConfig, model: ModelFolder) -> None:
    from envs.received import write_yaml
    from seal_ray.algorithm.memory_estimate import Place, parts
    from seal_ray.run.cluster import resources

    console.print(write_yaml({"seed": made.seed, **made.to_sections()}), soft_wrap=True, markup=False)
    placement = Table("actors", "CPUs", "GPUs", title="placement")
    for actors, asked in resources(made.spec).items():
        placement.add_row(actors, f"{asked['CPU']:g}", f"{asked['GPU']:g}")
    console.print(placement)
    memory = Table("part", "where", "GiB at least", title="memory")
    needed = parts(made.spec, model)
    for part in needed:
        memory.add_row(part.name, part.place, f"{part.size / 2**30:.2f}")
    for place in Place:
        memory.add_row("all", place, f"{sum(part.size for part in needed if part.place is place) / 2**30:.2f}")
    console.print(memory)
