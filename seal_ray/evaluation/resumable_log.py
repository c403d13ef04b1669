"""`ResumableLog`: the stored answers of an evaluation or exam in its folder, so that it can be resumed."""

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from envs.errors import UserError
from envs.folders import make_folder
from envs.received import opened, parse_json, read_text
from seal_ray.report.files import JsonLines, replace_file

T = TypeVar("T")

SETTINGS = "settings.json"


def claim_folder(folder: Path, file: str, settings: str, option: str, *, fresh: bool = False) -> None:
    """Reserves a folder for files of these settings, which it holds in a file; with `fresh`, they may replace others.

    Raises `UserError` if it holds anything else.
    """
    path = folder / file
    make_folder(folder, option)
    if path.is_file() and read_text(path) == settings:
        return
    if not fresh and any(folder.iterdir()):
        raise UserError(
            f"{option}: {folder} holds something else, or was made with other settings; give another folder."
        )
    path.parent.mkdir(exist_ok=True)
    replace_file(path, settings.encode("utf-8"))


class ResumableLog(Generic[T]):
    """A file of JSON lines, and the settings that its answers depend on. A line that a kill cut short is dropped.

    Args:
        path: The file of lines.
        settings: The settings, as JSON values.
        read: Reads an answer from a line's object, and returns its key too.
        what: The evaluation or exam, in error messages.
        fresh: Whether `open` throws away existing answers.

    Raises:
        UserError: The folder has other settings, and `fresh` is not set.
    """

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, Any],
        read: Callable[[dict[str, Any]], tuple[Hashable, T]],
        *,
        what: str,
        fresh: bool = False,
    ) -> None:
        self.lines = JsonLines(path, ascii=False)
        self.folder = path.parent
        self.settings_path = self.folder / SETTINGS
        self.fresh = fresh
        self._settings = json.dumps(settings, indent=1)
        self._read = read
        self._what = what
        if self.is_begun and not fresh and read_text(self.settings_path) != self._settings:
            raise UserError(
                f"--out: {self.folder} holds another {what}; give another folder, or --fresh to replace it."
            )

    @property
    def is_begun(self) -> bool:
        return self.settings_path.exists()

    def open(self) -> None:
        """Makes the folder ready for answers."""
        make_folder(self.folder)
        if self.fresh or not self.is_begun:
            self.clear()
            replace_file(self.settings_path, self._settings.encode())

    def clear(self) -> None:
        """Removes the answers."""
        self.lines.path.unlink(missing_ok=True)

    def answers(self) -> dict[Any, T]:
        """The stored answers by their keys. Raises `UserError` if the file holds something else."""
        try:
            return dict(map(self._read, self.rows()))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"--out: {self.lines.path} holds a line of no {self._what} ({error}); give another folder, or --fresh."
            ) from error

    def rows(self) -> Iterable[dict[str, Any]]:
        """The objects of the lines."""
        if self.lines.path.exists():
            with opened(self.lines.path) as file:
                yield from (parse_json(line) for line in file if line.endswith(b"\n"))

    def append(self, row: Mapping[str, Any]) -> T:
        """Stores a line and returns its answer."""
        self.lines.append(row)
        return self._read(dict(row))[1]
