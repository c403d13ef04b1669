"""The vLLM engine on tiny random models: exact tokens and log-probs, seeds, weight delivery, faults."""

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies.engine import BASE, DeliveryError, EngineDead, GenRequest, GenResult
from policies.engine.buckets import Bucket, SharedBuffer
from policies.engine.vllm_engine import VllmEngine, VllmSettings
from policies.engine.vllm_setup import prepare_environment, start_llm
from tests.policies.contract import PROMPT, EngineContract, check_alone_is_the_same, check_versions, mixed_requests
from tests.policies.models import greedy, random_qwen2
from tests.policies.served import Updated, like, load_any, update_in_buckets, weights_of

Base = Updated[VllmEngine]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Base]:
    """With an output layer of its own; models without one are in `test_vllm_adapters`."""
    folder = like(Path("untied"), tmp_path_factory.mktemp("models") / "untied", seed=0)
    settings = VllmSettings(
        folder,
        context=512,
        kv_cache_bytes=64 << 20,
        max_batched_tokens=256,
        worker_extension="tests.policies.sabotage.KeepsOneTensor",
    )
    served = Updated(folder, VllmEngine.start(settings))
    yield served
    served.close()


class TestContract(EngineContract):
    pass


def test_a_seed_gives_the_same_tokens_alone_and_among_63_others(served: Base) -> None:
    served.reset()
    requests = mixed_requests()
    check_alone_is_the_same(served, served.all(*requests), served.all(*reversed(requests))[::-1])


def test_logprobs_are_those_of_the_distribution_sampled_from(served: Base) -> None:
    import torch

    model = served.reset()
    result = served.one(GenRequest(PROMPT, max_tokens=8, temperature=0.5, seed=1))
    with torch.no_grad():
        logits = model(torch.tensor([[*PROMPT, *result.token_ids_T]])).logits[0] / 0.5
    expected = [float(logits[len(PROMPT) + i - 1].log_softmax(-1)[token]) for i, token in enumerate(result.token_ids_T)]
    assert result.sampled_logprobs_T == pytest.approx(expected, abs=1e-3)


def test_greedy_requests_share_no_cached_prefix_with_others(served: Base) -> None:
    """So that an evaluation leaves the rounds after it as they would be without it."""
    served.reset()
    for temperature in (0.0, 1.0, 0.5):
        request = GenRequest(PROMPT, max_tokens=1, temperature=temperature)
        assert (served.one(request).cached_tokens > 0) == (temperature == 0.5)
        assert served.one(request).cached_tokens > 0


def test_an_update_in_flight_keeps_requests_and_marks_their_tokens(served: Base, tmp_path: Path) -> None:
    """Tokens of each version are sampled from that version's weights, the kept request's past included."""
    old = served.reset(version=1)
    other = like(served.folder, tmp_path / "other", seed=60)
    requests = [GenRequest((*PROMPT, seed), max_tokens=400, seed=seed) for seed in range(4)]

    async def overtaken(seconds: float) -> list[GenResult]:
        running = [asyncio.create_task(served.engine.generate(request)) for request in requests]
        await asyncio.sleep(seconds)
        await served.engine.update_weights(weights_of(other), 2)
        return await asyncio.gather(*running)

    for seconds in (0.2, 0.4, 0.8, 1.6, 3.2):  # how much is done by then depends on the machine
        results = served.runner.run(overtaken(seconds))
        if {1, 2} == {version for result in results for version in result.versions_T}:
            break
        served.reset(version=1)
    assert {1, 2} == {version for result in results for version in result.versions_T}
    new = load_any(other)
    for request, result in zip(requests, results, strict=True):
        check_versions(old, new, request, result, within=1e-3)


