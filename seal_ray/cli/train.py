"""`seal-ray train`: the main job."""

import math
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from envs.diagnosis import Label
from envs.errors import SealError, UserError, check_known, note_on_jobs
from envs.received import read_yaml
from envs.trusting import import_names, require_trust, trust_names, untrusted
from seal_ray.cli import options as opt
from seal_ray.cli.console import make_console, print_line
from seal_ray.cli.panel import Panel, live_panel, minutes, sparkline
from seal_ray.metrics import categories_of
from seal_ray.report.files import TRIALS, note_on_runs

if TYPE_CHECKING:
    from seal_ray.algorithm.config import SealConfig


_RECENT = 20
"""Number of rounds in the panel's sparklines."""
_EVENTS = {
    "curator/promoted": "another interface was promoted",
    "perf/engine_restarts": "an engine was restarted",
    "perf/runner_restarts": "an env runner was restarted",
    "diagnosis/faults": "{:.0f} dialogues were lost to faults",
    "perf/checkpoint_seconds": "a checkpoint was written",
}
"""Metric → event of a round in which it is positive or, for a count since the start, has grown."""


def command(
    overrides: opt.Overrides = None,
    preset: opt.Presets = None,
    config: Annotated[Path | None, typer.Option(help="YAML file of settings, on top of the presets.")] = None,
    rounds: opt.Rounds = None,
    seed: opt.RunSeed = None,
    name: opt.Name = None,
    runs: opt.Runs = Path("runs"),
    resume: opt.Resume = None,
    storage: opt.Storage = None,
    wandb: Annotated[str, typer.Option(help="off, auto (offline without a key), online or offline.")] = "auto",
    max_restarts: Annotated[
        int, typer.Option(help="After a fault, times to resume from the newest checkpoint by itself.", min=0)
    ] = 0,
    dry_run: opt.DryRun = False,
    _trust: opt.Trust = False,
) -> None:
    """Train a solver: play, diagnose, reweight, learn. Ctrl-C writes a checkpoint; --resume resumes."""
    from seal_ray.algorithm.config import make_config
    from seal_ray.config.presets import parse_places
    from seal_ray.report.trackers import WANDB
    from seal_ray.run.signature import trust_signed_names
    from seal_ray.run.storage import fetched, is_stored

    console = make_console()
    check_known("--wandb", WANDB, wandb)
    if resume is not None:
        if any(value is not None for value in (preset or None, config, name, rounds, seed)):
            raise UserError("--resume: a run resumes with its own settings; give no others.")
        parse_places(overrides or (), "--resume")
        if dry_run and is_stored(resume):
            raise UserError("--dry-run: it fetches no run from a storage; read its config.yaml there.")
        folder, storage = fetched(resume, runs, storage)
        source = folder / "config.yaml"
        if not source.is_file() or (folder / TRIALS).exists():
            raise UserError(
                f"--resume: {folder} is no run; give a folder that seal-ray train has made."
                f"{note_on_runs(folder)}{note_on_jobs()}"
            )
        if not dry_run:  # a plan imports nothing but custom kinds, which `make_config` has trusted
            trust_signed_names(read_yaml(source, "config"), source, run=folder)
        made = make_config(None, file=source, overrides=overrides or ())
    else:
        words = [*(overrides or []), *([] if rounds is None else [f"training.rounds={rounds}"])]
        made = make_config(preset or [], file=config, overrides=words, seed=seed)
        folder = runs / (name or time.strftime("train-%Y%m%d-%H%M%S"))
        source = config or Path(", ".join(preset or []))
    if dry_run:
        _show_plan(console, made)
    else:
        _train(console, made, folder, source, storage, new=resume is None, wandb=wandb, restarts=max_restarts)


