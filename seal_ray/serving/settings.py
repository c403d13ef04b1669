"""What is served, and how much of it: the arguments of the Serve application, checked before anything is started."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from envs.errors import UserError, unknown_value
from policies import tiny
from policies.engine.adapters import CONFIG_FILE, TENSOR_FILE
from policies.engine.choice import DTYPES
from policies.model_folder import ModelFolder, open_model
from seal_ray.run.checkpoints import model_of

Count = Annotated[int, Field(ge=1)]

MAX_CONTEXT = 32_768
"""Default context in tokens, for models that have more."""


class ServingSettings(BaseModel):
    """The arguments of `seal_ray.serving.app:build`, in a config file of `serve deploy` and on the command line."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=())

    model: str = tiny.NAME
    """A Hugging Face model folder, the folder of a run, or "tiny"; the same path on every node."""
    name: str | None = None
    """The model's name in requests; None is the name of its folder."""
    adapters: dict[str, str] = Field(default_factory=dict)
    """LoRA adapters on top of it: what clients call each → its folder in PEFT's format."""
    dialect: str | None = None
    """How the model writes calls; None is what its architecture suggests."""
    dtype: str | None = None
    """What it computes in; None is bfloat16 on GPUs and float32 elsewhere."""
    context: Count | None = None
    """Tokens of prompt and answer together at most; None is the model's, 32,768 at most."""
    response: Count = 4_096
    """Tokens of an answer at most, whatever a client asks for, and no more than the context leaves."""
    concurrent: Count = 64
    """Requests that a replica works on at once."""
    replicas: Count = 1
    """Copies of the model, at least."""
    max_replicas: Count | None = None
    """Copies at most, under load; None keeps their number."""
    gpus: Annotated[int, Field(ge=0)] | None = None
    """GPUs of each copy; None is 1 where the cluster has any, and else 0."""
    max_request_mib: Count = 8
    """MiB of a request at most."""
    max_messages: Count = 8_192
    """Messages of a chat at most."""
    max_tools: Count = 256
    """Tools of a chat at most."""
    no_key: bool = False
    """Serves without authentication. Otherwise requests need a key (SEAL_RAY_API_KEY)."""

    @property
    def places(self) -> int:
        """Requests that all copies of the model work on at once."""
        return self.concurrent * max(self.replicas, self.max_replicas or 0)


@dataclass(frozen=True, slots=True)
class Served:
    """Settings made out: folders opened, names and limits known. `lora_rank` is the largest of the adapters'."""

    settings: ServingSettings
    folder: ModelFolder
    name: str
    context: int
    lora_rank: int


def make_out(settings: ServingSettings) -> Served:
    """Opens what the settings name. Raises `UserError` with one sentence for what cannot be served."""
    path = model_of(settings.model)
    folder = open_model(path, dialect=settings.dialect)
    name = settings.name or (folder.name if path == settings.model else Path(settings.model).resolve().name)
    # Ray Serve reads the part after a colon as an adapter, and uses the name for the deployment.
    for each in (name, *settings.adapters):
        if not each or ":" in each:
            raise UserError(f"name: {each!r} cannot be used; give a name without a colon.")
    if name in settings.adapters:
        raise UserError(f"adapter: {name!r} is the model's name; give the adapter another.")
    if settings.dtype is not None and settings.dtype not in DTYPES:
        raise unknown_value("dtype", settings.dtype, DTYPES)
    context = min(folder.context, MAX_CONTEXT) if settings.context is None else settings.context
    if context > folder.context:
        raise UserError(f"context: {context} is more than the model's {folder.context} tokens.")
    if settings.max_replicas is not None and settings.max_replicas < settings.replicas:
        raise UserError(f"max_replicas: {settings.max_replicas} is less than the {settings.replicas} at least.")
    ranks = [_rank(label, Path(adapter)) for label, adapter in settings.adapters.items()]
    return Served(settings, folder, name, context, max(ranks, default=0))


def _rank(name: str, folder: Path) -> int:
    if not (folder / TENSOR_FILE).is_file():
        raise UserError(f"adapter: {folder} of {name!r} has no {TENSOR_FILE}; give a folder in PEFT's format.")
    try:
        config: Any = json.loads((folder / CONFIG_FILE).read_text("utf-8"))
        rank = config["r"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"adapter: {folder / CONFIG_FILE} cannot be read ({error!r}).") from None
    if type(rank) is not int or rank < 1:
        raise UserError(f"adapter: {folder / CONFIG_FILE} says that r is {rank!r}; it is a whole number above 0.")
    return rank
