"""Collecting a comparison: its plan and the records of its trials, read from its folder. No Ray."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast, get_args

from pydantic import BaseModel, Field, NonNegativeInt, PositiveInt, model_validator

from envs.errors import UserError, check_known
from envs.received import read_json, validated
from envs.text import map_texts, valid_text
from seal_ray.evaluation.suites import PLAIN
from seal_ray.report.files import TRIALS, Row
from tuning.record import EXAM, State, TrialRecord, TrialsManifest

EVALUATION = "evaluation/success"
"""The metric that comparisons are about; `evaluation/success/CATEGORY` for one category."""

_ROUND = re.compile(r"round_(\d+)")

_MAX_TRIALS = 2000
_EXAM_SETTINGS = ("dialect", "budgets", "temperature", "top_p")

ARM_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}"
"""The names that an arm can have; its trials' folders contain them."""
ArmName = Annotated[str, Field(pattern=f"^{ARM_NAME}$")]
Match = Literal["rollouts", "tokens"]
Seed = Annotated[int, Field(ge=0, lt=2**64)]

Groups = Mapping[str, tuple[int, int]]
"""Group of an exam's items → the number of right answers, and of all."""


class _Exam(BaseModel):
    """The part of an exam's results that reports read."""

    groups: dict[str, dict[str, tuple[NonNegativeInt, PositiveInt]]] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if any(right > of for groups in self.groups.values() for right, of in groups.values()):
            raise ValueError("there are more right answers than answers")
        if not isinstance(self.settings.get("model", {}), dict):
            raise ValueError("the settings of the model are no mapping")
        return self


