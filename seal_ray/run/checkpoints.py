"""The checkpoints of a run: atomic writing, the newest one, removal of old ones and of their states."""

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from envs.errors import UserError
from seal_ray.report.files import note_on_runs

if TYPE_CHECKING:
    from policies.models import ModelFolder

_NAME = re.compile(r"round_(\d{6,})")
PART = ".part"
STATE = "algorithm"
MODEL, ADAPTER = "model", "adapter"
"""Folders of a checkpoint: the solver, and in a run with LoRA its adapter."""


def keep(part: Path, *, most: int) -> Path:
    """Makes a checkpoint of the result of `write_checkpoint`, and removes all but the newest `most`."""
    whole = part.with_name(part.name.removesuffix(PART))
    shutil.rmtree(whole, ignore_errors=True)
    part.replace(whole)
    for path in stored(whole.parent)[:-most]:
        shutil.rmtree(path)
    return whole


def remove_older_states(checkpoints: Path) -> None:
    """Removes the states of all but the newest checkpoint, once its files are on the disk; models stay.

    This blocks for a checkpoint that was just written, and not some rounds later.
    """
    *older, newest = stored(checkpoints) or [checkpoints]
    for file in newest.rglob("*"):
        if older and file.is_file():
            with file.open("rb") as opened:
                os.fsync(opened)
    for path in older:
        gone = path / f"{STATE}{PART}"
        if (path / STATE).exists():
            (path / STATE).rename(gone)  # a kill leaves no half of it
        shutil.rmtree(gone, ignore_errors=True)


def stored(checkpoints: Path) -> list[Path]:
    """The complete checkpoints in a folder, oldest first."""
    if not checkpoints.is_dir():
        return []
    return sorted((path for path in checkpoints.iterdir() if _NAME.fullmatch(path.name)), key=round_of)


def round_of(checkpoint: Path) -> int:
    """The number of rounds before the checkpoint."""
    match = _NAME.fullmatch(checkpoint.name)
    assert match is not None, "`stored` selects by this name"
    return int(match[1])


def run_of(path: Path) -> Path:
    """The run of a checkpoint; any other path unchanged."""
    whole = path.resolve()
    return whole.parent.parent if whole in stored(whole.parent) else path


def newest(run: Path) -> Path:
    """The newest checkpoint of a run. Raises `UserError` if it has none."""
    checkpoints = stored(run / "checkpoints")
    if not checkpoints:
        raise UserError(f"run: {run} has no checkpoint.")
    return checkpoints[-1]


def check_state(checkpoint: Path) -> None:
    """Raises `UserError` for a checkpoint without the state to resume from."""
    if not (checkpoint / STATE).is_dir():
        raise UserError(
            f"--resume: {checkpoint} has a model but no optimizer state, which only the newest checkpoint of a run "
            f"keeps; start a new run from its model with solver.model={checkpoint / MODEL}."
        )


def model_of(name: str) -> str:
    """The model folder of a run's newest checkpoint, or of a checkpoint; any other name unchanged.

    Raises `UserError` for a run without a checkpoint, a comparison, and a name next to which there is a similar folder.
    """
    path = Path(name)
    if os.path.isfile(path / MODEL / "config.json"):  # False for names that are too long for a path
        return str(path / MODEL)
    if os.path.isdir(path / "checkpoints"):
        return str(newest(path) / MODEL)
    if (os.path.isdir(path) or os.sep in name) and (note := note_on_runs(path)):  # else it can be a model's name
        raise UserError(f"model: {name} is no run and no model.{note}")
    return name


def name_of(name: str, opened: "ModelFolder") -> str:
    """The display name of an opened model; a run or checkpoint has the name of its folder."""
    return opened.name if model_of(name) == name else Path(name).resolve().name
