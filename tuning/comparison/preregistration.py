"""A preregistered comparison: its frozen arms, seeds and measures with a hash, and the decisions of its tests."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from envs.errors import UserError, unknown_value
from envs.folders import make_folder
from envs.received import read_json, validated
from seal_ray.config.schema import SECTIONS
from seal_ray.config.sections import fields_of
from seal_ray.report.files import replace_file
from tuning.comparison.collect import ArmName, Comparison, ComparisonManifest
from tuning.comparison.findings import cell, markdown_table, section, shown, shown_p
from tuning.comparison.measures import Measure, results_of
from tuning.recipe import differences
from tuning.record import State

NAME = "preregistration.json"
"""The file in a comparison's folder."""
_TIMES = tuple(f"{each}_to_threshold" for each in ("rounds", "rollouts", "tokens"))
MEASURES = ("final", "area", "learnt", "gain", "guided", "hint_off", *_TIMES)
"""Measures that can be tested; `final` and `area` of a category too, as final/miss_func."""
_MEASURE = rf"^({'|'.join(MEASURES)}|(final|area)/[a-z_]{{1,40}})$"
_LEVEL = 0.05


class Preregistration(ComparisonManifest):
    """A comparison that was frozen before its runs, with a threshold, and without a folder.

    Attributes:
        settings: Arm → all its settings by section, without the seed.
        measures: The measures that are tested, the primary one first.
        tests: Fisher's test of `learnt`, sign-flip tests over seeds of the others.
        sha256: Its `digest`.
    """

    settings: dict[ArmName, dict[str, dict[str, Any]]]
    measures: tuple[Annotated[str, Field(pattern=_MEASURE)], ...] = Field(min_length=1, max_length=20)
    tests: Literal["exact, two-sided, Holm over arms, level 0.05"] = "exact, two-sided, Holm over arms, level 0.05"
    sha256: str = ""

    @classmethod
    def freeze(cls, **fields: Any) -> Self:
        """The preregistration with these fields. Raises `UserError` for a measure that is not known."""
        for measure in fields["measures"]:
            if not re.match(_MEASURE, measure):
                raise unknown_value("--measures", measure, MEASURES)
        draft = validated(cls, fields, "preregistration")
        return draft.model_copy(update={"sha256": draft.digest()})

    @classmethod
    def load(cls, path: Path, key: str = "") -> Self:
        """Reads a file. Raises `UserError` if it is no preregistration, or was changed after it was frozen."""
        loaded = validated(cls, read_json(path, key), f"{path} cannot be read as a preregistration")
        if loaded.sha256 != loaded.digest():
            raise UserError(f"{path}: its content does not have its SHA-256; it was changed after it was frozen.")
        return loaded

    def save(self, path: Path) -> None:
        make_folder(path.parent)
        replace_file(path, (json.dumps(self.model_dump(mode="json"), indent=1) + "\n").encode())

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.settings.keys() != self.arms.keys() or self.threshold is None or self.fewer_seeds or self.merged:
            raise ValueError("it lacks an arm's settings or the threshold, or is a merged comparison")
        for sections in self.settings.values():
            for name, values in sections.items():
                if name not in SECTIONS or values.keys() - fields_of(name).keys():
                    raise ValueError(f"{name!r:.40} has settings that this version does not have")
        return self

    def digest(self) -> str:
        """The SHA-256 of all fields but itself, as JSON with sorted keys and no spaces."""
        fields = self.model_dump(mode="json", exclude={"sha256"})
        return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def preregistration_of(folder: Path) -> Preregistration | None:
    """The preregistration of a comparison's folder; None if it has none. Raises `UserError` as `load`."""
    path = folder / NAME
    return Preregistration.load(path) if path.exists() else None


def check_fixed(frozen: Preregistration | None, *options: object) -> None:
    """Raises `UserError` if `--baseline`, `--threshold` or `--match` is given for a preregistered comparison."""
    if frozen is not None and any(option is not None for option in options):
        raise UserError("--baseline, --threshold and --match: the preregistration has them; leave them out.")


def deviations(comparison: Comparison, frozen: Preregistration) -> Iterator[str]:
    """The runs that a comparison lacks of its preregistration, and its differences from it."""
    there = {(trial.arm, trial.seed) for trial in comparison.trials if trial.state is State.FINISHED}
    for arm in frozen.arms:
        missing = [str(seed) for seed in frozen.seeds if (arm, seed) not in there]
        if missing:
            yield f"{arm} lacks {'all seeds' if len(missing) == len(frozen.seeds) else 'seed ' + ', '.join(missing)}"
    for trial in comparison.trials:
        if trial.arm not in frozen.arms or trial.seed not in frozen.seeds:
            yield f"{trial.name} was not preregistered"
        elif trial.config:
            for name, (left, right) in differences(frozen.settings[trial.arm], trial.config, places=False):
                yield f"{trial.name} has {name} {cell(f'{right!r:.40}')} instead of {cell(f'{left!r:.40}')}"


def preregistered_lines(comparison: Comparison, measures: Sequence[Measure]) -> list[str]:
    """The section on the preregistered tests; empty if there are none. Nothing is decided before all runs are there."""
    frozen = preregistration_of(comparison.folder)
    if frozen is None:
        return []
    known = {measure.name: measure for measure in measures}
    off = [
        *deviations(comparison, frozen),
        *(f"{each} was not measured" for each in frozen.measures if each not in known),
    ]
    rows = []
    for result in (each for name in frozen.measures if name in known for each in results_of(comparison, known[name])):
        if not result.is_baseline:
            clear = result.adjusted_exact_p is not None and result.adjusted_exact_p <= _LEVEL
            decision = "not complete" if off else "significant" if clear else "no evidence of a difference"
            difference = shown(result.difference, unit=result.measure.unit, sign=True)
            rows.append([result.measure.name, result.arm, difference, shown_p(result), decision])
    return section(
        "## Preregistered tests",
        f"The preregistration has the SHA-256 `{frozen.sha256}`. The primary measure is {frozen.measures[0]}.",
        *([f"**Not as preregistered:** {'; '.join(off)}."] if off else []),
        markdown_table(["measure", "arm", f"− {frozen.baseline}", "p (after Holm's correction)", "decision"], rows),
        f"Tests are {frozen.tests}: Fisher's test of the runs that learnt, sign-flip tests over seeds of the others.",
    )