def _train(
    console: Console,
    made: "SealConfig",
    path: Path,
    source: Path,
    storage: str | None,
    *,
    new: bool,
    wandb: str,
    restarts: int,
) -> None:
    """Trains in a run folder, with settings from `source`; after a fault again from the newest checkpoint."""
    from ray.exceptions import RayError

    from seal_ray.report.files import RunFolder
    from seal_ray.run import checkpoints
    from seal_ray.run.cluster import connected, wait_until_it_fits
    from seal_ray.run.recorder import train
    from seal_ray.run.signature import Signature
    from seal_ray.run.storage import mirrored

    sections, spec = made.to_sections(), made.spec
    _check_start(made, path, source, new=new, wandb=wandb)
    say = partial(print_line, console)

    def newest() -> Path | None:
        found = next(reversed(checkpoints.stored(path / "checkpoints")), None)
        if found is None:
            say(f"no checkpoint in {path}; starting from scratch")
        else:
            checkpoints.check_state(found)
        return found

    checkpoint = None if new else newest()
    with live_panel(console) as panel, mirrored(path, storage, say, new=new) as push:
        progress = TrainingProgress(console, spec.training.rounds, panel)

        def report(metrics: Mapping[str, float]) -> None:
            progress.show(metrics)
            if "perf/checkpoint_seconds" in metrics:
                push()

        for left in reversed(range(restarts + 1)):
            say(f"run {path}: connecting to Ray")
            try:
                with connected():
                    wait_until_it_fits(spec, say)
                    folder = RunFolder(path)
                    folder.write_config({"seed": made.seed, **sections})
                    Signature(path).sign(imports=import_names(sections))
                    rounds = train(made, folder, resume=checkpoint, wandb=wandb, say=say, report=report)
                break
            except (SealError, RayError) as error:
                if isinstance(error, UserError) or not left:
                    raise
                say(f"{' '.join(str(error).split())[:300]}; restarting, {left - 1} more restarts are left")
                checkpoint = newest()
    if rounds < spec.training.rounds:
        say(f"stopped after round {rounds}; resume with: seal-ray train --resume {path}")
    say(f"report: {folder.page}   model: {checkpoints.model_of(str(path))}")


def _check_start(made: "SealConfig", path: Path, source: Path, *, new: bool, wandb: str) -> None:
    """Raises `UserError` if the run cannot start here, or brings code that the user does not trust."""
    from seal_ray.algorithm.checks import check_memory, check_run

    if new:
        _check_new(path)
        trust_names(made.to_sections(), source)
    check_memory(made.spec, check_run(made.spec))
    for place in ("wandb/settings", ".wandb/settings") if wandb != "off" else ():
        if Path(place).is_file():
            require_trust("settings of wandb, which say where your key is sent", place)


def _check_new(folder: Path) -> None:
    """Raises `UserError` if the folder of a new run has content."""
    if (folder / "config.yaml").exists() and not (folder / TRIALS).exists():
        raise UserError(f"--name: {folder} is a run; resume it with --resume {folder}, or give another name.")
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"--name: {folder} has other content than a run; give another name.")


class TrainingProgress:
    """Shows every round on a panel or, without one, as a line; and a line for every evaluation."""

    def __init__(self, console: Console, rounds: int, panel: Panel | None = None) -> None:
        self._console, self._rounds, self._panel = console, rounds, panel
        self._seconds: list[float] = []
        self._recent: deque[Mapping[str, float]] = deque(maxlen=_RECENT)
        self._event = "none"

    def show(self, metrics: Mapping[str, float]) -> None:
        if self._panel is not None:
            self._panel.show("rounds", int(metrics["round"]), self._rounds, self._rows(metrics))
        elif metrics["round"]:
            self._show_round(metrics)
        if "evaluation/success" in metrics:
            success = percent(metrics, "evaluation/success")
            parts = [f"{percent(metrics, f'evaluation/success/{name}')} {name}" for name in categories_of(metrics)]
            print_line(self._console, f"  evaluation, plain interface: {success} success ({', '.join(parts)})")

    def _rows(self, metrics: Mapping[str, float]) -> dict[str, str]:
        if not metrics["round"]:
            return {}
        before = self._recent[-1] if self._recent else metrics
        self._recent.append(metrics)
        for name, text in _EVENTS.items():
            if (number := metrics.get(name, 0.0)) > (before.get(name, 0.0) if name.endswith("restarts") else 0.0):
                self._event = f"round {metrics['round']:.0f}: {text.format(number)}"
                break
        rows = {
            word: f"{sparkline(each.get(name, math.nan) for each in self._recent)} {percent(metrics, name)} success"
            for word, name in (("plain", "solver/success_plain"), ("shown", "solver/success_shown"))
        }
        return rows | {
            "groups": f"{metrics['solver/groups_kept']:.0f} of {metrics['solver/groups']:.0f} teach",
            "failures": f"turns {_worst(metrics, 3)}",
            "interface": f"{metrics['interface/guidelines']:.0f} guidelines",
            "event": self._event,
        }

    def _show_round(self, metrics: Mapping[str, float]) -> None:
        number, seconds = int(metrics["round"]), metrics["perf/round_seconds"]
        self._seconds.append(seconds)
        left = (self._rounds - number) * sum(self._seconds) / len(self._seconds)
        print_line(
            self._console,
            f"round {number}/{self._rounds}: {success_text(metrics)}, turns {_worst(metrics, 2)}; "
            f"{metrics['perf/tokens_per_second']:,.0f} tokens/s, {seconds:.0f} s "
            f"(rollout {metrics['perf/rollout_seconds']:.0f}, learn {metrics['perf/learn_seconds']:.0f}), "
            f"{minutes(left)} left",
        )


