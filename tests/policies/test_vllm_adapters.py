"""Adapters on the vLLM engine: exact on their own and in mixed batches, versions in flight, delivery, faults."""

import asyncio
import json
import os
import random
import signal
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import torch
from transformers import AutoTokenizer, Qwen2ForCausalLM

from policies.engine import BASE, Adapter, BadRequest, DeliveryError, EngineDead, Finish, GenRequest, GenResult
from policies.engine.adapters import lora_tensor_names
from policies.engine.vllm_engine import VllmEngine, VllmSettings
from tests.policies.contract import PROMPT
from tests.policies.models import (
    VOCABULARY,
    byte_tokenizer,
    load,
    load_adapted,
    logprobs_of,
    random_adapter,
    random_qwen2,
)
from tests.policies.served import VllmServed, weights_of
from tests.startup.preloaded import fork_of

END = 1
POLICIES = (BASE, "solver", "curator", "writer")


class Adapted(VllmServed):
    """An engine for three adapters."""

    def held(self) -> int:
        """The number of adapters in the engine."""
        return len(self.runner.run(self.engine.llm.list_loras()))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adapted]:
    folder = random_qwen2(tmp_path_factory.mktemp("model"), seed=0)
    byte_tokenizer(folder)
    settings = VllmSettings(
        folder,
        context=512,
        kv_cache_bytes=64 << 20,
        max_batched_tokens=256,
        max_adapters=3,
        worker_extension="tests.policies.sabotage.SpoilsAdapters",
    )
    served = Adapted(folder, VllmEngine.start(settings))
    yield served
    served.close()


@pytest.fixture
def adapters(served: Adapted) -> dict[str, Adapter]:
    """An adapter of each agent, of different modules, ranks and scalings; all are in the engine."""
    some: Any = {"modules": ["q_proj", "v_proj", "down_proj"], "r": 3, "lora_alpha": 5, "use_rslora": True}
    others: Any = {"modules": ["k_proj", "o_proj", "up_proj"], "r": 2, "lora_alpha": 8}
    adapters = {
        "solver": random_adapter(served.folder, seed=1),
        "curator": random_adapter(served.folder, seed=2, **some),
        "writer": random_adapter(served.folder, seed=4, **others),
    }
    for policy, adapter in adapters.items():
        served.adapt(policy, adapter, 1)
    return adapters


def references(folder: Path, adapters: dict[str, Adapter]) -> dict[str, Qwen2ForCausalLM]:
    return {BASE: load(folder), **{policy: load_adapted(folder, adapter) for policy, adapter in adapters.items()}}


@torch.no_grad()
def assert_greedy(model: Qwen2ForCausalLM, request: GenRequest, result: GenResult) -> None:
    """Every token is Hugging Face's most likely one after those before it, and as likely as there."""
    logits = model(torch.tensor([[*request.prompt_ids, *result.token_ids_T]])).logits[0, len(request.prompt_ids) - 1 :]
    assert list(result.token_ids_T) == logits[:-1].argmax(-1).tolist()
    expected = logprobs_of(model, request.prompt_ids, result.token_ids_T)
    assert result.sampled_logprobs_T == pytest.approx(expected, abs=1e-4)


def test_after_each_update_the_policy_is_its_new_adapter(served: Adapted) -> None:
    request = GenRequest(PROMPT, max_tokens=12, temperature=0.0, policy="solver")
    seen = set()
    for version in range(1, 4):
        adapter = random_adapter(served.folder, seed=100 + version)
        served.adapt("solver", adapter, version)
        result = served.one(request)
        assert_greedy(load_adapted(served.folder, adapter), request, result)
        assert result.versions_T == (version,) * 12
        assert result.cached_tokens == 0, "the prefix cache outlived its adapter"
        assert served.engine.report().versions["solver"] == version
        seen.add(result.token_ids_T)
    assert len(seen) == 3, "the adapters do not tell apart"
    assert served.held() <= 2, "old adapters stay in memory"


