"""Which folder a command works in: a new one, or that of trials to go on with or to report on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from envs.errors import UserError


def check_alone(resume: str | None, report: Path | None, others: Sequence[object]) -> None:
    """Raises `UserError` where `--resume` or `--report` stands beside each other, or beside an option that is given."""
    if (resume or report) and (any(each is not None for each in others) or (resume and report)):
        raise UserError(f"{'--resume' if resume else '--report'}: it goes on with its own settings; give no others.")


def new_folder(out: Path | None, name: str | None, runs: Path, *, prefix: str) -> Path:
    """The folder for new trials, named by the time where neither it nor a name is given. Raises `UserError`."""
    if out is not None and name is not None:
        raise UserError("--out: it is the folder, and --name that in --runs; give one of them.")
    folder = out or runs / (name or time.strftime(f"{prefix}-%Y%m%d-%H%M%S"))
    if folder.exists():
        raise UserError(f"{folder} exists; go on with --resume {folder}, or give another folder.")
    return folder
