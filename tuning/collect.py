"""Collecting a comparison: what was to be run, and what the run folders of its trials hold. No Ray."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from envs.errors import UserError
from envs.task import JSON
from seal_ray.report.drawing import Row
from seal_ray.report.files import replace_file
from seal_ray.report.json_lines import JsonLines

_MANIFEST = "comparison.yaml"
_FAILURE = "failed.txt"


class Manifest(BaseModel):
    """What a comparison runs: `arms`, name → what it is, each with all `seeds`, for so many `rounds`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    arms: dict[str, str] = Field(min_length=1)
    seeds: tuple[int, ...] = Field(min_length=1)
    rounds: int = Field(ge=1)
    baseline: str
    folder: str
    """Where the comparison was started, as an absolute path."""

    def trials(self) -> Iterator[tuple[str, int]]:
        """Arm and seed of every trial, a seed's arms after one another so that pairs are complete early."""
        yield from ((arm, seed) for seed in self.seeds for arm in self.arms)


class State(StrEnum):
    """How far a trial has come."""

    FINISHED = "finished"
    UNFINISHED = "unfinished"
    """Stopped or still running."""
    FAILED = "failed"
    """Given up after retries."""
    NOT_STARTED = "not started"


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One trial, by its run folder: `rows` of its metrics by round, and what it showed as `interfaces`.

    `rounds` is how many it has finished; `failure` what it failed of.
    """

    arm: str
    seed: int
    folder: Path
    state: State
    rounds: int
    rows: Sequence[Row]
    interfaces: Sequence[Row]
    config: Mapping[str, JSON]
    failure: str | None = None

    @property
    def name(self) -> str:
        return self.folder.name


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison as it stands."""

    folder: Path
    manifest: Manifest
    trials: Sequence[TrialRecord]

    def of(self, arm: str, *states: State) -> list[TrialRecord]:
        """The trials of an arm by seed, those in one of `states` where some are given."""
        return [each for each in self.trials if each.arm == arm and (not states or each.state in states)]


def trial_folder(out: Path, arm: str, seed: int) -> Path:
    """The run folder of a trial."""
    return out / "trials" / f"{arm}-seed{seed}"


def write_manifest(out: Path, manifest: Manifest) -> None:
    """Writes down what the comparison runs."""
    text = yaml.safe_dump(manifest.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    replace_file(out / _MANIFEST, text.encode("utf-8"))


def read_manifest(out: Path) -> Manifest:
    """What the comparison runs. Raises `UserError` where the folder holds no comparison."""
    path = out / _MANIFEST
    if not path.is_file():
        raise UserError(f"{out} is no comparison; give a folder that seal-ray compare has made.")
    try:
        return Manifest.model_validate(yaml.safe_load(path.read_bytes()))
    except (OSError, yaml.YAMLError, UnicodeDecodeError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} cannot be read as a comparison ({reason}).") from None


def mark_failed(trial: Path, reason: str) -> None:
    """Writes down that a trial was given up, and why."""
    replace_file(trial / _FAILURE, reason.encode("utf-8"))


def mark_started(trial: Path) -> None:
    """Takes back what `mark_failed` wrote, if it did."""
    (trial / _FAILURE).unlink(missing_ok=True)


def collect(out: Path) -> Comparison:
    """Reads the comparison in a folder, finished or not. Nothing is written. Raises `UserError` as `read_manifest`."""
    manifest = read_manifest(out)
    trials = [_read_trial(out, arm, seed, manifest.rounds) for arm, seed in manifest.trials()]
    return Comparison(out, manifest, sorted(trials, key=lambda each: (list(manifest.arms).index(each.arm), each.seed)))


def _read_trial(out: Path, arm: str, seed: int, rounds: int) -> TrialRecord:
    folder = trial_folder(out, arm, seed)
    # A retried trial can have been killed in between: of rows of one round the last counts.
    by_round = {row["round"]: row for row in JsonLines(folder / "metrics.jsonl").rows()}
    rows = [by_round[number] for number in sorted(by_round)]
    done = rows[-1]["round"] if rows else 0
    failure = folder / _FAILURE
    if done >= rounds:
        state = State.FINISHED
    elif failure.is_file():
        state = State.FAILED
    else:
        state = State.UNFINISHED if rows else State.NOT_STARTED
    return TrialRecord(
        arm=arm,
        seed=seed,
        folder=folder,
        state=state,
        rounds=done,
        rows=rows,
        interfaces=JsonLines(folder / "interfaces.jsonl").rows(),
        config=_read_config(folder / "config.yaml"),
        failure=failure.read_text("utf-8", "replace").strip() if state is State.FAILED else None,
    )


def _read_config(path: Path) -> Mapping[str, JSON]:
    found = yaml.safe_load(path.read_bytes()) if path.is_file() else None
    return found if isinstance(found, dict) else {}
