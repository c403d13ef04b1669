"""Collecting a comparison: what was to be run, and what the run folders of its trials hold. No Ray."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from tuning.record import State, TrialRecord, TrialsManifest


class Manifest(TrialsManifest):
    """What a comparison runs: `arms`, name → what it is, each with all `seeds`."""

    FILE, WHAT, COMMAND = "comparison.yaml", "comparison", "compare"

    arms: dict[str, str] = Field(min_length=1)
    seeds: tuple[int, ...] = Field(min_length=1)
    baseline: str

    def trials(self) -> Iterator[tuple[str, int]]:
        """Arm and seed of every trial, a seed's arms after one another so that pairs are complete early."""
        yield from ((arm, seed) for seed in self.seeds for arm in self.arms)


@dataclass(frozen=True, kw_only=True)
class ArmTrial(TrialRecord):
    """The trial of an arm with a seed."""

    arm: str
    seed: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison as it stands."""

    folder: Path
    manifest: Manifest
    trials: Sequence[ArmTrial]

    def of(self, arm: str, *states: State) -> list[ArmTrial]:
        """The trials of an arm by seed, those in one of `states` where some are given."""
        return [each for each in self.trials if each.arm == arm and (not states or each.state in states)]


def trial_folder(out: Path, arm: str, seed: int) -> Path:
    """The run folder of a trial."""
    return out / "trials" / f"{arm}-seed{seed}"


def collect(out: Path) -> Comparison:
    """Reads the comparison in a folder, finished or not. Nothing is written. Raises `UserError` as `Manifest.read`."""
    manifest = Manifest.read(out)
    trials = [
        ArmTrial.read(trial_folder(out, arm, seed), of_rounds=manifest.rounds, arm=arm, seed=seed)
        for arm, seed in manifest.trials()
    ]
    return Comparison(out, manifest, sorted(trials, key=lambda each: (list(manifest.arms).index(each.arm), each.seed)))
