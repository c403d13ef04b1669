"""Sharded checkpoints without pickles, which could run code: PyTorch's files of tensors, described in JSON."""

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Size
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.storage import WriteResult
from torch.utils._pytree import tree_map_only

from envs.errors import UserError
from envs.received import MIB, read_json_object
from seal_ray.report.files import replace_file

DESCRIPTION = "shards.json"
"""Written last, so that a folder without it is incomplete."""
_MAX_BYTES = 256 * MIB
_DTYPES = {str(each).removeprefix("torch."): each for each in (torch.float32, torch.bfloat16, torch.float16)}


class ShardWriter(FileSystemWriter):
    """Writes each learner's part of the tensors, and the first learner's description of all parts."""

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Copies in the host's memory, which are written while the tensors change."""
        copied: dict[str, Any] = tree_map_only(
            torch.Tensor, lambda tensor: tensor.detach().to("cpu", copy=True), state_dict
        )
        return copied

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        tensors = {
            name: {
                "dtype": str(each.properties.dtype).removeprefix("torch."),
                "size": list(each.size),
                "chunks": [[list(chunk.offsets), list(chunk.sizes)] for chunk in each.chunks],
            }
            for name, each in metadata.state_dict_metadata.items()
            if isinstance(each, TensorStorageMetadata)
        }
        parts = [
            (
                *(each.index.fqn, None if each.index.offset is None else list(each.index.offset), each.index.index),
                *(each.storage_data.relative_path, each.storage_data.offset, each.storage_data.length),
            )
            for result in results
            for each in result
        ]
        replace_file(Path(self.path, DESCRIPTION), json.dumps({"tensors": tensors, "parts": parts}).encode())


class ShardReader(FileSystemReader):
    """Reads the parts in a folder. Raises `UserError` for an invalid description."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        path = self._folder / DESCRIPTION
        document = read_json_object(path, limit=_MAX_BYTES)
        try:
            tensors: dict[str, Any] = {name: _tensor(each) for name, each in document["tensors"].items()}
            parts = dict(_part(*each) for each in document["parts"])
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise UserError(f"{path} describes no sharded weights ({error!r:.200}).") from None
        return Metadata(tensors, storage_data=parts, storage_meta=StorageMeta(load_id=self.load_id))


def _tensor(each: Any) -> TensorStorageMetadata:
    chunks = [ChunkStorageMetadata(_size(offsets), _size(sizes)) for offsets, sizes in each["chunks"]]
    return TensorStorageMetadata(TensorProperties(_DTYPES[each["dtype"]]), _size(each["size"]), chunks)


def _part(
    name: str, offset: Sequence[int] | None, index: int | None, file: str, start: int, length: int
) -> tuple[MetadataIndex, _StorageInfo]:
    if PurePosixPath(file).name != file or min(start, length) < 0:
        raise ValueError("a part lies elsewhere")
    return MetadataIndex(name, None if offset is None else _size(offset), index), _StorageInfo(file, start, length)


def _size(numbers: Sequence[int]) -> Size:
    if not all(type(each) is int and each >= 0 for each in numbers):
        raise ValueError("a size is no list of whole numbers")
    return Size(numbers)
