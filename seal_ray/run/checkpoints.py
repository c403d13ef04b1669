"""The checkpoints of a run: written whole or not at all, the newest found again, old ones removed."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from envs.errors import UserError
from seal_ray.report.files import RunFolder

if TYPE_CHECKING:
    from policies.models import ModelFolder
    from seal_ray.algorithm.seal import Seal

_NAME = re.compile(r"round_(\d{6,})")
_PART = ".part"
_STATE = "algorithm"
MODEL, ADAPTER = "model", "adapter"
"""Folders of a checkpoint: the solver, and in a run with LoRA its adapter alone."""


def write(algorithm: Seal, folder: RunFolder) -> Path:
    """Writes the algorithm's state, and the solver as a model folder (and as its adapter), under a name of its own.

    It becomes a checkpoint with `keep`. What belongs to its rounds is written down between the two: a kill before then
    leaves the checkpoint before, from which these rounds are played again.
    """
    from seal_ray.run.export import export_adapter, export_model  # PyTorch, which finding checkpoints does without

    part = folder.checkpoints / f"round_{algorithm.round:06d}{_PART}"
    shutil.rmtree(part, ignore_errors=True)
    algorithm.save_to_path(str((part / _STATE).resolve()))
    solver = algorithm.solver
    weights, rank, alpha = solver.weights(), solver.spec.lora_rank, solver.spec.lora_alpha
    export_model(solver.model, weights, part / MODEL, dtype=solver.engine_dtype, rank=rank, alpha=alpha)
    if rank:
        export_adapter(solver.model, weights, part / ADAPTER, rank=rank, alpha=alpha)
    return part


def keep(part: Path, *, most: int) -> Path:
    """Makes a checkpoint of what `write` has written, and removes all but the newest `most`."""
    whole = part.with_name(part.name.removesuffix(_PART))
    shutil.rmtree(whole, ignore_errors=True)
    part.replace(whole)
    for path in stored(whole.parent)[:-most]:
        shutil.rmtree(path)
    return whole


def stored(checkpoints: Path) -> list[Path]:
    """The whole checkpoints in a folder, oldest first."""
    if not checkpoints.is_dir():
        return []
    return sorted(
        (path for path in checkpoints.iterdir() if _NAME.fullmatch(path.name)), key=lambda path: round_of(path)
    )


def round_of(checkpoint: Path) -> int:
    """The rounds finished when it was written."""
    match = _NAME.fullmatch(checkpoint.name)
    assert match is not None, "it was found by this name"
    return int(match[1])


def run_of(path: Path) -> Path:
    """The run that a checkpoint belongs to; of any other path the path."""
    whole = path.resolve()
    return whole.parent.parent if whole in stored(whole.parent) else path


def newest(run: Path) -> Path:
    """The newest checkpoint of a run. Raises `UserError` where there is none."""
    found = stored(run / "checkpoints")
    if not found:
        raise UserError(f"run: {run} has no checkpoint to go on from.")
    return found[-1]


def restore(algorithm: Seal, checkpoint: Path) -> None:
    algorithm.restore_from_path(str((checkpoint / _STATE).resolve()))


def model_of(name: str) -> str:
    """The model folder of a run's newest checkpoint, or of a checkpoint; for any other name, the name."""
    path = Path(name)
    if os.path.isfile(path / MODEL / "config.json"):  # False for what is too long for a path
        return str(path / MODEL)
    if os.path.isdir(path / "checkpoints"):
        return str(newest(path) / MODEL)
    return name


def name_of(named: str, opened: ModelFolder) -> str:
    """What a model is called that somebody named and that was opened: a run or checkpoint by its folder."""
    return opened.name if model_of(named) == named else Path(named).resolve().name
