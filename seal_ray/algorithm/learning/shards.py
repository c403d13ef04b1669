"""Reading sharded checkpoints: nothing that others put in them is run.

PyTorch describes a sharded checkpoint in a pickle, `.metadata`, and loads it without limits. Here it is loaded with
the handful of types that a description of tensors consists of.
"""

from __future__ import annotations

import io
import pathlib
import pickle
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as forms
from torch.distributed.checkpoint.filesystem import FileSystemReader

from envs.errors import UserError
from envs.received import MIB, read_bytes

_TYPES = ("Metadata", "MetadataIndex", "StorageMeta", "TensorStorageMetadata", "ChunkStorageMetadata")
_INSIDE = ("TensorProperties", "_MEM_FORMAT_ENCODING")
_ALLOWED: dict[tuple[str, str], Any] = {
    **{(forms.__name__, name): getattr(forms, name) for name in (*_TYPES, *_INSIDE)},
    **{("torch", str(each).removeprefix("torch.")): each for each in (torch.float32, torch.bfloat16, torch.float16)},
    ("torch", "Size"): torch.Size,
    ("torch.serialization", "_get_layout"): lambda name: {"torch.strided": torch.strided}[name],
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): FileSystemReader.__init__.__globals__["_StorageInfo"],
    ("pathlib", "PosixPath"): pathlib.PurePosixPath,
}
_MAX_BYTES = 256 * MIB


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} describes no tensor")
        return _ALLOWED[module, name]


class ShardReader(FileSystemReader):
    """Reads the shards in a folder. Raises `UserError` for a description of anything else than tensors in its files."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        self._folder = folder

    def read_metadata(self, *_: Any, **__: Any) -> forms.Metadata:
        path = self._folder / ".metadata"
        try:
            found = _Unpickler(io.BytesIO(read_bytes(path, limit=_MAX_BYTES))).load()
            tensors = found.state_dict_metadata.values()
            if not all(type(each) is forms.TensorStorageMetadata for each in tensors):
                raise pickle.UnpicklingError("it has more than tensors")
            for part in found.storage_data.values():
                if pathlib.PurePosixPath(part.relative_path).name != part.relative_path:
                    raise pickle.UnpicklingError("a part lies elsewhere")
        except UserError:
            raise
        except Exception as error:  # noqa: BLE001 - a broken pickle raises anything
            raise UserError(f"{path} describes no sharded weights ({error!r:.200}).") from None
        found.storage_meta = forms.StorageMeta(load_id=self.load_id)
        assert isinstance(found, forms.Metadata)
        return found
