"""Folders that a user names."""

import os
from pathlib import Path

from envs.errors import UserError


def make_folder(folder: Path, option: str = "--out") -> None:
    """Creates the folder and its parents. Raises `UserError` if that fails."""
    check_no_file(folder, option)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{option}: {folder} cannot be made ({error.strerror or error}).") from None


def check_no_file(folder: Path, option: str = "--out") -> None:
    """Raises `UserError` if the path exists and is not a folder."""
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise UserError(f"{option}: {folder} is a file; give a folder.")
