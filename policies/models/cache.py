"""The cache of models that are made on this machine."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from envs.errors import UserError

VARIABLE = "SEAL_RAY_CACHE"
"""Environment variable with the cache's folder; the default is seal_ray in the user's cache folder."""


def cache_folder() -> Path:
    """The folder of the cache."""
    own = os.environ.get(VARIABLE)
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seal_ray"


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """The cache's folder `name`, filled by `make` if it does not exist. It is complete or does not exist.

    One process makes it while the others on the machine wait. Raises `UserError` if the cache cannot be written.
    """
    from filelock import FileLock

    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f"{folder.name}.lock")):
            if not folder.is_dir():
                part = folder.with_name(f"{folder.name}.part")
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir()
                make(part)
                part.rename(folder)
    except OSError as error:
        if error.errno is None:  # `make` could not read what it needs
            raise
        raise UserError(
            f"model: the cache {folder.parent} cannot be written ({error.strerror or error}); set {VARIABLE} to a "
            "folder that can."
        ) from error
    return folder
