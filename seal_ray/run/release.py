"""A run's solver as a folder to hand on: the newest checkpoint's model or adapter, with a model card."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from envs.errors import UserError
from seal_ray.report.run_folder import RunFolder
from seal_ray.run import checkpoints
from seal_ray.run.model_card import model_card

_CARD = "README.md"
_LEFT_OUT = {"recipe.json", _CARD}
"""Files that describe how the base model was made."""
_WEIGHTS = (".safetensors", ".safetensors.index.json")
_ONLY_MODELS = {"config.json", "generation_config.json"}


@dataclass(frozen=True, slots=True)
class Release:
    """What was written: an adapter or a whole model, as the run had it after so many rounds."""

    round: int
    adapter: bool


def release(path: Path, out: Path, *, merge: bool = False) -> Release:
    """Writes the solver of a run, or of one of its checkpoints, to a new folder: all of it or nothing.

    A run that trained a LoRA adapter gives the adapter, or with `merge` the model with it added. The tensors are those
    of the checkpoint, bit by bit. Raises `UserError` where there is nothing to write, or it cannot be written.
    """
    run, checkpoint = _find(path)
    if out.exists() or out.is_symlink():
        raise UserError(f"--out: {out} exists; give a folder that does not.")
    folder = RunFolder(run)
    config = folder.read_config()
    number = checkpoints.round_of(checkpoint)
    rows = [row for row in folder.metrics.rows() if row.get("round", 0) <= number]
    trained_adapter = bool(config.get("solver", {}).get("lora_rank"))
    as_adapter = trained_adapter and not merge
    adapter = checkpoint / checkpoints.ADAPTER
    if as_adapter and not adapter.is_dir():
        raise UserError(f"{checkpoint} holds no adapter; give --merge for the whole model.")
    card = model_card(config, rows, name=out.resolve().name, rounds=number, adapter=as_adapter)
    part = out.with_name(f"{out.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for file in sorted((checkpoint / checkpoints.MODEL).iterdir()):
            needed = not as_adapter or not (file.name.endswith(_WEIGHTS) or file.name in _ONLY_MODELS)
            if file.is_file() and needed and file.name not in _LEFT_OUT:
                shutil.copyfile(file, part / file.name)
        if as_adapter:
            shutil.copytree(adapter, part, dirs_exist_ok=True)
        (part / _CARD).write_text(card, encoding="utf-8")
        part.rename(out)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise UserError(f"--out: {out} cannot be written ({error.strerror or error}).") from None
    return Release(number, as_adapter)


def _find(path: Path) -> tuple[Path, Path]:
    """The run and the checkpoint at a path."""
    if (path / "config.yaml").is_file():
        return path, checkpoints.newest(path)
    whole = path.resolve()
    if whole in checkpoints.stored(whole.parent) and (whole.parent.parent / "config.yaml").is_file():
        return whole.parent.parent, whole
    raise UserError(f"run: {path} is no run; give a folder that seal-ray train has made, or one of its checkpoints.")
