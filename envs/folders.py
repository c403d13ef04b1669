"""Folders that a user names."""

from __future__ import annotations

import os
from pathlib import Path

from envs.errors import UserError


def make_folder(folder: Path, option: str = "--out") -> None:
    """Makes the folder, and those above it, where they are not there. Raises `UserError` where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "is a file; give a folder" if os.path.isfile(folder) else f"cannot be made ({error.strerror or error})"
        raise UserError(f"{option}: {folder} {reason}.") from None
