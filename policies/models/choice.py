"""Which model a name means."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

from envs.errors import UserError
from envs.registry import Registry
from policies.models import hub
from policies.models.base import NamedModel
from policies.models.folder import ModelFolder, check_folder

MODELS: Registry[NamedModel] = Registry(
    "solver.model",
    "seal_ray.models",
    {
        "tiny": "policies.models.shipped:TINY",
        "tiny-rare": "policies.models.shipped:TINY_RARE",
        "tiny-writer": "policies.models.shipped:TINY_WRITER",
        "smollm2-135m": "policies.models.smollm2:SMOLLM2",
        "smollm2-135m-warm": "policies.models.adapted:SMOLLM2_WARM",
        "smollm2-135m-rare": "policies.models.adapted:SMOLLM2_RARE",
    },
)
"""Models with a name of their own: values with the method `folder`, which gives the Hugging Face folder."""


def open_model(name: str, *, dialect: str | None = None, weights: bool = True) -> ModelFolder:
    """The model of that name, a folder, or a model of the hub as OWNER/NAME or OWNER/NAME@REVISION, in this order.

    `dialect` overrules what the model suggests. Without `weights` a model will do of which the config alone is at hand:
    for what is computed from its sizes. Raises `UserError` with one sentence for a name that means nothing here, and
    for a folder that lacks a file or holds no model that calls tools in a known way.
    """
    if name in MODELS.names():
        return check_folder(MODELS.find(name).folder(), dialect=dialect, name=name)
    path = Path(name)
    if os.path.isdir(path):  # False for what is too long for a path
        return check_folder(path, dialect=dialect)
    if not hub.is_name(name):
        known = ", ".join(MODELS.names())
        raise UserError(
            f"model: {name!r} is no folder; give a Hugging Face model folder, a hub's OWNER/NAME, or one of {known}."
        )
    return check_folder(
        hub.folder_of(name) if weights else hub.config_of(name),
        dialect=dialect,
        name=hub.short_name(name),
        weights=weights,
        repository=hub.repository_of(name),
    )


def public_name(name: str) -> str:
    """What others find the model of that name by: without the place of a folder, and without a hub's revision."""
    if name not in MODELS.names() and not os.path.isdir(name) and hub.is_name(name):
        return hub.repository_of(name)
    return PurePath(name).name