def test_a_killed_core_is_noticed_and_a_restart_brings_the_weights_back(
    served: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The core that is started then ends before it is ready, and another is started; two who ask for one get one."""
    from vllm.v1.engine.utils import CoreEngineProcManager

    started: list[CoreEngineProcManager] = []
    start = CoreEngineProcManager.__init__

    def ends(self: CoreEngineProcManager, *args: Any, **settings: Any) -> None:
        start(self, *args, **settings)
        started.append(self)
        if len(started) == 1:
            self.processes[0].kill()

    monkeypatch.setattr(CoreEngineProcManager, "__init__", ends)
    served.update(like(served.folder, tmp_path / "new", seed=77), 9)
    request = GenRequest(PROMPT, max_tokens=64, seed=4)
    before = served.one(request)
    for process in served.engine.processes():
        os.kill(process, signal.SIGKILL)
    with pytest.raises(EngineDead):
        served.one(request)

    async def restart() -> None:
        await asyncio.gather(served.engine.restart(), served.engine.restart())

    served.runner.run(restart())
    after = served.one(request)
    assert after.token_ids_T == before.token_ids_T
    assert after.versions_T == before.versions_T == (9,) * 64
    assert len(started) == 2
    assert "started once more" in caplog.text


def test_the_cores_environment_has_its_threads_and_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes their number from the environment that it is started in."""
    from vllm.v1.engine.async_llm import AsyncLLM

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(AsyncLLM, "from_engine_args", lambda _: os.environ["OMP_NUM_THREADS"])
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "0")
    prepare_environment(None, batch_invariant=True)
    assert os.environ["VLLM_BATCH_INVARIANT"] == "1"
    folder = random_qwen2(tmp_path / "model", seed=0)
    for threads, wanted in ((None, "1"), (2, "2")):
        assert start_llm(VllmSettings(folder, context=64, threads=threads), adapter_slots=1, shapes={}) == wanted


def test_a_request_during_an_update_waits_for_it(served: Base, tmp_path: Path) -> None:
    new = weights_of(like(served.folder, tmp_path / "new", seed=51))

    async def ask_meanwhile() -> GenResult:
        update = asyncio.create_task(served.engine.update_weights(new, 11))
        while not served.engine.undelivered:
            assert not update.done()
            await asyncio.sleep(0.001)
        result = await served.engine.generate(GenRequest(PROMPT, max_tokens=2))
        await update
        return result

    assert set(served.runner.run(ask_meanwhile()).versions_T) == {11}


STALE = (
    *("model.embed_tokens.weight", "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.q_proj.bias"),
    *("model.layers.1.mlp.up_proj.weight", "model.norm.weight", "lm_head.weight"),
)


def test_one_stale_tensor_is_a_delivery_error(served: Base, tmp_path: Path) -> None:
    served.reset()
    old, new = weights_of(served.folder), weights_of(like(served.folder, tmp_path / "new", seed=50))

    def keep(name: str) -> None:
        path = str(served.folder / "model.safetensors")
        served.runner.run(served.engine.llm.collective_rpc("keep_tensor", args=(path, name)))

    for name in STALE:
        keep(name)
        # All but the one tensor arrives; a difference in its last bits is enough.
        update = {**new, name: old[name] * (1 + 1e-6)}
        with pytest.raises(DeliveryError, match="does not compute with version 3"):
            served.runner.run(served.engine.update_weights(update, 3))
        with pytest.raises(DeliveryError, match="restart"):
            served.one(GenRequest(PROMPT, max_tokens=1))
    keep("")
    served.runner.run(served.engine.update_weights(new, 4))
    assert set(served.one(GenRequest(PROMPT, max_tokens=2)).versions_T) == {4}


def test_buckets_bring_all_weights_and_nothing_is_sampled_before_the_last(served: Base, tmp_path: Path) -> None:
    new = like(served.folder, tmp_path / "new", seed=52)
    for limit in (1, 1 << 30):
        served.reset()
        update_in_buckets(served, new, 5, limit=limit)
        result = served.one(GenRequest(PROMPT, max_tokens=12, temperature=0.0))
        assert list(result.token_ids_T) == greedy(load_any(new), PROMPT, 12)
        assert set(result.versions_T) == {5}
        assert result.cached_tokens == 0
    other, engine = weights_of(like(served.folder, tmp_path / "other", seed=53)), served.engine
    tensors = {name: other[name] for name in ("model.norm.weight", "lm_head.weight")}
    shared = SharedBuffer(tensors)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    bucket = Bucket(shapes, "float32", shared.checksum, {}, is_last=False)
    served.runner.run(engine.update_bucket(bucket, [shared.handle], 6))
    assert engine.report().versions == {BASE: 5}
    for wrong, message in (
        (replace(bucket, checksum=shared.checksum + 1), "does not hold the weights that were sent"),
        (replace(bucket, is_last=True), "version 6 lacks model.embed_tokens.weight, "),
    ):
        with pytest.raises(DeliveryError, match="restart"):
            served.one(GenRequest(PROMPT, max_tokens=1))
        with pytest.raises(DeliveryError, match=message):
            served.runner.run(engine.update_bucket(wrong, [shared.handle], 6))
    served.reset(7)
