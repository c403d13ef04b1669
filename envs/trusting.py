"""Trust: whether code that a file names, or that came with a folder, may run. The user decides.

A command runs in `restricted`: only names on its command line, and names that the user allowed, are imported. Other
processes are not restricted: their imports come from code, or the command has checked them.
"""

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path

from envs.errors import UserError
from envs.task import JSON
from envs.text import texts_in, visible

IMPORT_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?![\w./@])")
"""`package.module:Name`, anywhere in a text; the only form that is imported."""
_NAMES = re.compile(f"(?=({IMPORT_NAME.pattern}))")
"""Overlapping matches: of `a:b:c` both are names."""

_RUN_FILES = ("comparison.yaml", "sweep.yaml", "mirror.json", "metrics.jsonl")
"""A folder with one of these belongs to a run, a comparison or a sweep."""


@dataclass
class _Trust:
    """What this process may import and load. `ask` questions the user; None without a terminal."""

    restricted: bool = False
    names: set[str] = field(default_factory=set)
    everything: bool = False
    ask: Callable[[str], bool] | None = None


_trust = _Trust()


@contextmanager
def restricted(words: Iterable[str], *, ask: Callable[[str], bool] | None = None) -> Iterator[None]:
    """Within it, only names in the words of a command line, or allowed later, are imported.

    A word that contains a slash, or names something in the working directory, is a path and no name.
    """
    global _trust
    before = _trust
    parts = (part for word in words for part in word.split("=") if os.sep not in part and not os.path.lexists(part))
    _trust = _Trust(restricted=True, names={name for part in parts for name in _NAMES.findall(part)}, ask=ask)
    try:
        yield
    finally:
        _trust = before


def trust_everything() -> None:
    """Answers all later questions of this process with yes (`--trust`)."""
    _trust.everything = True


def allow(names: Iterable[str]) -> None:
    _trust.names.update(names)


def import_names(value: JSON) -> set[str]:
    """Every `package.module:Name` in the texts of a value, keys included."""
    return {name for text in texts_in(value) for name in _NAMES.findall(text)}


def untrusted(names: Collection[str]) -> list[str]:
    """The names that may not be imported now, sorted."""
    return sorted(set(names) - _trust.names) if _trust.restricted else []


def require_trust(what: str, where: str) -> None:
    """Raises `UserError` unless the user lets `what`, which comes from `where`, run."""
    if not _trust.restricted or _trust.everything:
        return
    what, where = visible(what), visible(where)
    if _trust.ask is None:
        raise UserError(f"{where} brings code that would run ({what}); look at it, and give --trust to let it run.")
    if not _trust.ask(f"{where} brings code that would run with your rights: {what}. Run it?"):
        raise UserError(f"{where} brings code ({what}), which is not trusted; nothing was run.")


def trust_names(value: JSON, where: Path, *, run: Path | None = None) -> None:
    """Allows the import names in a value from a file, if the user agrees. Raises `UserError`.

    `run` is the folder of the run that the file belongs to; modules in it are refused.
    """
    names = untrusted(import_names(value))
    if names:
        for name in names:
            check_not_in_a_run(name, run)
        require_trust(", ".join(names), str(where))
        allow(names)


def prepare_import(name: str, key: str) -> None:
    """Checks that a name may be imported, and makes the working directory importable if only that has it.

    Raises `UserError`, which names the setting `key`, for a malformed name, a name without permission, and a module in
    the folder of a run.
    """
    if not IMPORT_NAME.fullmatch(name):
        raise UserError(f"{key}: {name!r:.120} is no name of Python code; write package.module:Name.")
    if untrusted([name]):
        raise UserError(f"{key}: {name:.120} is Python code that a file names; it is not imported here.")
    if _trust.restricted:
        check_not_in_a_run(name)
    if _is_here(name) and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def imports_here() -> bool:
    """Whether code in the working directory may be imported: in a command only if an allowed name is there."""
    return not _trust.restricted or any(map(_is_here, _trust.names))


def _is_here(name: str) -> bool:
    """Whether a name's module is in the working directory and nowhere else."""
    module, here = name.partition(":")[0].partition(".")[0], os.getcwd()
    elsewhere = [place for place in sys.path if place not in ("", here)]
    return PathFinder.find_spec(module, elsewhere) is None and PathFinder.find_spec(module, [here]) is not None


def check_not_in_a_run(name: str, run: Path | None = None) -> None:
    """Raises `UserError` if the module of an import name is in the folder of a run. Nothing is imported."""
    for file in _files_of(name.partition(":")[0]):
        for folder in file.parents:
            if (run is not None and folder == run.resolve()) or any((folder / mark).is_file() for mark in _RUN_FILES):
                raise UserError(
                    f"{visible(name)[:120]} lies in {folder}, the folder of a run; code in it is never imported."
                )


def _files_of(module: str) -> Iterator[Path]:
    """The files of a module and of its packages, without running any of them."""
    inside = [*sys.path, os.getcwd()]
    for part in module.split("."):
        spec = PathFinder.find_spec(part, inside)  # of a folder without __init__.py the whole name needs its parent
        if spec is None:
            return
        inside = list(spec.submodule_search_locations or ())
        yield from (Path(folder, "__init__.py").resolve() for folder in inside)
        if spec.has_location and spec.origin:
            yield Path(spec.origin).resolve()


def file_of(name: str) -> Path | None:
    """The file of an import name's module, without running it; None if there is none."""
    return next(reversed(list(_files_of(name.partition(":")[0]))), None)


def config_folder() -> Path:
    """The user's own folder of settings. Import names in its files count as given by the user."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "seal_ray"
