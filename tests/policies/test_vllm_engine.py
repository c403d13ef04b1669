"""The vLLM engine on tiny random models: exact tokens and log-probs, seeds, weight delivery, faults."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from policies.engine import BadRequest, DeliveryError, EngineDead, Finish, GenRequest, GenResult
from policies.engine.vllm_engine import VllmEngine, VllmSettings
from policies.engine.vllm_setup import start_llm
from tests.policies.contract import (
    PROMPT,
    check_a_stop_token_ends_the_completion_and_is_kept,
    check_alone_is_as_among_others,
)
from tests.policies.models import VOCABULARY, greedy, load, logprobs_of, random_qwen2
from tests.policies.served import Served

Base = Served[VllmEngine]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {
        "tied": random_qwen2(root / "tied", seed=0),
        "untied": random_qwen2(root / "untied", seed=1, tied=False),
        "next": random_qwen2(root / "next", seed=2),
    }


@pytest.fixture(scope="module", params=["tied", "untied"])
def served(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Iterator[Base]:
    settings = VllmSettings(
        folders[request.param],
        context=512,
        kv_cache_bytes=64 << 20,
        max_batched_tokens=256,
        worker_extension="tests.policies.sabotage.KeepsOneTensor",
    )
    served = Served(VllmEngine.start(settings))
    yield served
    served.close()


def reset(served: Base, version: int = 0) -> Path:
    """Gives the engine the weights of its own folder again."""
    folder = Path(served.engine.report().model)
    served.runner.run(served.engine.update_weights(load_file(folder / "model.safetensors"), version))
    return folder


def test_greedy_tokens_and_logprobs_are_hugging_faces(served: Base) -> None:
    model = load(reset(served))
    result = served.one(GenRequest(PROMPT, max_tokens=24, temperature=0.0))
    assert list(result.token_ids_T) == greedy(model, PROMPT, 24)
    assert result.sampled_logprobs_T == pytest.approx(logprobs_of(model, PROMPT, result.token_ids_T), abs=1e-4)
    assert result.finish is Finish.LENGTH


def test_sampled_logprobs_are_recomputed_within_1e_4(served: Base) -> None:
    model = load(reset(served))
    requests = [GenRequest((*PROMPT, 100 + seed), max_tokens=32, seed=seed) for seed in range(16)]
    for request, result in zip(requests, served.all(*requests), strict=True):
        recomputed = logprobs_of(model, request.prompt_ids, result.token_ids_T)
        assert result.sampled_logprobs_T == pytest.approx(recomputed, abs=1e-4)
        scored = served.runner.run(
            served.engine.score(request.prompt_ids + result.token_ids_T, len(request.prompt_ids))
        )
        assert scored == pytest.approx(recomputed, abs=1e-4)


def test_logprobs_are_those_of_the_distribution_sampled_from(served: Base) -> None:
    import torch

    model = load(reset(served))
    result = served.one(GenRequest(PROMPT, max_tokens=8, temperature=0.5, seed=1))
    with torch.no_grad():
        logits = model(torch.tensor([[*PROMPT, *result.token_ids_T]])).logits[0] / 0.5
    expected = [float(logits[len(PROMPT) + i - 1].log_softmax(-1)[token]) for i, token in enumerate(result.token_ids_T)]
    assert result.sampled_logprobs_T == pytest.approx(expected, abs=1e-3)


def test_a_seed_gives_the_same_tokens_alone_and_among_63_others(served: Base) -> None:
    reset(served)
    rng = random.Random(0)
    prompts = [tuple(rng.randrange(VOCABULARY) for _ in range(rng.randrange(5, 300))) for _ in range(64)]
    requests = [GenRequest(prompt, max_tokens=48, seed=index) for index, prompt in enumerate(prompts)]
    together = served.all(*requests)
    again = served.all(*reversed(requests))[::-1]
    check_alone_is_as_among_others(served, requests, together, again)


def test_a_stop_token_ends_the_completion_and_is_kept(served: Base) -> None:
    reset(served)
    check_a_stop_token_ends_the_completion_and_is_kept(served)


def test_after_each_of_10_updates_the_engine_is_the_new_model(served: Base, tmp_path: Path) -> None:
    tied = "lm_head.weight" not in load_file(Path(served.engine.report().model) / "model.safetensors")
    for version in range(1, 11):
        folder = random_qwen2(tmp_path / str(version), seed=100 + version, tied=tied)
        served.runner.run(served.engine.update_weights(load_file(folder / "model.safetensors"), version))
        result = served.one(GenRequest(PROMPT, max_tokens=12, temperature=0.0))
        model = load(folder)
        assert list(result.token_ids_T) == greedy(model, PROMPT, 12)
        assert result.sampled_logprobs_T == pytest.approx(logprobs_of(model, PROMPT, result.token_ids_T), abs=1e-4)
        assert set(result.versions_T) == {version}
        assert result.cached_tokens == 0, "the prefix cache outlived its weights"
        assert served.one(GenRequest(PROMPT, max_tokens=1, temperature=0.0)).cached_tokens > 0
        assert served.engine.report().versions == {"base": version}


def test_greedy_requests_share_no_cached_prefix_with_others(served: Base) -> None:
    """So that an evaluation leaves the rounds after it as they would be without it."""
    reset(served)
    for temperature in (0.0, 1.0, 0.5):
        request = GenRequest(PROMPT, max_tokens=1, temperature=temperature)
        assert (served.one(request).cached_tokens > 0) == (temperature == 0.5)
        assert served.one(request).cached_tokens > 0


def test_an_update_in_flight_keeps_requests_and_marks_their_tokens(served: Base, tmp_path: Path) -> None:
    """Tokens of each version are sampled from that version's weights, the kept request's past included."""
    folder = reset(served, version=1)
    tied = "lm_head.weight" not in load_file(folder / "model.safetensors")
    other = random_qwen2(tmp_path / "other", seed=60, tied=tied)
    weights = load_file(other / "model.safetensors")
    requests = [GenRequest((*PROMPT, seed), max_tokens=400, seed=seed) for seed in range(4)]

    async def overtaken(seconds: float) -> list[GenResult]:
        running = [asyncio.create_task(served.engine.generate(request)) for request in requests]
        await asyncio.sleep(seconds)
        await served.engine.update_weights(weights, 2)
        return await asyncio.gather(*running)

    for seconds in (0.2, 0.4, 0.8, 1.6, 3.2):  # how much is done by then depends on the machine
        results = served.runner.run(overtaken(seconds))
        if {1, 2} == {version for result in results for version in result.versions_T}:
            break
        reset(served, version=1)
    assert {1, 2} == {version for result in results for version in result.versions_T}
    old, new = load(folder), load(other)
    for request, result in zip(requests, results, strict=True):
        assert len(result.token_ids_T) == 400
        assert list(result.versions_T) == sorted(result.versions_T)
        turn = result.versions_T.count(1)
        before = logprobs_of(old, request.prompt_ids, result.token_ids_T)[:turn]
        after = logprobs_of(new, request.prompt_ids, result.token_ids_T)[turn:]
        assert result.sampled_logprobs_T == pytest.approx([*before, *after], abs=1e-3)


def test_wrong_names_and_shapes_are_refused_before_anything_is_touched(served: Base) -> None:
    folder = reset(served, version=5)
    weights = load_file(folder / "model.safetensors")
    request = GenRequest(PROMPT, max_tokens=8, temperature=0.0)
    served.one(request)  # its opening is cached from here on, so that the same is computed before and after
    before = served.one(request)
    missing = {name: tensor for name, tensor in weights.items() if name != "model.norm.weight"}
    for wrong, named in (
        (missing, "'model.norm.weight' is missing"),
        ({**weights, "extra": weights["model.norm.weight"]}, "'extra' is not a tensor"),
        ({**weights, "model.norm.weight": weights["model.norm.weight"][:5]}, "has shape"),
    ):
        with pytest.raises(BadRequest, match=named):
            served.runner.run(served.engine.update_weights(wrong, 6))
    assert served.one(request) == before
    assert before.cached_tokens == 32


@pytest.mark.parametrize(
    "bad",
    [
        GenRequest((), max_tokens=4),
        GenRequest(PROMPT, max_tokens=0),
        GenRequest(PROMPT, max_tokens=500),
        GenRequest((VOCABULARY + 5,), max_tokens=4),
        GenRequest(PROMPT, max_tokens=4, policy="nobody"),
        GenRequest(PROMPT, max_tokens=4, temperature=-1.0),
        GenRequest(PROMPT, max_tokens=4, json_schema={"type": "no such type"}),
    ],
)
def test_a_bad_request_is_told_at_once_and_hurts_nobody(served: Base, bad: GenRequest) -> None:
    with pytest.raises(BadRequest):
        served.one(bad)
    assert len(served.one(GenRequest(PROMPT, max_tokens=4)).token_ids_T) == 4


@pytest.mark.parametrize("served", ["untied"], indirect=True)
def test_a_killed_core_is_noticed_and_a_restart_brings_the_weights_back(
    served: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The core that is started then ends before it is ready, and another is started; two who ask for one get one."""
    from vllm.v1.engine.utils import CoreEngineProcManager

    started: list[str] = []
    start = CoreEngineProcManager.__init__

    def ends(self: CoreEngineProcManager, *args: Any, **settings: Any) -> None:
        start(self, *args, **settings)
        started.append("core")
        if len(started) == 1:
            self.processes[0].kill()

    monkeypatch.setattr(CoreEngineProcManager, "__init__", ends)
    folder = random_qwen2(tmp_path / "new", seed=77, tied=False)
    served.runner.run(served.engine.update_weights(load_file(folder / "model.safetensors"), 9))
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
    assert started == ["core"] * 2
    assert "started once more" in caplog.text


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("served", ["untied"], indirect=True)
def test_the_core_computes_with_as_many_threads_as_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes their number from the environment that it is started in."""
    from vllm.v1.engine.async_llm import AsyncLLM

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(AsyncLLM, "from_engine_args", lambda _: os.environ["OMP_NUM_THREADS"])
    folder = random_qwen2(tmp_path / "model", seed=0)
    for threads, wanted in ((None, "1"), (2, "2")):
        assert start_llm(VllmSettings(folder, context=64, threads=threads), adapter_slots=1, shapes={}) == wanted


@pytest.mark.parametrize("served", ["untied"], indirect=True)
def test_a_request_during_an_update_waits_for_it(served: Base, tmp_path: Path) -> None:
    new = load_file(random_qwen2(tmp_path / "new", seed=51, tied=False) / "model.safetensors")

    async def ask_meanwhile() -> GenResult:
        update = asyncio.create_task(served.engine.update_weights(new, 11))
        while not served.engine._undelivered:
            assert not update.done()
            await asyncio.sleep(0.001)
        result = await served.engine.generate(GenRequest(PROMPT, max_tokens=2))
        await update
        return result

    assert set(served.runner.run(ask_meanwhile()).versions_T) == {11}


STALE = (
    "model.embed_tokens.weight",
    "model.layers.0.self_attn.k_proj.weight",
    "model.layers.0.self_attn.q_proj.bias",
    "model.layers.1.mlp.up_proj.weight",
    "model.layers.1.mlp.down_proj.weight",
    "model.layers.1.input_layernorm.weight",
    "model.norm.weight",
)


def test_one_stale_tensor_is_a_delivery_error(served: Base, tmp_path: Path) -> None:
    folder = reset(served)
    old = load_file(folder / "model.safetensors")
    tied = "lm_head.weight" not in old
    new = load_file(random_qwen2(tmp_path / "new", seed=50, tied=tied) / "model.safetensors")

    def keep(name: str) -> None:
        path = str(folder / "model.safetensors")
        served.runner.run(served.engine._llm.collective_rpc("keep_tensor", args=(path, name)))

    for name in STALE if tied else (*STALE, "lm_head.weight"):
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
