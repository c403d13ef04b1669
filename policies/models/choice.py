"""Models by name."""

import os
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Protocol

from envs.errors import UserError, note_on_jobs
from envs.registry import Registry
from policies import tiny
from policies.models import hub
from policies.models.folder import ModelFolder, check_folder


class NamedModel(Protocol):
    """A model that a setting can name."""

    def folder(self) -> Path:
        """The Hugging Face model folder, made if needed. Raises `UserError` with the remedy if that is impossible."""


@dataclass(frozen=True, slots=True)
class ShippedModel:
    """A folder of this package."""

    path: Path

    def folder(self) -> Path:
        return self.path


TINY, TINY_RARE, TINY_WRITER, TINY_HIDDEN = map(ShippedModel, tiny.SHIPPED.values())

MODELS: Registry[NamedModel] = Registry(
    "solver.model",
    "seal_ray.models",
    {
        "tiny": "policies.models.choice:TINY",
        "tiny-rare": "policies.models.choice:TINY_RARE",
        "tiny-writer": "policies.models.choice:TINY_WRITER",
        "tiny-hidden": "policies.models.choice:TINY_HIDDEN",
        "smollm2-135m": "policies.models.smollm2:SMOLLM2",
        "smollm2-135m-warm": "policies.models.smollm2:SMOLLM2_WARM",
        "smollm2-135m-rare": "policies.models.smollm2:SMOLLM2_RARE",
    },
)
"""Models with a name: values with the method `folder`, which returns the Hugging Face folder."""


def open_model(name: str, *, dialect: str | None = None, weights: bool = True) -> ModelFolder:
    """Opens a named model, a folder, or a hub's OWNER/NAME or OWNER/NAME@REVISION, in this order.

    `dialect` overrules that which the model suggests. Without `weights` the config is enough, for computations of
    sizes. Raises `UserError` if the name is unknown, or the folder lacks a file or has no model that calls tools in a
    known way.
    """
    if name in MODELS.names():
        return check_folder(MODELS.find(name).folder(), dialect=dialect, name=name)
    path = Path(name)
    if os.path.isdir(path):  # False if the name is too long for a path
        return check_folder(path, dialect=dialect)
    if not hub.is_name(name):
        known = ", ".join(MODELS.names())
        raise UserError(
            f"model: {name!r} is no folder; give a Hugging Face model folder, a hub's OWNER/NAME, or one of {known}."
            f"{note_on_jobs()}"
        )
    folder = hub.folder_of(name) if weights else hub.config_of(name)
    repository = hub.repository_of(name)
    short = repository.rpartition("/")[2]
    return check_folder(folder, dialect=dialect, name=short, weights=weights, repository=repository)


def absolute_name(name: str, directory: str) -> str:
    """The name of a model; if `open_model` in `directory` takes it for a folder, the folder's absolute path."""
    folder = os.path.join(directory, name)
    return name if name in MODELS.names() or not os.path.isdir(folder) else os.path.abspath(folder)


def public_name(name: str) -> str:
    """The name of a model for others: without the path of a folder, and without a hub's revision."""
    if name not in MODELS.names() and not os.path.isdir(name) and hub.is_name(name):
        return hub.repository_of(name)
    return PurePath(name).name