def test_base_and_three_adapters_in_one_batch_are_each_their_own_as_if_alone(
    served: Adapted, adapters: dict[str, Adapter]
) -> None:
    models = references(served.folder, adapters)
    rng = random.Random(0)
    prompts = [tuple(rng.randrange(VOCABULARY) for _ in range(rng.randrange(5, 90))) for _ in range(24)]
    requests = [
        GenRequest(prompt, rng.randrange(8, 24), float(index // 4 % 2), seed=index, policy=POLICIES[index % 4])
        for index, prompt in enumerate(prompts)
    ]
    for request, together in zip(requests, served.all(*requests), strict=True):
        model = models[request.policy]
        if not request.temperature:
            assert_greedy(model, request, together)
            continue
        assert served.one(request).token_ids_T == together.token_ids_T
        expected = logprobs_of(model, request.prompt_ids, together.token_ids_T)
        assert together.sampled_logprobs_T == pytest.approx(expected, abs=1e-4)
        tokens = request.prompt_ids + together.token_ids_T
        assert served.score(tokens, len(request.prompt_ids), request.policy) == pytest.approx(expected, abs=1e-4)


def test_running_requests_end_with_the_adapter_they_began_with(served: Adapted, adapters: dict[str, Adapter]) -> None:
    """Six updates overtake one another's requests: there are slots for six adapters, so that some have to wait."""
    versions = {version: random_adapter(served.folder, seed=200 + version) for version in range(1, 7)}
    requests = {version: GenRequest((*PROMPT, version), 300, 0.0, policy="solver") for version in versions}
    other = GenRequest(PROMPT, 300, 0.0, policy="curator")

    async def overtaken() -> tuple[list[GenResult], int]:
        running, overtaking = [asyncio.create_task(served.engine.generate(other))], 0
        for version, adapter in versions.items():
            await served.engine.update_adapter("solver", adapter, version)
            overtaking += not running[-1].done()
            running.append(asyncio.create_task(served.engine.generate(requests[version])))
            await asyncio.sleep(0.02)  # it is sent to the engine
        return await asyncio.gather(*running), overtaking

    (beside, *results), overtaking = served.runner.run(overtaken())
    assert overtaking > 1, "no update came while the version before it was in use"
    for version, result in zip(versions, results, strict=True):
        assert result.versions_T == (version,) * 300
        assert_greedy(load_adapted(served.folder, versions[version]), requests[version], result)
    assert_greedy(load_adapted(served.folder, adapters["curator"]), other, beside)
    assert served.held() == 3


def test_a_cancelled_request_lets_go_of_its_adapter(served: Adapted, adapters: dict[str, Adapter]) -> None:
    async def cancelled() -> None:
        for version in range(2, 8):
            running = asyncio.create_task(served.engine.generate(GenRequest(PROMPT, 400, policy="solver")))
            await asyncio.sleep(0.02)
            await served.engine.update_adapter("solver", adapters["solver"], version)
            running.cancel()

    served.runner.run(cancelled())
    request = GenRequest(PROMPT, 8, 0.0, policy="solver")
    assert_greedy(load_adapted(served.folder, adapters["solver"]), request, served.one(request))
    assert served.held() == 3


ATTENTION, MLP = "model.layers.0.self_attn", "model.layers.1.mlp"
SPOILED = (
    *(lora_tensor_names(f"{ATTENTION}.q_proj")[0], lora_tensor_names(f"{ATTENTION}.v_proj")[1]),
    *(lora_tensor_names(f"{MLP}.up_proj")[1], lora_tensor_names(f"{MLP}.down_proj")[1], "alpha"),
)


def test_an_adapter_wrong_in_its_last_bits_is_a_delivery_error(served: Adapted, adapters: dict[str, Adapter]) -> None:
    models = references(served.folder, adapters)
    solver = GenRequest(PROMPT, 8, 0.0, policy="solver")
    for spoiled in SPOILED:
        served.call_workers("spoil_adapter", spoiled)
        with pytest.raises(DeliveryError, match="does not compute with version 9 of 'solver'"):
            served.adapt("solver", random_adapter(served.folder, seed=3), 9)
        with pytest.raises(DeliveryError, match="'solver' did not arrive whole"):
            served.one(solver)
    for other in (replace(solver, policy=policy) for policy in POLICIES if policy != "solver"):
        assert_greedy(models[other.policy], other, served.one(other))
    served.call_workers("spoil_adapter", "")
    served.adapt("solver", adapters["solver"], 10)
    assert_greedy(models["solver"], solver, served.one(solver))


def test_what_cannot_be_served_exactly_is_refused_and_hurts_nobody(
    served: Adapted, adapters: dict[str, Adapter]
) -> None:
    good = adapters["solver"]
    a, b = lora_tensor_names(f"{ATTENTION}.q_proj")
    other = lora_tensor_names("model.layers.2.mlp.up_proj")[0]
    wrong_tensors: dict[str, dict[str, torch.Tensor | None]] = {
        "is missing": {b: None},
        "has shape": {a: torch.zeros(8, 64)},
        "no half of a module": {other: torch.zeros(8, 128)},
        "no finite": {a: torch.full((8, 128), torch.nan)},
        "has no tensors": dict.fromkeys(good.tensors),
    }
    wrong_settings: dict[str, dict[str, Any]] = {
        "r is 17": {"r": 17},
        "r is None": {"r": None},
        "use_dora": {"use_dora": True},
        "rank_pattern": {"rank_pattern": {"q_proj": 2}},
        "modules_to_save": {"modules_to_save": ["lm_head"]},
        "bias is 'all'": {"bias": "all"},
        "peft_type is 'IA3'": {"peft_type": "IA3"},
        "'pissa' changes": {"init_lora_weights": "pissa"},
        "a_later_feature": {"a_later_feature": 1},
        "lora_alpha": {"lora_alpha": float("inf")},
    }
    request = GenRequest(PROMPT, 8, 0.0, policy="solver")
    served.one(request)  # its opening is cached from here on, so that the same is computed before and after
    before = served.one(request)
    for reason in (*wrong_tensors, *wrong_settings):
        tensors = {**good.tensors, **wrong_tensors.get(reason, {})}
        kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        with pytest.raises(BadRequest, match=reason):
            served.adapt("solver", Adapter({**good.config, **wrong_settings.get(reason, {})}, kept), 2)
    for policy, reason in ((BASE, "without one"), ("fourth", "no room")):
        with pytest.raises(BadRequest, match=reason):
            served.adapt(policy, good, 2)
    with pytest.raises(BadRequest, match="'fourth' is not loaded; allowed are 'base', 'curator', 'solver', 'writer'"):
        served.one(replace(request, policy="fourth"))
    assert served.one(request) == before
    assert before.cached_tokens == 32


def test_a_full_update_below_the_adapters_keeps_them(
    served: Adapted, adapters: dict[str, Adapter], tmp_path: Path
) -> None:
    folder = random_qwen2(tmp_path, seed=5)
    new, old = weights_of(folder), weights_of(served.folder)
    for name in ("model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.down_proj.weight"):
        served.call_workers("keep_tensor", str(served.folder / "model.safetensors"), name)
        with pytest.raises(DeliveryError, match="does not compute with version 7"):
            served.runner.run(served.engine.update_weights({**new, name: old[name] * (1 + 1e-6)}, 7))
        with pytest.raises(DeliveryError, match="restart"):
            served.adapt("solver", adapters["solver"], 8)
    served.call_workers("keep_tensor", "", "")
    served.update(folder, 7)
    models = references(folder, adapters)
    requests = [GenRequest(PROMPT, 12, 0.0, policy=policy) for policy in models]
    for request, result in zip(requests, served.all(*requests), strict=True):
        assert_greedy(models[request.policy], request, result)
        assert set(result.versions_T) == {7 if request.policy == BASE else 1}
    served.update(served.folder, 8)


@pytest.mark.only_by(target="long")
@pytest.mark.parametrize("killed", [True, False])
def test_a_restart_brings_all_adapters_back(served: Adapted, adapters: dict[str, Adapter], killed: bool) -> None:
    served.update(served.folder, 8)
    requests = [GenRequest(PROMPT, 32, seed=4, policy=policy) for policy in (BASE, *adapters)]
    before = served.all(*requests)

    async def disturbed() -> list[Any]:
        at_work: list[Coroutine[Any, Any, Any]] = [served.engine.generate(replace(requests[1], max_tokens=400))]
        if killed:
            for process in served.engine.processes():
                os.kill(fork_of(process) or process, signal.SIGSTOP)
            at_work.append(served.engine.update_adapter("solver", adapters["solver"], 2))
        working = asyncio.gather(*at_work, return_exceptions=True)
        await asyncio.sleep(0.1)
        if killed:
            for process in served.engine.processes():
                os.kill(process, signal.SIGKILL)
        else:
            await served.engine.restart()
        return list(await working)

    outcomes = served.runner.run(asyncio.wait_for(disturbed(), 60))
    assert all(isinstance(outcome, EngineDead) for outcome in outcomes), outcomes
    if killed:
        with pytest.raises(EngineDead):
            served.all(requests[0])
        served.runner.run(served.engine.restart())
    for old, new in zip(before, served.all(*requests), strict=True):
        assert (new.token_ids_T, new.versions_T) == (old.token_ids_T, old.versions_T)
    assert served.engine.report().versions == {BASE: 8, "solver": 1, "curator": 1, "writer": 1}


def test_a_grammar_leaves_valid_json_only(served: Adapted, adapters: dict[str, Adapter]) -> None:
    properties = {
        "kind": {"enum": ["call", "answer"]},
        "sure": {"type": "boolean"},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
    }
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    tokenizer = AutoTokenizer.from_pretrained(served.folder)
    free = GenRequest(PROMPT, 96, json_schema=schema)
    requests = [
        replace(free, seed=seed, stop_token_ids=(END,) * (seed < 4), policy=("solver", BASE)[seed % 2])
        for seed in range(8)
    ]
    for result in served.all(*requests):
        assert result.masked
        assert (result.finish, result.token_ids_T[-1]) == (Finish.STOP, END)
        text = str(tokenizer.decode(list(result.token_ids_T[:-1])))
        value = json.loads(text)
        jsonschema.validate(value, schema)
        assert text == json.dumps(value), "laid out as models have seen it"
