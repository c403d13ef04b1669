"""The state of an algorithm without pickles: `state.json` has plain values, `state.safetensors` tensors."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from envs.errors import UserError
from envs.received import MIB, read_json
from policies.models.writing import unshared

_VALUES, _TENSORS = "state.json", "state.safetensors"
_MAX_BYTES = 4096 * MIB
_OWN = "$"
"""First character of the key of an object for a type that JSON lacks."""


def write_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Writes a state to a new or existing folder. Raises `TypeError` for values of other types."""
    tensors: dict[str, torch.Tensor] = {}
    document = _encoded(state, tensors)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _VALUES).write_text(json.dumps(document, allow_nan=False), encoding="ascii")
    save_file(unshared(tensors), folder / _TENSORS)


def read_state(folder: Path) -> dict[str, Any]:
    """The state in a folder. Raises `UserError` if it cannot be read, such as a pickle of an earlier version."""
    if not (folder / _VALUES).is_file():
        raise UserError(f"{folder} has no {_VALUES}; checkpoints of earlier versions, which are pickles, are not read.")
    try:
        state = _decoded(read_json(folder / _VALUES, limit=_MAX_BYTES), load_file(folder / _TENSORS))
    except UserError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OSError, SafetensorError) as error:
        raise UserError(f"{folder} cannot be read as the state of a run ({error!r:.200}).") from None
    if not isinstance(state, dict):
        raise UserError(f"{folder} cannot be read as the state of a run.")
    return state


def _encoded(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    match value:
        case None | bool() | str():
            return value
        case np.generic():
            return _encoded(value.item(), tensors)
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else {f"{_OWN}float": repr(float(value))}
        case torch.Tensor():
            name = str(len(tensors))
            tensors[name] = value.detach()
            return {f"{_OWN}tensor": name}
        case np.ndarray():
            return {f"{_OWN}array": _encoded(torch.from_numpy(value), tensors)}
        case list():
            return [_encoded(item, tensors) for item in value]
        case tuple():
            return {f"{_OWN}tuple": [_encoded(item, tensors) for item in value]}
        case Mapping():
            if all(isinstance(key, str) and not key.startswith(_OWN) for key in value):
                return {key: _encoded(item, tensors) for key, item in value.items()}
            pairs = [[_encoded(key, tensors), _encoded(item, tensors)] for key, item in value.items()]
            return {f"{_OWN}dict": pairs}
    raise TypeError(f"{value!r:.80} is of type {type(value).__name__}, which a state cannot hold.")


def _decoded(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_decoded(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    key = next(iter(value), "")
    if not key.startswith(_OWN):
        return {key: _decoded(item, tensors) for key, item in value.items()}
    inside = value[key]
    match key.removeprefix(_OWN):
        case "float":
            return float(inside)
        case "tensor":
            return tensors[inside]
        case "array":
            return _decoded(inside, tensors).numpy()
        case "tuple":
            return tuple(_decoded(item, tensors) for item in inside)
        case "dict":
            return {_decoded(name, tensors): _decoded(item, tensors) for name, item in inside}
    raise ValueError(f"{key!r:.40} is unknown")
