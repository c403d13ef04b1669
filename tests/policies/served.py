"""An engine together with the event loop it lives on, for tests that are not asynchronous themselves."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from policies.engine import BASE, Adapter, Engine, GenRequest, GenResult
from policies.engine.buckets import Bucket, SharedBuffer, bucket_names
from policies.engine.requests import checkpoint_shapes
from policies.engine.vllm_engine import VllmEngine
from seal_ray.training.weights import DTYPES
from tests.policies.models import random_llama, random_qwen2

E = TypeVar("E", bound=Engine)


class Served(Generic[E]):
    """Starts the engine, runs requests together or alone, and ends it."""

    def __init__(self, starting: Coroutine[Any, Any, E]) -> None:
        self.runner = asyncio.Runner()
        self.engine = self.runner.run(starting)

    def all(self, *requests: GenRequest) -> list[GenResult]:
        async def together() -> list[GenResult]:
            return await asyncio.gather(*map(self.engine.generate, requests))

        return self.runner.run(together())

    def one(self, request: GenRequest) -> GenResult:
        (result,) = self.all(request)
        return result

    def score(self, token_ids: tuple[int, ...], start: int, policy: str = BASE) -> tuple[float, ...]:
        return self.runner.run(self.engine.score(token_ids, start, policy=policy))

    def close(self) -> None:
        self.runner.run(self.engine.close())
        self.runner.close()


def update_in_buckets(
    served: Served[VllmEngine],
    folder: Path,
    version: int,
    *,
    limit: int = 1,
    device: str = "cpu",
    dtype: str = "float32",
) -> None:
    """Updates the engine by buffers on its device, with a layer in each at most if the limit is 1."""
    weights = {name: tensor.to(device, DTYPES[dtype]) for name, tensor in weights_of(folder).items()}
    parts = bucket_names(checkpoint_shapes(folder), 4, limit)
    for names in parts:
        part = {name: weights[name] for name in names}
        shared = SharedBuffer(part)
        shapes = {name: tuple(tensor.shape) for name, tensor in part.items()}
        bucket = Bucket(shapes, dtype, shared.checksum, {}, is_last=names is parts[-1])
        served.runner.run(served.engine.update_bucket(bucket, [shared.handle], version))


class Updated(Served[E]):
    """An engine whose weights come from folders of random models, named tied, untied or llama."""

    def __init__(self, folder: Path, starting: Coroutine[Any, Any, E]) -> None:
        self.folder = folder
        super().__init__(starting)

    def update(self, folder: Path, version: int) -> None:
        self.runner.run(self.engine.update_weights(weights_of(folder), version))

    def reset(self, version: int = 0) -> Any:
        """Gives the engine the weights of its own folder again, and returns that model."""
        self.update(self.folder, version)
        return load_any(self.folder)


class VllmServed(Updated[VllmEngine]):
    """vLLM with adapters, and calls to its workers."""

    def adapt(self, policy: str, adapter: Adapter, version: int) -> None:
        self.runner.run(self.engine.update_adapter(policy, adapter, version))

    def call_workers(self, method: str, *arguments: str) -> list[Any]:
        answers: list[Any] = self.runner.run(self.engine.llm.collective_rpc(method, args=arguments))
        return answers


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def load_any(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def like(folder: Path, new: Path, *, seed: int) -> Path:
    """Another random model of the same architecture."""
    if folder.name == "llama":
        return random_llama(new, seed=seed)
    return random_qwen2(new, seed=seed, tied=folder.name == "tied")
