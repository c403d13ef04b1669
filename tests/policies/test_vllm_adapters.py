"""Adapters on the vLLM engine: exact on their own and in mixed batches, versions in flight, delivery, faults."""

import asyncio
import json
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, Qwen2ForCausalLM

from policies.engine import BASE, Adapter, BadRequest, DeliveryError, EngineDead, Finish, GenRequest, GenResult
from policies.engine.adapters import lora_tensor_names
from policies.engine.requests import checkpoint_shapes, linear_layers
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
from tests.policies.served import Served
from tests.startup.preloaded import fork_of

END = 1
POLICIES = (BASE, "solver", "curator", "writer")


class Adapted(Served[VllmEngine]):
    """An engine for three adapters, and the folder that its base weights are from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        settings = VllmSettings(
            folder,
            context=512,
            kv_cache_bytes=64 << 20,
            max_batched_tokens=256,
            max_adapters=3,
            worker_extension="tests.policies.sabotage.SpoilsAdapters",
        )
        super().__init__(VllmEngine.start(settings))

    def update(self, policy: str, adapter: Adapter, version: int) -> None:
        self.runner.run(self.engine.update_adapter(policy, adapter, version))

    def update_base(self, folder: Path, version: int) -> None:
        self.runner.run(self.engine.update_weights(load_file(folder / "model.safetensors"), version))

    def tell_worker(self, method: str, *arguments: str) -> Any:
        return self.runner.run(self.engine.llm.collective_rpc(method, args=arguments))

    def held(self) -> int:
        """The number of adapters in the engine."""
        return len(self.runner.run(self.engine.llm.list_loras()))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adapted]:
    folder = random_qwen2(tmp_path_factory.mktemp("model"), seed=0)
    byte_tokenizer(folder)
    served = Adapted(folder)
    yield served
    served.runner.run(served.engine.close())
    served.runner.close()


@pytest.fixture
def adapters(served: Adapted) -> dict[str, Adapter]:
    """An adapter of each agent, of different modules, ranks and scalings; all are in the engine."""
    adapters = {
        "solver": random_adapter(served.folder, seed=1),
        "curator": random_adapter(
            served.folder, seed=2, modules=["q_proj", "v_proj", "down_proj"], r=3, lora_alpha=5, use_rslora=True
        ),
        "writer": random_adapter(served.folder, seed=4, modules=["k_proj", "o_proj", "up_proj"], r=2, lora_alpha=8),
    }
    for policy, adapter in adapters.items():
        served.update(policy, adapter, 1)
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


def test_only_linear_layers_get_room_for_an_adapter(served: Adapted) -> None:
    """The embeddings and the output layer would add an adapter of nothing at every step."""
    linear = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert linear_layers(checkpoint_shapes(served.folder)) == sorted(linear)
    assert {name.rpartition(".")[2] for name in served.engine.adaptable} == set(linear)


def test_after_each_update_the_policy_is_its_new_adapter(served: Adapted) -> None:
    request = GenRequest(PROMPT, max_tokens=12, temperature=0.0, policy="solver")
    seen = set()
    for version in range(1, 5):
        adapter = random_adapter(served.folder, seed=100 + version)
        served.update("solver", adapter, version)
        (result,) = served.all(request)
        assert_greedy(load_adapted(served.folder, adapter), request, result)
        assert result.versions_T == (version,) * 12
        assert result.cached_tokens == 0, "the prefix cache outlived its adapter"
        assert served.engine.report().versions["solver"] == version
        seen.add(result.token_ids_T)
    assert len(seen) == 4, "the adapters do not tell apart"
    assert served.held() <= 2, "old adapters stay in memory"


def test_base_and_three_adapters_in_one_batch_are_each_their_own(served: Adapted, adapters: dict[str, Adapter]) -> None:
    models = references(served.folder, adapters)
    rng = random.Random(0)
    requests = [
        GenRequest(
            tuple(rng.randrange(VOCABULARY) for _ in range(rng.randrange(5, 90))),
            max_tokens=rng.randrange(8, 24),
            temperature=0.0,
            policy=POLICIES[index % 4],
        )
        for index in range(24)
    ]
    for request, result in zip(requests, served.all(*requests), strict=True):
        assert_greedy(models[request.policy], request, result)


def test_sampling_and_scores_do_not_depend_on_the_company(served: Adapted, adapters: dict[str, Adapter]) -> None:
    models = references(served.folder, adapters)
    requests = [GenRequest((*PROMPT, seed), max_tokens=24, seed=seed, policy=POLICIES[seed % 4]) for seed in range(12)]
    for request, together in zip(requests, served.all(*requests), strict=True):
        (alone,) = served.all(request)
        assert together.token_ids_T == alone.token_ids_T
        expected = logprobs_of(models[request.policy], request.prompt_ids, together.token_ids_T)
        assert together.sampled_logprobs_T == pytest.approx(expected, abs=1e-4)
        tokens = (*request.prompt_ids, *together.token_ids_T)
        scored = served.engine.score(tokens, len(request.prompt_ids), policy=request.policy)
        assert served.runner.run(scored) == pytest.approx(expected, abs=1e-4)


def test_running_requests_end_with_the_adapter_they_began_with(served: Adapted, adapters: dict[str, Adapter]) -> None:
    """Six updates overtake one another's requests: there are slots for six adapters, so that some have to wait."""
    versions = {version: random_adapter(served.folder, seed=200 + version) for version in range(1, 7)}
    requests = {version: GenRequest((*PROMPT, version), 300, 0.0, policy="solver") for version in versions}
    other = GenRequest(PROMPT, 300, 0.0, policy="curator")

    async def overtaken() -> tuple[dict[int, GenResult], GenResult, int]:
        beside = asyncio.create_task(served.engine.generate(other))
        running: dict[int, asyncio.Task[GenResult]] = {}
        overtaking = 0
        for version, adapter in versions.items():
            await served.engine.update_adapter("solver", adapter, version)
            overtaking += version - 1 in running and not running[version - 1].done()
            running[version] = asyncio.create_task(served.engine.generate(requests[version]))
            await asyncio.sleep(0.02)  # it is sent to the engine
        return {version: await task for version, task in running.items()}, await beside, overtaking

    results, beside, overtaking = served.runner.run(overtaken())
    assert overtaking, "no update came while the version before it was in use"
    for version, result in results.items():
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
    assert_greedy(load_adapted(served.folder, adapters["solver"]), request, served.all(request)[0])
    assert served.held() == 3