def _worst(metrics: Mapping[str, float], count: int) -> str:
    """The most frequent labels of failure."""
    failures = [(metrics.get(f"diagnosis/share/{label}", 0.0), label) for label in Label if label.is_failure]
    return ", ".join(f"{100 * share:.0f} % {label}" for share, label in sorted(failures, reverse=True)[:count])


def success_text(metrics: Mapping[str, float]) -> str:
    """The success of a round, with and without interfaces."""
    plain, shown = percent(metrics, "solver/success_plain"), percent(metrics, "solver/success_shown")
    return f"success {percent(metrics, 'solver/success')} (plain {plain}, shown {shown})"


def percent(metrics: Mapping[str, float], name: str) -> str:
    """A share among the metrics in percent, a dash if it was not measured."""
    value = metrics.get(name)
    return "–" if value is None or math.isnan(value) else f"{100 * value:.0f} %"


def presets() -> None:
    """List the presets: a model, and a method or an ablation on top of it."""
    from seal_ray.config.presets import preset_names, read_preset

    table = Table("preset", "about")
    models, methods = (
        [(name, read_preset(name)["about"]) for name in preset_names(kind)] for kind in ("model", "method")
    )
    ablations = [row for row in methods if row[1].startswith("Ablation")]
    methods = [row for row in methods if row not in ablations]
    for group, rows in (("models", models), ("methods", methods), ("ablations", ablations)):
        table.add_row(f"{group}:", "", style="bold")
        for row in rows:
            table.add_row(*row)
        table.add_section()
    make_console().print(table)


_GPU = 80 << 30
"""Memory of a GPU in plans."""


def _show_plan(console: Console, made: "SealConfig") -> None:
    """Shows settings, agents, placement, memory and times, and whether this machine is too small for the run."""
    from envs.received import write_yaml
    from seal_ray.algorithm.checks import check_memory, check_model, check_run
    from seal_ray.algorithm.memory_estimate import Place, gpu_needs, parts
    from seal_ray.algorithm.time_estimate import GPU, round_phases
    from seal_ray.run.cluster import resources

    sections = made.to_sections()
    if names := untrusted(import_names(sections)):
        print_line(console, f"neither imported nor checked: {', '.join(names)}")
        model = check_model(made.spec.solver, weights=False)
    else:
        model = check_run(made.spec, weights=False)
    print_line(console, write_yaml({"seed": made.seed, **sections}))
    agents = Table("agent", "model", "adapter's rank", "engines", "learning rate", title="agents")
    for name, agent in made.spec.agents.items():
        engines = f"{agent.num_engines} {agent.engine_kind}" if agent.owns_engines else f"the {agent.host}'s"
        rate = f"{agent.training.lr:g}" if agent.trainable else "frozen"
        agents.add_row(name, agent.model, str(agent.lora_rank) if agent.has_adapter else "none", engines, rate)
    console.print(agents)
    placement = Table("actors", "CPUs", "GPUs", title="placement")
    for actors, request in resources(made.spec).items():
        placement.add_row(actors, f"{request['CPU']:g}", f"{request['GPU']:g}")
    console.print(placement)
    memory = Table("part", "where", "GiB at least", title="memory")
    needed = parts(made.spec, model)
    for part in needed:
        memory.add_row(part.name, part.place, f"{part.size / 2**30:.2f}")
    for place in Place:
        memory.add_row("all", place, f"{sum(part.size for part in needed if part.place is place) / 2**30:.2f}")
    console.print(memory)
    if on_gpu := gpu_needs(needed, made.spec, _GPU):
        gpu = Table("part", "GiB at least", title="memory of one GPU, if it has 80 GiB")
        for name, size in {**on_gpu, "all": sum(on_gpu.values())}.items():
            gpu.add_row(name, f"{size / 2**30:.1f}")
        console.print(gpu)
    if phases := round_phases(made.spec, model):
        times = Table("phase", "seconds", "formula", title=f"seconds of a round on {GPU} GPUs (± half)")
        for phase in phases:
            times.add_row(phase.name, f"{phase.seconds:.0f}", phase.formula)
        console.print(times)
    try:
        check_memory(made.spec, model)
    except UserError as error:
        print_line(console, f"not on this machine: {error}")
