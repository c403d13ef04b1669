"""The specifications that a run has recorded, by window, for the writer `shuffled` to write again."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from envs.errors import UserError
from policies.writer.choice import replays
from seal_ray.config import sections
from seal_ray.config.agents import Settings
from seal_ray.report.files import RunFolder

SEED = "{seed}"
"""What stands for a run's own seed in the name of the folder."""


def recorded_windows(config: Settings, *, seed: int | None = None) -> list[list[str | None]]:
    """Window → the texts that were written in it, None for one that could not be read; as many as this run has.

    `seed` is in the place of the settings' own. Empty where the writer does not replay a run. Raises `UserError` where
    the recorded run does not fit.
    """
    settings = config.section(sections.Writer)
    if not replays(settings.kind):
        return []
    if settings.recorded is None:
        raise UserError(f"writer.recorded: {settings.kind} needs the folder of a run in which a model wrote tasks.")
    path = Path(settings.recorded.replace(SEED, str(config.seed if seed is None else seed)))
    if not ((path / "config.yaml").is_file() and (path / "drafts.jsonl").is_file()):
        raise UserError(f"writer.recorded: {str(path)!r:.200} is no folder of a run in which tasks were written.")
    folder = RunFolder(path)
    length = _window_length(folder)
    if length != settings.update_every:
        raise UserError(
            f"writer.update_every: {settings.update_every} is given, and the windows of {path} have {length} rounds."
        )
    windows: dict[int, list[str | None]] = {}
    for row in folder.drafts.rows():
        try:
            windows[(_whole(row["round"]) - 1) // length] = [_text(each) for each in _list(row["drafts"])]
        except (KeyError, TypeError, AttributeError):
            raise UserError(f"{folder.drafts.path}: a row of it is no window of drafts.") from None
    needed = math.ceil(config.section(sections.Training).rounds / length)
    if needed < 2:
        raise UserError(f"training.rounds: {needed} window is too few to be shuffled; it takes 2.")
    missing = next((number for number in range(needed) if number not in windows), None)
    if missing is not None:
        raise UserError(f"writer.recorded: {path} has no window {missing + 1} of the {needed} that this run has.")
    found = [windows[number] for number in range(needed)]
    longest = max(map(len, found))
    if longest > settings.specifications:
        raise UserError(
            f"writer.specifications: {settings.specifications} is given, and a window of {path} has {longest}."
        )
    return found


def _window_length(folder: RunFolder) -> int:
    section: Any = folder.read_config().get("writer", {})
    length = section.get("update_every") if isinstance(section, dict) else None
    return length if type(length) is int and length > 0 else sections.Writer().update_every


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _text(draft: Any) -> str | None:
    text = draft["specification"]
    if text is not None and not isinstance(text, str):
        raise TypeError
    return text
