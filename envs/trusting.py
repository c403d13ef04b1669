"""Trust: whether code that a file names, or that came with a folder, may run. It is asked for, never assumed.

A command runs in `restricted`, in which only these names are imported: those on its command line, and those that the
user allowed. In other processes (a Python program that uses this package, workers of a command)
nothing is restricted: what they import was chosen by code, or checked by the command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path

from envs.errors import UserError
from envs.task import JSON
from envs.text import texts_in, visible

IMPORT_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?![\w./:@])")
"""`package.module:Name`, anywhere in a text."""

_RUN_FILES = ("comparison.yaml", "sweep.yaml", "mirror.json", "metrics.jsonl")
"""A folder that holds one of these is a run's, a comparison's or a sweep's."""


@dataclass
class _Trust:
    """What this process may import and load. `ask` puts a question to the user; None where nobody is there."""

    restricted: bool = False
    names: set[str] = field(default_factory=set)
    everything: bool = False
    ask: Callable[[str], bool] | None = None


_trust = _Trust()


@contextmanager
def restricted(words: Iterable[str], *, ask: Callable[[str], bool] | None = None) -> Iterator[None]:
    """Imports meanwhile only names that are in the words of a command line, or allowed later."""
    global _trust
    before = _trust
    _trust = _Trust(restricted=True, names={name for word in words for name in IMPORT_NAME.findall(word)}, ask=ask)
    try:
        yield
    finally:
        _trust = before


def trust_everything() -> None:
    """Takes `--trust` for an answer to every question of this process."""
    _trust.everything = True


def allow(names: Iterable[str]) -> None:
    """Lets these names be imported."""
    _trust.names.update(names)


def import_names(value: JSON) -> set[str]:
    """Every `package.module:Name` in the texts of a value that are names and no sentences, keys included."""
    return {name for text in texts_in(value) if " " not in text for name in IMPORT_NAME.findall(text)}


def untrusted(names: Collection[str]) -> list[str]:
    """The names that could not be imported now, sorted."""
    return sorted(set(names) - _trust.names) if _trust.restricted else []


def require_trust(what: str, where: str) -> None:
    """Returns if the user lets `what`, which comes from `where`, run. Raises `UserError` otherwise.

    `--trust` is a yes; else a terminal is asked.
    """
    if not _trust.restricted or _trust.everything:
        return
    what, where = visible(what), visible(where)
    if _trust.ask is None:
        raise UserError(f"{where} brings code that would run ({what}); look at it, and give --trust to let it run.")
    if not _trust.ask(f"{where} brings code that would run with your rights: {what}. Run it?"):
        raise UserError(f"{where} brings code ({what}), which is not trusted; nothing was run.")


def trust_names(value: JSON, where: Path, *, run: Path | None = None) -> None:
    """Allows the import names in a value that was read from a file, if the user lets them run.

    `run` is the folder of the run that the file belongs to; modules in it are refused. Raises `UserError`.
    """
    names = untrusted(import_names(value))
    if names:
        for name in names:
            check_not_in_a_run(name, run)
        require_trust(", ".join(names), str(where))
        allow(names)


def check_import(name: str) -> None:
    """Raises `UserError` for an import name that nobody allowed, or whose module lies in the folder of a run."""
    if untrusted([name]):
        raise UserError(f"{visible(name)[:120]} is Python code that a file names; it is not imported here.")
    if _trust.restricted:
        check_not_in_a_run(name)


def check_not_in_a_run(name: str, run: Path | None = None) -> None:
    """Raises `UserError` if the module of an import name is a file in the folder of a run. Nothing is imported."""
    for file in _files_of(name.partition(":")[0]):
        for folder in file.parents:
            if (run is not None and folder == run.resolve()) or any((folder / mark).is_file() for mark in _RUN_FILES):
                raise UserError(
                    f"{visible(name)[:120]} lies in {folder}, the folder of a run; code in it is never imported."
                )


def _files_of(module: str) -> Iterator[Path]:
    """The files of a module and of the packages around it, found without running any of them."""
    inside: list[str] | None = None
    parts = module.split(".")
    for number in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:number]), inside)
        if spec is None:
            return
        inside = list(spec.submodule_search_locations or ())
        yield from (Path(folder, "__init__.py").resolve() for folder in inside)
        if spec.has_location and spec.origin:
            yield Path(spec.origin).resolve()


def file_of(name: str) -> Path | None:
    """The file of an import name's module, found without running it; None if there is none."""
    return next(reversed(list(_files_of(name.partition(":")[0]))), None)


def config_folder() -> Path:
    """The user's own folder of settings. Import names in its files are the user's words."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "seal_ray"
