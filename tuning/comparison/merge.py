"""Comparisons that were run in pieces: merging them, and reusing their evaluations before training. No Ray."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from envs.errors import UserError, unknown_value
from envs.folders import make_folder
from envs.received import check_no_links, read_archive, read_bytes, write_new
from seal_ray.report.files import TRIALS, WANDB_FOLDER, Row, replace_file
from tuning.comparison.collect import ARM_NAME, ArmTrial, Comparison, ComparisonManifest, Match, collect, trial_folder
from tuning.comparison.findings import examined_suites
from tuning.comparison.preregistration import NAME, check_fixed, preregistration_of
from tuning.recipe import Sections, check_arms, differences
from tuning.record import READ, State, evaluation_differences, initial_evaluation

PACKED = ".tar.xz"
_READ = "|".join(map(re.escape, READ))


def merge(
    pieces: Sequence[Path],
    out: Path,
    *,
    baseline: str | None = None,
    threshold: float | None = None,
    match: Match | None = None,
) -> None:
    """Joins comparisons into a new one with the arms and seeds of all pieces, in the folder `out`.

    It copies the small files that reports read; solvers and checkpoints stay where they are. An arm has the seeds that
    its pieces planned. Nothing is written before all pieces are checked.

    Args:
        pieces: Folders, or .tar.xz files that hold a folder of the file's name.
        baseline: The preregistration's or the first piece's, if not given; so are `threshold` and `match`.

    Raises:
        UserError: Pieces have other recipes, preregistrations, tasks or exams, or several of them have the same trial.
    """
    if not pieces:
        raise UserError("--merge: give the folders of comparisons, for instance --merge runs/a runs/b.")
    with TemporaryDirectory() as scratch:
        folders = [unpacked(piece, Path(scratch, str(place))) for place, piece in enumerate(pieces)]
        _merge(folders, out, baseline, threshold, match)


def unpacked(piece: Path, scratch: Path) -> Path:
    """The folder of a piece. Of an archive, the files that reports read are written to `scratch`.

    Raises:
        UserError: The archive cannot be read, or the folder has links.
    """
    if not piece.name.endswith(PACKED) or piece.is_dir():
        check_no_links(piece, leave_out=WANDB_FOLDER)
        return piece
    name = piece.name.removesuffix(PACKED)
    known = re.compile(
        rf"(\./)?{re.escape(name)}/({re.escape(ComparisonManifest.FILE)}|{NAME}|{TRIALS}/{ARM_NAME}-seed[0-9]{{1,20}}/({_READ}))"
    )
    files = read_archive(piece, known.fullmatch)
    if not files:
        raise UserError(f"{piece} holds no folder {name} of a comparison; pack a comparison under its own name.")
    for file, content in files.items():
        target = scratch / file
        target.parent.mkdir(parents=True, exist_ok=True)
        write_new(target, content)
    return scratch / name


def _merge(
    pieces: Sequence[Path], out: Path, baseline: str | None, threshold: float | None, match: Match | None
) -> None:
    parts = [collect(piece) for piece in pieces]
    frozen, *others = [preregistration_of(piece) for piece in pieces]
    if any(other != frozen for other in others):
        raise UserError("--merge: pieces have other preregistrations; merge pieces of the same, or of none.")
    trials = _trials(parts)
    _check_rounds(parts)
    _check_settings(list(trials.values()))
    _check_tasks(list(trials.values()))
    examined_suites(list(trials.values()))
    for trial in trials.values():
        _ = trial.interfaces  # read only in reports; what does not fit must be refused before anything is written
    check_fixed(frozen, baseline, threshold, match)
    first = parts[0].manifest if frozen is None else frozen
    arms: dict[str, str] = {}
    for part in parts:
        for arm, about in part.manifest.arms.items():
            arms.setdefault(arm, about)
    seeds = tuple(sorted({seed for _, seed in trials}))
    planned = {arm: tuple(seed for seed in seeds if (arm, seed) in trials) for arm in arms}
    if baseline is not None and baseline not in arms:
        raise unknown_value("--baseline", baseline, list(arms))
    make_folder(out)
    if frozen is not None:
        frozen.save(out / NAME)
    for trial in trials.values():
        for name in READ:
            if (trial.folder / name).is_file():
                target = trial_folder(out, trial.arm, trial.seed) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                replace_file(target, read_bytes(trial.folder / name))
    ComparisonManifest(
        arms=arms,
        seeds=seeds,
        rounds=first.rounds,
        folder="",
        baseline=baseline or (first.baseline if first.baseline in arms else next(iter(arms))),
        threshold=first.threshold if threshold is None else threshold,
        match=match or first.match,
        merged=tuple(piece.resolve().name for piece in pieces),
        fewer_seeds={arm: own for arm, own in planned.items() if own != seeds},
    ).write(out)


def _trials(parts: Sequence[Comparison]) -> Mapping[tuple[str, int], ArmTrial]:
    """(arm, seed) → its trial, from the piece in which it has started."""
    trials: dict[tuple[str, int], ArmTrial] = {}
    for trial in (trial for part in parts for trial in part.trials):
        other = trials.get((trial.arm, trial.seed))
        if other is None or other.state is State.NOT_STARTED:
            trials[trial.arm, trial.seed] = trial
        elif trial.state is not State.NOT_STARTED:
            raise UserError(
                f"--merge: {trial.name} is in {_piece(other)} and in {_piece(trial)}; a trial is taken from one piece."
            )
    return trials


def _check_rounds(parts: Sequence[Comparison]) -> None:
    first, *others = parts
    for part in others:
        if part.manifest.rounds != first.manifest.rounds:
            raise UserError(
                f"--merge: {first.folder} has {first.manifest.rounds} rounds and {part.folder} has "
                f"{part.manifest.rounds}; pieces have the same."
            )


def _check_settings(trials: Sequence[ArmTrial]) -> None:
    """Raises `UserError` if an arm has different settings (but for the seed), or arms are not comparable."""
    firsts: dict[str, ArmTrial] = {}
    for trial in (each for each in trials if each.config):
        first = firsts.setdefault(trial.arm, trial)
        for name, (left, right) in differences(first.config, trial.config, places=False):
            raise UserError(
                f"--merge: {name} is {left!r:.80} in {first.name} of {_piece(first)} and {right!r:.80} in {trial.name} "
                f"of {_piece(trial)}; an arm has the same settings in all pieces, but for the seed and the place."
            )
    check_arms({arm: trial.config for arm, trial in firsts.items()})


def _check_tasks(trials: Sequence[ArmTrial]) -> None:
    """Raises `UserError` if evaluations that were recorded by task have different tasks."""
    evaluated = [(trial, _tasks(row)) for trial in trials for row in trial.evaluations]
    for trial, tasks in evaluated:
        first, expected = evaluated[0]
        if tasks != expected:
            raise UserError(
                f"--merge: {first.name} of {_piece(first)} and {trial.name} of {_piece(trial)} were evaluated on other "
                "tasks; pieces have the same."
            )


def _tasks(row: Row) -> set[tuple[str, str]]:
    suites = row["suites"].items()
    return {(suite, task) for suite, categories in suites for tasks in categories.values() for task in tasks}


def _piece(trial: ArmTrial) -> str:
    """The comparison of a trial, by its folder."""
    return str(trial.folder.parent.parent)


def initial_evaluations(piece: Path, arms: Mapping[str, Sections]) -> Mapping[str, Row]:
    """Arm → the evaluation of its model before training in a piece. `arms` has the settings of each arm.

    Raises:
        UserError: No trial of the piece has made an arm's evaluation with the same settings.
    """
    with TemporaryDirectory() as scratch:
        trials = collect(unpacked(piece, Path(scratch))).trials
        # A trial's settings are read on first use: before the scratch folder is removed.
        known = [(evaluation, trial.config) for trial in trials if (evaluation := initial_evaluation(trial))]
    if not known:
        raise UserError(f"--start: no trial of {piece} was evaluated before its training.")
    starts = {}
    for arm, settings in arms.items():
        unlike = [evaluation_differences(config, settings) for _, config in known]
        if all(unlike):
            name, (left, right) = unlike[-1][0]
            raise UserError(
                f"--start: {name} is {left!r:.80} in {piece} and {right!r:.80} in the arm {arm}; the evaluation before "
                "training is reused only with equal settings."
            )
        starts[arm], _ = known[unlike.index([])]
    return starts