ATTENTION, MLP = "model.layers.0.self_attn", "model.layers.1.mlp"
SPOILED = (
    *lora_tensor_names(f"{ATTENTION}.q_proj"),
    lora_tensor_names(f"{ATTENTION}.v_proj")[1],
    lora_tensor_names(f"{ATTENTION}.o_proj")[0],
    lora_tensor_names(f"{MLP}.up_proj")[1],
    lora_tensor_names(f"{MLP}.down_proj")[1],
    "alpha",
)


@pytest.mark.parametrize("spoiled", SPOILED)
def test_an_adapter_wrong_in_its_last_bits_is_a_delivery_error(
    served: Adapted, adapters: dict[str, Adapter], spoiled: str
) -> None:
    models = references(served.folder, adapters)
    served.tell_worker("spoil_adapter", spoiled)
    solver = GenRequest(PROMPT, 8, 0.0, policy="solver")
    with pytest.raises(DeliveryError, match="does not compute with version 9 of 'solver'"):
        served.update("solver", random_adapter(served.folder, seed=3), 9)
    with pytest.raises(DeliveryError, match="'solver' did not arrive whole"):
        served.all(solver)
    for other in (replace(solver, policy=policy) for policy in POLICIES if policy != "solver"):
        assert_greedy(models[other.policy], other, served.all(other)[0])
    served.tell_worker("spoil_adapter", "")
    served.update("solver", adapters["solver"], 10)
    assert_greedy(models["solver"], solver, served.all(solver)[0])


def changed(adapter: Adapter, name: str, tensor: torch.Tensor | None, **config: Any) -> Adapter:
    tensors = {**adapter.tensors, name: tensor}
    return Adapter({**adapter.config, **config}, {key: value for key, value in tensors.items() if value is not None})


def test_what_cannot_be_served_exactly_is_refused_and_hurts_nobody(
    served: Adapted, adapters: dict[str, Adapter]
) -> None:
    good = adapters["solver"]
    a, b = lora_tensor_names(f"{ATTENTION}.q_proj")
    bad = {
        "is missing": changed(good, b, None),
        "has shape": changed(good, a, torch.zeros(8, 64)),
        "r is 17": changed(good, a, None, r=17),
        "r is None": changed(good, a, None, r=None),
        "no half of a module": changed(good, lora_tensor_names("model.layers.2.mlp.up_proj")[0], torch.zeros(8, 128)),
        "no finite": changed(good, a, torch.full((8, 128), torch.nan)),
        "has no tensors": Adapter(good.config, {}),
        "use_dora": Adapter({**good.config, "use_dora": True}, good.tensors),
        "rank_pattern": Adapter({**good.config, "rank_pattern": {"q_proj": 2}}, good.tensors),
        "modules_to_save": Adapter({**good.config, "modules_to_save": ["lm_head"]}, good.tensors),
        "bias is 'all'": Adapter({**good.config, "bias": "all"}, good.tensors),
        "peft_type is 'IA3'": Adapter({**good.config, "peft_type": "IA3"}, good.tensors),
        "'pissa' changes": Adapter({**good.config, "init_lora_weights": "pissa"}, good.tensors),
        "a_later_feature": Adapter({**good.config, "a_later_feature": 1}, good.tensors),
        "lora_alpha": Adapter({**good.config, "lora_alpha": float("inf")}, good.tensors),
    }
    request = GenRequest(PROMPT, 8, 0.0, policy="solver")
    served.one(request)  # its opening is cached from here on, so that the same is computed before and after
    before = served.one(request)
    for reason, adapter in bad.items():
        with pytest.raises(BadRequest, match=reason):
            served.update("solver", adapter, 2)
    for policy, reason in ((BASE, "without one"), ("fourth", "no room")):
        with pytest.raises(BadRequest, match=reason):
            served.update(policy, good, 2)
    with pytest.raises(BadRequest, match="'fourth' is not loaded; allowed are 'base', 'curator', 'solver', 'writer'"):
        served.all(replace(request, policy="fourth"))
    assert served.one(request) == before
    assert before.cached_tokens == 32


