"""The specifications that a run has recorded, by window, for the task writer `shuffled` to write again."""

import math
from pathlib import Path

from pydantic import BaseModel

from envs.errors import UserError
from seal_ray.config.presets import read_settings
from seal_ray.config.resolve import RunSpec
from seal_ray.config.schema import RecordedTaskWriterSection
from seal_ray.report.files import read_windows

SEED = "{seed}"
"""Placeholder for a run's own seed in the name of the folder."""


class _Draft(BaseModel, strict=True):
    specification: str | None


class _Window(BaseModel, strict=True):
    """A row of `drafts.jsonl`."""

    round: int
    drafts: list[_Draft]


def recorded_windows(spec: RunSpec, *, seed: int | None = None) -> list[list[str | None]]:
    """Window → its recorded texts, None for an unreadable one, for as many windows as this run has.

    `seed` replaces the run's seed. Empty if the task writer does not repeat a run. Raises `UserError` if the recorded
    run does not match.
    """
    section = spec.task_writer
    if not isinstance(section, RecordedTaskWriterSection):
        return []
    if section.recorded is None:
        raise UserError(f"task_writer.recorded: {section.kind} needs the folder of a run in which a model wrote tasks.")
    path = Path(section.recorded.replace(SEED, str(spec.seed if seed is None else seed)))
    if not ((path / "config.yaml").is_file() and (path / "drafts.jsonl").is_file()):
        raise UserError(f"task_writer.recorded: {str(path)!r:.200} is no folder of a run in which tasks were written.")
    own = read_settings(path / "config.yaml").get("task_writer", {})
    length = own.get("update_every", RecordedTaskWriterSection().update_every)
    if length != section.update_every:
        raise UserError(
            f"task_writer.update_every: {section.update_every}; set it to the {length} rounds of the windows of {path}."
        )
    windows: dict[int, list[str | None]] = {}
    for window in read_windows(path, "drafts.jsonl", _Window, "task writer"):
        windows[(window.round - 1) // length] = [draft.specification for draft in window.drafts]
    needed = math.ceil(spec.training.rounds / length)
    if needed < 2:
        raise UserError(f"training.rounds: {needed} window is too few to be shuffled; it takes 2.")
    missing = next((number for number in range(needed) if number not in windows), None)
    if missing is not None:
        raise UserError(f"task_writer.recorded: {path} has no window {missing + 1} of the {needed} that this run has.")
    recorded = [windows[number] for number in range(needed)]
    longest = max(map(len, recorded))
    if longest > section.specifications:
        raise UserError(
            f"task_writer.specifications: {section.specifications} is given, and a window of {path} has {longest}."
        )
    return recorded
