"""Where the installed `bfcl-eval` lies, and that it is the version this project was verified against.

Only data files and the eight simulator modules of that package are used. Importing its other modules has side effects
(result folders, lock files, seconds of imports), and its evaluators execute model text.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from functools import cache
from pathlib import Path

from envs.errors import UserError

VERSION = "2026.3.23"
"""The release whose 800 ground truths and result texts the tests compare with."""


@cache
def data_folder() -> Path:
    """The folder of BFCL's JSON data. Raises `UserError` where the package is missing or of another version."""
    advice = f"run `make setup`, or `pip install --no-deps bfcl-eval=={VERSION}`"
    try:
        found = importlib.metadata.version("bfcl-eval")
    except importlib.metadata.PackageNotFoundError:
        raise UserError(f"bfcl-eval: the package is not installed, version {VERSION} is needed; {advice}.") from None
    if found != VERSION:
        raise UserError(f"bfcl-eval: version {found} is installed, version {VERSION} is needed; {advice}.")
    spec = importlib.util.find_spec("bfcl_eval")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not folders:
        raise UserError(f"bfcl-eval: version {VERSION} is registered but its files are gone; {advice}.")
    return Path(folders[0]) / "data"
