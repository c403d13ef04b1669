"""Folders of comparisons made by hand, with no training behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from envs.diagnosis import Label
from envs.interface import CueKind, Interface, RecoveryLevel, SchemaCue
from envs.task import Category
from seal_ray.report.files import RunFolder
from tuning.comparison.collect import Manifest, trial_folder

ROUNDS = 8
CUES = Interface(schema_cues=(SchemaCue(CueKind.REQUIRED),))
GUIDED = Interface(
    schema_cues=CUES.schema_cues,
    recovery=RecoveryLevel.CLASS,
    guidelines=("Call nothing when a needed value is missing.",),
)


def make_comparison(out: Path, arms: tuple[str, ...] = ("vanilla", "rules"), seeds: int = 3, **changes: object) -> None:
    """A comparison of which no trial has started."""
    manifest = Manifest(
        arms={arm: f"About {arm}." for arm in arms},
        seeds=tuple(range(seeds)),
        rounds=ROUNDS,
        baseline=arms[0],
        folder=str(out.resolve()),
    )
    for arm, seed in manifest.trials():
        kind = "none" if arm == arms[0] else "rules"
        RunFolder(trial_folder(out, arm, seed)).write_config({"seed": seed, "curator": {"kind": kind}})
    manifest.model_copy(update=changes).write(out)


def constant(level: float) -> Callable[[int], float]:
    """Success that is the same in every round."""
    return lambda _: level


def growing(level: float) -> Callable[[int], float]:
    """Success that grows from 0 to a level in a straight line."""
    return lambda number: level * number / ROUNDS


def play(
    out: Path,
    arm: str,
    seed: int,
    success: Callable[[int], float],
    *,
    rounds: int = ROUNDS,
    shown: Mapping[int, Interface] | None = None,
) -> None:
    """The rows of a trial up to `rounds`: evaluated at 0, 4 and 8, with `success` of the round everywhere.

    `shown` says from which round on which interface is shown.
    """
    folder = RunFolder(trial_folder(out, arm, seed))
    interface = Interface.plain()
    for number in range(rounds + 1):
        metrics: dict[str, float] = {}
        if number:
            interface = (shown or {}).get(number, interface)
            folder.append_interfaces(
                number, [Interface.plain(), *([interface] if interface != Interface.plain() else [])]
            )
            metrics = {
                "solver/success_plain": success(number) / 2,
                f"diagnosis/share/{Label.PASS}": success(number),
                f"diagnosis/share/{Label.STATE_MISMATCH}": 1 - success(number),
            }
        if number % 4 == 0:
            metrics["evaluation/success"] = success(number)
            metrics |= {f"evaluation/success/{each}": success(number) / (i + 1) for i, each in enumerate(Category)}
        folder.append_metrics(number, metrics)
