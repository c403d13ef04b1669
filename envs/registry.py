"""`Registry`: objects by name: built in, from an installed package, or `package.module:Name`."""

import os
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from envs.errors import UserError, note_on_jobs, unknown_value
from envs.trusting import prepare_import

T = TypeVar("T")


@cache
def installed(group: str) -> Mapping[str, str]:
    """Name → "module:attribute" of an entry point group. Read once per process, which takes some 6 ms."""
    return {point.name: point.value for point in entry_points(group=group)}


@dataclass(frozen=True)
class Registry(Generic[T]):
    """The objects that the setting `key` can name.

    Installed packages add names through the entry point `group`. `built_in` names ("module:attribute" by name) cannot
    be replaced, and are imported on first use. A name must never come from model text. `envs/trusting.py` decides
    whether a name from a file may be imported.
    """

    key: str
    group: str
    built_in: Mapping[str, str]
    _found: dict[str, T] = field(default_factory=dict, init=False, repr=False, compare=False)

    def names(self) -> list[str]:
        """The built-in names in their order, then those of installed packages."""
        return [*self.built_in, *sorted(set(installed(self.group)) - set(self.built_in))]

    def find(self, name: str) -> T:
        """The object of this name. Raises `UserError` if the name is unknown or its import fails."""
        if name not in self._found:
            self._found[name] = self._load(name)
        return self._found[name]

    def make(self, name: str, known: Mapping[str, Any] | None = None) -> Any:
        """The object of this name; for a class, an instance.

        A class with a pydantic model as its attribute `Settings` is made with one, whose values are taken from `known`
        that it has, else its defaults; other classes are made with nothing. Raises `UserError` for a value that does
        not fit.
        """
        registered: Any = self.find(name)
        if not isinstance(registered, type):
            return registered
        model: type[BaseModel] | None = getattr(registered, "Settings", None)
        if model is None:
            return registered()
        values = {key: value for key, value in (known or {}).items() if key in model.model_fields}
        try:
            return registered(model.model_validate(values))
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            where = ".".join(map(str, problem["loc"]))
            raise UserError(f"{self.key}: {name}: {where}: {problem['input']!r:.80}: {problem['msg']}.") from None

    def _load(self, name: str) -> T:
        path = self.built_in.get(name) or installed(self.group).get(name, name)
        if path == name and ":" not in name:
            raise unknown_value(self.key, name, self.names())
        if path == name:
            prepare_import(name, self.key)
        try:
            value: T = pkgutil.resolve_name(path)
        except Exception as error:  # noqa: BLE001 - a module of the user's can raise anything when it is imported
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            places = f" It was looked for in {os.getcwd()}, PYTHONPATH and the installed packages.{note_on_jobs()}"
            where = places if isinstance(error, ModuleNotFoundError) else ""
            raise UserError(f"{self.key}: {path!r:.120} cannot be imported ({reason:.160}).{where}") from None
        return value
