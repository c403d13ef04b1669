"""The fallback engine without vLLM: transformers' own forward pass over a running batch.

It has no prefix cache and no grammar. One worker thread owns the model; every decoding step, score and update is one
job of that thread, so that they never overlap and updates fall between two tokens.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

import torch

from policies.engine import BASE, Adapter, BadRequest, DeliveryError, EngineDead, EngineReport, GenRequest, GenResult
from policies.engine.adapters import check_adapter, copy_adapter
from policies.engine.requests import RequestChecker, check_shapes, checkpoint_shapes
from policies.engine.stored import StoredWeights, store
from policies.engine.transformers_batch import BatchRow, RunningBatch, Slot
from policies.engine.transformers_model import BASE_SLOT, ServedModel

T = TypeVar("T")

_SEEDS = 1 << 64
"""A generator takes seeds of 64 bits."""
_UNDELIVERED = "the last update did not arrive whole; update the weights or restart first."


@dataclass(frozen=True, slots=True)
class TransformersSettings:
    """The engine's settings. `context` counts prompt and response tokens together.

    It computes on a GPU if there is one. `threads` (on a CPU) None is torch's default.
    """

    model: Path
    context: int
    dtype: str = "float32"
    max_concurrent: int = 64
    max_lora_rank: int = 512
    threads: int | None = None


class TransformersEngine:
    """An `Engine` on Hugging Face transformers, made with `await TransformersEngine.start(settings)`."""

    def __init__(self, settings: TransformersSettings) -> None:
        self._settings = settings
        self._expected_shapes = checkpoint_shapes(settings.model)
        self._checker = RequestChecker.from_folder(settings.model, settings.context)
        self._last_weights: StoredWeights | None = None
        self._last_adapters: dict[str, Adapter] = {}
        self._versions = {BASE: 0}
        self._updating = asyncio.Lock()
        self._dead: str | None = "it is not started"
        self._undelivered = False
        self._thread: ThreadPoolExecutor | None = None

    @classmethod
    async def start(cls, settings: TransformersSettings) -> Self:
        """Loads the model; all work on it runs in a thread of the engine's own."""
        engine = cls(settings)
        await engine._launch()
        return engine

    async def generate(self, request: GenRequest) -> GenResult:
        self._checker.check(request, self._versions)
        if request.json_schema is not None:
            raise BadRequest("json_schema: this engine has no grammar; only the vLLM engine constrains its output.")
        self._check_ready()
        future: asyncio.Future[GenResult] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        self._queue.append((request, future))
        self._wake.set()
        return await future

    async def score(self, token_ids: tuple[int, ...], start: int, *, policy: str = BASE) -> tuple[float, ...]:
        self._checker.check_scored(token_ids, start, policy, self._versions)
        self._check_ready()
        return await self._in_thread(lambda: self._score(token_ids, start, policy))

    async def update_weights(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        check_shapes({name: tuple(tensor.shape) for name, tensor in weights.items()}, self._expected_shapes)
        stored = store(weights)
        async with self._updating:
            self._check_alive()
            await self._deliver(lambda: self._load(stored, version))
            self._last_weights, self._versions[BASE] = stored, version

    async def update_adapter(self, policy: str, adapter: Adapter, version: int) -> None:
        if policy == BASE:
            raise BadRequest(f"policy: {BASE!r} is the model itself; an adapter needs a name of its own.")
        self._check_alive()
        check_adapter(adapter, self.model.adaptable, self._settings.max_lora_rank)
        adapter = copy_adapter(adapter)
        async with self._updating:
            self._check_alive()
            if self._undelivered:
                raise DeliveryError(_UNDELIVERED)
            await self._deliver(lambda: self._load_adapter(policy, adapter, version))
            self._last_adapters[policy], self._versions[policy] = adapter, version

    async def sleep(self) -> None:
        """Does nothing: it keeps its memory."""

    async def restart(self) -> None:
        async with self._updating:
            await self.close()
            await self._launch()

    def report(self) -> EngineReport:
        settings = self._settings
        return EngineReport("transformers", str(settings.model), settings.dtype, dict(self._versions), settings.context)

    async def close(self) -> None:
        if self._thread is None:
            return
        self._server.cancel()
        await asyncio.wait([self._server])
        self._thread.shutdown()
        self._thread = None
        self._end("it is closed")

    async def _launch(self) -> None:
        self._queue: deque[tuple[GenRequest, asyncio.Future[GenResult]]] = deque()
        self._waiting: set[asyncio.Future[GenResult]] = set()
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "transformers-engine")
        self._undelivered = False
        await self._in_thread(self._build)
        self._dead = None
        self._server = asyncio.create_task(self._serve())
        self._server.add_done_callback(self._end_if_failed)

    async def _serve(self) -> None:
        while True:
            await self._wake.wait()
            for row in await self._in_thread(self._step):
                if not row.future.done():
                    row.future.set_result(row.result())
            if self._undelivered or not (self._queue or self.batch.rows):
                self._wake.clear()

    def _end_if_failed(self, server: asyncio.Task[None]) -> None:
        if not server.cancelled() and (error := server.exception()) is not None:
            self._end(f"its worker failed: {error!r}")

    def _end(self, reason: str) -> None:
        self._dead = reason
        self._fail_waiting(lambda: EngineDead(f"the engine cannot continue: {reason}"))

    def _fail_waiting(self, error: Callable[[], Exception]) -> None:
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(error())

    async def _in_thread(self, job: Callable[[], T]) -> T:
        if self._thread is None:
            raise EngineDead("the engine cannot continue: it is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)

    async def _deliver(self, load: Callable[[], None]) -> None:
        """Runs a delivery. If it fails, all waiting requests fail too: nothing is sampled until the next delivery."""
        try:
            await self._in_thread(load)
        except Exception as error:
            failure = error if isinstance(error, DeliveryError) else DeliveryError(f"the update failed: {error!r}")
            self._fail_waiting(lambda: DeliveryError(str(failure)))
            raise failure from error
        self._wake.set()  # the flag may have stopped the server meanwhile

    def _check_alive(self) -> None:
        if self._dead is not None:
            raise EngineDead(f"the engine cannot continue: {self._dead}")

    def _check_ready(self) -> None:
        self._check_alive()
        # During an update the flag is set, and the request waits for the worker thread.
        if self._undelivered and not self._updating.locked():
            raise DeliveryError(_UNDELIVERED)

    # The methods below run in the worker thread.

    def _build(self) -> None:
        settings = self._settings
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)  # of this thread, which does all the work
        self.model = ServedModel(settings.model, settings.dtype, "cuda" if torch.cuda.is_available() else "cpu")
        self.batch = RunningBatch(self.model)
        self._slots = {BASE: Slot(BASE_SLOT, self._versions[BASE])}
        if self._last_weights is not None:
            self._load(self._last_weights, self._versions[BASE])
        for policy, adapter in self._last_adapters.items():
            self._load_adapter(policy, adapter, self._versions[policy])

    def _step(self) -> list[BatchRow]:
        """Admits queued requests, samples one token for each running row, and returns the finished rows."""
        if self._undelivered:
            return []
        rows: list[BatchRow] = []
        while self._queue and len(self.batch.rows) + len(rows) < self._settings.max_concurrent:
            request, future = self._queue.popleft()
            noise = torch.Generator(self.model.device).manual_seed(request.seed % _SEEDS)
            if not future.done():
                rows.append(BatchRow(request, self._slots[request.policy], future, noise))
        self.batch.join(rows)
        self.batch.drop()  # requests that were cancelled
        if self.batch.rows:
            self.batch.advance()
        return self.batch.drop()

    @torch.inference_mode()
    def _score(self, token_ids: tuple[int, ...], start: int, policy: str) -> tuple[float, ...]:
        if self._undelivered:
            raise DeliveryError(_UNDELIVERED)
        ids_1T = torch.tensor([token_ids], device=self.model.device)
        keep = len(token_ids) - start + 1
        slot = self._slots[policy].name
        logits_1KV = self.model.forward(ids_1T, [slot], keep=keep, cache=None, mask_BT=torch.ones_like(ids_1T))
        logprobs_KV = logits_1KV[0, :-1].double().log_softmax(-1)
        return tuple(logprobs_KV.gather(1, ids_1T[0, start:, None])[:, 0].tolist())

    def _load(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        self._undelivered = True
        self.model.load(weights, version)
        self._slots[BASE].version = version
        self.batch.recompute()
        self._undelivered = False

    def _load_adapter(self, policy: str, adapter: Adapter, version: int) -> None:
        self._undelivered = True
        self._slots[policy] = Slot(self.model.add(adapter, version), version)
        self.model.keep_slots({slot.name for slot in (*self._slots.values(), *(row.slot for row in self.batch.rows))})
        self._undelivered = False