class ComparisonManifest(TrialsManifest):
    """The plan of a comparison: each arm with all seeds.

    Attributes:
        arms: Name → description.
        threshold: Success, as a share, to which the report measures times, if one was given.
        match: The quantity that is equal in comparisons of arms: rounds and rollouts, or sampled tokens.
        merged: The folders from which a merged comparison was joined; its `folder` is empty.
        fewer_seeds: The seeds of arms that have not all of them, after a merge.
    """

    FILE, WHAT, COMMAND = "comparison.yaml", "comparison", "compare"

    arms: dict[ArmName, str] = Field(min_length=1, max_length=100)
    seeds: tuple[Seed, ...] = Field(min_length=1, max_length=1000)
    baseline: ArmName
    threshold: float | None = Field(default=None, ge=0, le=1)
    match: Match = "rollouts"
    merged: tuple[str, ...] = ()
    fewer_seeds: dict[ArmName, tuple[Seed, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.baseline not in self.arms or self.fewer_seeds.keys() - self.arms.keys():
            raise ValueError("the baseline, or an arm with fewer seeds, is not among the arms")
        if len(self.arms) * len(self.seeds) > _MAX_TRIALS:
            raise ValueError(f"it has more than {_MAX_TRIALS:,} trials")
        if len(set(self.seeds)) != len(self.seeds) or not set().union(*self.fewer_seeds.values()) <= set(self.seeds):
            raise ValueError("a seed is there twice, or an arm has a seed that is not among the seeds")
        if not all(text.isprintable() for text in (*self.arms.values(), *self.merged)):
            raise ValueError("a text holds control characters")
        return self

    def check_resumable(self, out: Path) -> None:
        if self.merged:
            raise UserError(f"{out} was merged from {', '.join(self.merged)}; resume these, and merge them again.")
        super().check_resumable(out)

    def trials(self) -> Iterator[tuple[str, int]]:
        """Arm and seed of every trial; all arms of a seed come first, so that pairs are complete early."""
        for seed in self.seeds:
            yield from ((arm, seed) for arm in self.arms if seed in self.fewer_seeds.get(arm, self.seeds))


def checked_match(value: str | None) -> Match | None:
    """The value of `--match`. Raises `UserError` for a value that `Match` lacks."""
    check_known("--match", get_args(Match), value)
    return cast(Match | None, value)


def set_reading(out: Path, **changes: object) -> None:
    """Stores the `threshold` and `match` of later reports of a comparison; None leaves a value unchanged."""
    given = {name: value for name, value in changes.items() if value is not None}
    if given:
        ComparisonManifest.read(out).model_copy(update=given).write(out)


@dataclass(frozen=True, kw_only=True)
class ArmTrial(TrialRecord):
    """The trial of an arm with a seed."""

    arm: str
    seed: int

    @cached_property
    def _exam(self) -> _Exam:
        path = self.folder / EXAM
        return validated(_Exam, map_texts(read_json(path), valid_text), str(path)) if path.is_file() else _Exam()

    @property
    def exams(self) -> Mapping[str, Groups]:
        """Suite → the results of the trial's solver by group of items."""
        return {suite: groups for suite, groups in self._exam.groups.items() if groups}

    def exam_settings(self, suite: str) -> Mapping[str, Any]:
        """The settings on which the suite's answers depend, apart from the model, and the suite's notes."""
        model = self._exam.settings.get("model", {})
        notes = [note for note in self._exam.notes if note.startswith(f"{suite}: ")]
        return {key: model.get(key) for key in _EXAM_SETTINGS} | {"notes": notes}

    @property
    def examined_round(self) -> int | None:
        """The round of the checkpoint that was examined, by the name of its folder."""
        try:
            parts = reversed(Path(self._exam.settings["model"]["model"]).parts)
        except (KeyError, TypeError):
            raise UserError(
                f"{self.folder / EXAM} does not say which model was examined; run its exam again with --fresh."
            ) from None
        return next((int(match[1]) for part in parts if (match := _ROUND.fullmatch(part))), None)

    @cached_property
    def categories(self) -> Mapping[str, str]:
        """Task → its category in the evaluations."""
        suites = (row["suites"].get(PLAIN, {}).items() for row in self.evaluations)
        return {task: category for by_category in suites for category, tasks in by_category for task in tasks}

    @cached_property
    def rows_by_task(self) -> Mapping[str, Sequence[Row]]:
        """Task → rows in the form of the metrics, of the evaluation of this task alone.

        The value of a lost dialogue is None. Empty if an evaluation lacks its results by task.
        """
        by_round = {row["round"]: row["suites"].get(PLAIN, {}) for row in self.evaluations}
        if not {row["round"] for row in self.rows if row.get(EVALUATION) is not None} <= by_round.keys():
            return {}
        rows: dict[str, list[Row]] = {}
        for number, by_category in by_round.items():
            for category, outcomes in by_category.items():
                for task, outcome in outcomes.items():
                    names = (EVALUATION, f"{EVALUATION}/{category}")
                    rows.setdefault(task, []).append({"round": number, **dict.fromkeys(names, outcome)})
        return rows


@dataclass(frozen=True, slots=True)
class Comparison:
    """The plan and the trials of a comparison."""

    folder: Path
    manifest: ComparisonManifest
    trials: Sequence[ArmTrial]

    @property
    def planned(self) -> int:
        return len(self.trials)

    def arm_trials(self, arm: str, *states: State) -> list[ArmTrial]:
        """The trials of an arm by seed; only those in one of `states`, if any are given."""
        return [trial for trial in self.trials if trial.arm == arm and (not states or trial.state in states)]


def trial_folder(out: Path, arm: str, seed: int) -> Path:
    return out / TRIALS / f"{arm}-seed{seed}"


def collect(out: Path) -> Comparison:
    """Reads the comparison in a folder, finished or not. Raises `UserError` as `ComparisonManifest.read`."""
    manifest = ComparisonManifest.read(out)
    trials = [
        ArmTrial.read(trial_folder(out, arm, seed), planned_rounds=manifest.rounds, arm=arm, seed=seed)
        for arm, seed in sorted(manifest.trials(), key=lambda each: (list(manifest.arms).index(each[0]), each[1]))
    ]
    return Comparison(out, manifest, trials)
