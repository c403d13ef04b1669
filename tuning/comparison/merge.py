"""Merging: comparisons that were computed in pieces, as one. No Ray."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from envs.errors import UserError, unknown_value
from envs.folders import make_folder
from envs.received import check_no_links, read_archive, read_bytes, write_new
from seal_ray.report.files import TRIALS, WANDB_FOLDER, replace_file
from tuning.comparison.collect import ARM_NAME, ArmTrial, Comparison, ComparisonManifest, collect, trial_folder
from tuning.comparison.exams import examined_suites
from tuning.recipe import check_arms, differences
from tuning.record import READ, State

PACKED = ".tar.xz"
_READ = "|".join(map(re.escape, READ))


def merge(pieces: Sequence[Path], out: Path, *, baseline: str | None = None, threshold: float | None = None) -> None:
    """Joins comparisons into a new one in the folder `out`, whose arms and seeds are those of all pieces.

    A piece is a folder, or a .tar.xz file that holds one of the file's name.

    Of the trials it takes the small files that reports are made of; solvers and checkpoints stay where they are. An arm
    has the seeds that its pieces planned. Baseline and threshold are the first piece's where they are not given.

    Raises `UserError`, before anything is written, for pieces with other recipes, tasks or exams, and for a trial that
    several of them have.
    """
    if not pieces:
        raise UserError("--merge: give the folders of comparisons, for instance --merge runs/a runs/b.")
    with TemporaryDirectory() as scratch:
        # Each in a folder of its own: files of other folders can have the same name.
        folders = [unpacked(piece, Path(scratch, str(place))) for place, piece in enumerate(pieces)]
        _merge(folders, out, baseline, threshold)


def unpacked(piece: Path, scratch: Path) -> Path:
    """The folder of a piece; of an archive, the files that reports are made of are written to `scratch`.

    Raises `UserError` for an archive that cannot be read, and for a folder with links.
    """
    if not piece.name.endswith(PACKED) or piece.is_dir():
        check_no_links(piece, leave_out=WANDB_FOLDER)
        return piece
    name = piece.name.removesuffix(PACKED)
    known = re.compile(
        rf"(\./)?{re.escape(name)}/({re.escape(ComparisonManifest.FILE)}|{TRIALS}/{ARM_NAME}-seed[0-9]{{1,20}}/({_READ}))"
    )
    files = read_archive(piece, known.fullmatch)
    if not files:
        raise UserError(f"{piece} holds no folder {name} of a comparison; pack a comparison under its own name.")
    for file, content in files.items():
        target = scratch / file
        target.parent.mkdir(parents=True, exist_ok=True)
        write_new(target, content)
    return scratch / name


def _merge(pieces: Sequence[Path], out: Path, baseline: str | None, threshold: float | None) -> None:
    parts = [collect(piece) for piece in pieces]
    trials = _trials(parts)
    _check_rounds(parts)
    _check_settings(list(trials.values()))
    _check_tasks(list(trials.values()))
    examined_suites(list(trials.values()))
    for trial in trials.values():
        _ = trial.interfaces  # read only in reports; what does not fit must be refused before anything is written
    first = parts[0].manifest
    arms = {arm: about for part in reversed(parts) for arm, about in part.manifest.arms.items()}
    order = dict.fromkeys(arm for part in parts for arm in part.manifest.arms)
    planned = {arm: tuple(sorted({seed for each, seed in trials if each == arm})) for arm in order}
    seeds = tuple(sorted({seed for _, seed in trials}))
    if baseline is not None and baseline not in arms:
        raise unknown_value("--baseline", baseline, list(order))
    make_folder(out)
    for trial in trials.values():
        for name in READ:
            if (trial.folder / name).is_file():
                target = trial_folder(out, trial.arm, trial.seed) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                replace_file(target, read_bytes(trial.folder / name))
    ComparisonManifest(
        arms={arm: arms[arm] for arm in order},
        seeds=seeds,
        rounds=first.rounds,
        folder="",
        baseline=baseline or first.baseline,
        threshold=first.threshold if threshold is None else threshold,
        merged=tuple(piece.resolve().name for piece in pieces),
        fewer_seeds={arm: found for arm, found in planned.items() if found != seeds},
    ).write(out)


def _trials(parts: Sequence[Comparison]) -> Mapping[tuple[str, int], ArmTrial]:
    """(arm, seed) → its trial. One that has not started in one piece may have in another."""
    found: dict[tuple[str, int], ArmTrial] = {}
    for trial in (trial for part in parts for trial in part.trials):
        other = found.get((trial.arm, trial.seed))
        if other is None or other.state is State.NOT_STARTED:
            found[trial.arm, trial.seed] = trial
        elif trial.state is not State.NOT_STARTED:
            raise UserError(
                f"--merge: {trial.name} is in {_piece(other)} and in {_piece(trial)}; a trial is taken from one piece."
            )
    return found


def _check_rounds(parts: Sequence[Comparison]) -> None:
    first, *others = parts
    for part in others:
        if part.manifest.rounds != first.manifest.rounds:
            raise UserError(
                f"--merge: {first.folder} has {first.manifest.rounds} rounds and {part.folder} has "
                f"{part.manifest.rounds}; pieces have the same."
            )


def _check_settings(trials: Sequence[ArmTrial]) -> None:
    """An arm has the same settings everywhere but for the seed, and arms have those that make them comparable."""
    of_arms: dict[str, ArmTrial] = {}
    for trial in (each for each in trials if each.config):
        first = of_arms.setdefault(trial.arm, trial)
        for name, (left, right) in differences(first.config, trial.config, places=False):
            raise UserError(
                f"--merge: {name} is {left!r:.80} in {first.name} of {_piece(first)} and {right!r:.80} in {trial.name} "
                f"of {_piece(trial)}; an arm has the same settings in all pieces, but for the seed and the place."
            )
    check_arms({arm: trial.config for arm, trial in of_arms.items()})


def _check_tasks(trials: Sequence[ArmTrial]) -> None:
    """All evaluations that were written down by task have the same tasks."""
    known: tuple[ArmTrial, set[Any]] | None = None
    for trial in trials:
        for tasks in _tasks(trial):
            first, expected = known = known or (trial, tasks)
            if tasks != expected:
                raise UserError(
                    f"--merge: {first.name} of {_piece(first)} and {trial.name} of {_piece(trial)} were evaluated on "
                    "other tasks; pieces have the same."
                )


def _tasks(trial: ArmTrial) -> Iterator[set[Any]]:
    for row in trial.evaluations:
        yield {(suite, task) for suite, found in row["suites"].items() for tasks in found.values() for task in tasks}


def _piece(trial: ArmTrial) -> str:
    """The comparison of a trial, by its folder."""
    return str(trial.folder.parent.parent)