def test_a_full_update_below_the_adapters_keeps_them(
    served: Adapted, adapters: dict[str, Adapter], tmp_path: Path
) -> None:
    request = GenRequest(PROMPT, 12, 0.0)
    folder = random_qwen2(tmp_path, seed=5)
    new, old = load_file(folder / "model.safetensors"), load_file(served.folder / "model.safetensors")
    for name in ("model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.down_proj.weight"):
        served.tell_worker("keep_tensor", str(served.folder / "model.safetensors"), name)
        with pytest.raises(DeliveryError, match="does not compute with version 7"):
            served.runner.run(served.engine.update_weights({**new, name: old[name] * (1 + 1e-6)}, 7))
        with pytest.raises(DeliveryError, match="restart"):
            served.update("solver", adapters["solver"], 8)
    served.tell_worker("keep_tensor", "", "")
    served.update_base(folder, 7)
    models = references(folder, adapters)
    requests = [replace(request, policy=policy) for policy in models]
    for own, result in zip(requests, served.all(*requests), strict=True):
        assert_greedy(models[own.policy], own, result)
        assert set(result.versions_T) == {7 if own.policy == BASE else 1}
    served.update_base(served.folder, 8)


def test_a_restart_brings_all_adapters_back(served: Adapted, adapters: dict[str, Adapter]) -> None:
    requests = [GenRequest(PROMPT, 32, seed=4, policy=policy) for policy in (BASE, *adapters)]
    before = served.all(*requests)

    async def killed_at_work() -> list[Any]:
        for process in served.engine.processes():
            os.kill(fork_of(process) or process, signal.SIGSTOP)
        at_work = asyncio.gather(
            served.engine.update_adapter("solver", adapters["solver"], 2),
            served.engine.generate(requests[1]),
            return_exceptions=True,
        )
        await asyncio.sleep(0.1)
        for process in served.engine.processes():
            os.kill(process, signal.SIGKILL)
        return list(await at_work)

    async def restarted_at_work() -> list[Any]:
        at_work = asyncio.gather(served.engine.generate(replace(requests[1], max_tokens=400)), return_exceptions=True)
        await asyncio.sleep(0.05)
        await served.engine.restart()
        return list(await at_work)

    for disturbed in (killed_at_work, restarted_at_work):
        outcomes = served.runner.run(asyncio.wait_for(disturbed(), 60))
        assert all(isinstance(outcome, EngineDead) for outcome in outcomes), outcomes
        if disturbed is killed_at_work:
            with pytest.raises(EngineDead):
                served.all(requests[0])
            served.runner.run(served.engine.restart())
        for old, new in zip(before, served.all(*requests), strict=True):
            assert (new.token_ids_T, new.versions_T) == (old.token_ids_T, old.versions_T)
        assert served.engine.report().versions == {BASE: 8, "solver": 1, "curator": 1, "writer": 1}


def test_a_grammar_leaves_valid_json_only(served: Adapted, adapters: dict[str, Adapter]) -> None:
    schema = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["call", "answer"]},
            "sure": {"type": "boolean"},
            "count": {"type": "integer", "minimum": 0, "maximum": 99},
        },
        "required": ["kind", "sure", "count"],
        "additionalProperties": False,
    }
    tokenizer = AutoTokenizer.from_pretrained(served.folder)
    requests = [
        GenRequest(
            PROMPT,
            96,
            seed=seed,
            stop_token_ids=(END,) if seed < 4 else (),
            json_schema=schema,
            policy="solver" if seed % 2 else BASE,
        )
        for seed in range(8)
    ]
    for result in served.all(*requests):
        assert result.masked
        assert result.finish is Finish.STOP
        assert result.token_ids_T[-1] == END
        text = str(tokenizer.decode(list(result.token_ids_T[:-1])))
        value = json.loads(text)
        assert value.keys() == {"kind", "sure", "count"}
        assert text == json.dumps(value), "laid out as models have seen it"
        assert value["kind"] in ("call", "answer")
        assert isinstance(value["sure"], bool)
        assert value["count"] in range(100)
