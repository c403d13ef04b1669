"""The transformers engine on tiny random models: exact tokens and log-probs, seeds, updates, adapters, faults."""

import asyncio
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict

from policies.engine import Adapter, BadRequest, DeliveryError, EngineDead, GenRequest, GenResult
from policies.engine.transformers_batch import RunningBatch
from policies.engine.transformers_engine import TransformersEngine, TransformersSettings
from tests.policies.contract import PROMPT, EngineContract, check_alone_is_the_same, check_versions, mixed_requests
from tests.policies.models import VOCABULARY, greedy, logprobs_of
from tests.policies.served import Served, Updated, like, load_any, weights_of

Engine = Updated[TransformersEngine]


@pytest.fixture(scope="module", params=["tied", "llama"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = like(Path(request.param), tmp_path_factory.mktemp("models") / request.param, seed=0)
    served = Updated(folder, TransformersEngine.start(TransformersSettings(folder, context=512)))
    yield served
    served.close()


class TestContract(EngineContract):
    pass


def test_logprobs_are_those_of_the_nucleus_sampled_from(served: Engine) -> None:
    model = served.reset()
    requests = [GenRequest(PROMPT, max_tokens=8, temperature=3.0, top_p=0.6, seed=seed) for seed in range(8)]
    for result in served.all(*requests):
        with torch.no_grad():
            logits_TV = model(torch.tensor([[*PROMPT, *result.token_ids_T]])).logits[0, len(PROMPT) - 1 : -1]
        ranked_TV, tokens_TV = (logits_TV.double() / 3.0).softmax(-1).sort(-1, descending=True)
        before_TV = ranked_TV.cumsum(-1) - ranked_TV
        mass_TV = ranked_TV.where(before_TV < 0.6, 0.0)
        places = (tokens_TV == torch.tensor(result.token_ids_T)[:, None]).nonzero()[:, 1]
        expected_T = (mass_TV / mass_TV.sum(-1, keepdim=True))[range(8), places].log()
        assert result.sampled_logprobs_T == pytest.approx(expected_T.tolist(), abs=1e-4)


def test_tokens_are_drawn_with_their_probabilities(served: Engine) -> None:
    model = served.reset()
    results = served.all(*(GenRequest((7,), max_tokens=1, temperature=1.5, seed=seed) for seed in range(2000)))
    with torch.no_grad():
        expected_V = (model(torch.tensor([[7]])).logits[0, -1] / 1.5).softmax(-1)
    counts_V = torch.bincount(torch.tensor([result.token_ids_T[0] for result in results]), minlength=VOCABULARY)
    top = expected_V.topk(5).indices
    spread_K = (expected_V[top] * (1 - expected_V[top]) / 2000).sqrt()
    assert bool(((counts_V[top] / 2000 - expected_V[top]).abs() < 4.5 * spread_K).all())
    for result in results[:20]:
        assert result.sampled_logprobs_T[0] == pytest.approx(float(expected_V[result.token_ids_T[0]].log()), abs=1e-4)


def test_a_seed_gives_the_same_tokens_alone_and_among_63_others(served: Engine) -> None:
    served.reset()
    requests = mixed_requests()

    async def staggered() -> list[GenResult]:
        tasks = []
        for request in requests:  # rows join a running batch
            tasks.append(asyncio.create_task(served.engine.generate(request)))
            await asyncio.sleep(0.003)
        return await asyncio.gather(*tasks)

    together = served.all(*requests)
    again = served.runner.run(staggered())
    check_alone_is_the_same(served, together, again)


def test_an_update_in_flight_keeps_requests_and_marks_their_tokens(served: Engine, tmp_path: Path) -> None:
    """Tokens of each version are sampled from that version's weights, the kept request's past included."""
    old = served.reset(version=1)
    other = like(served.folder, tmp_path / "other", seed=60)
    requests = [GenRequest(PROMPT[: 3 + seed], max_tokens=200, seed=seed) for seed in range(4)]

    async def overtaken() -> list[GenResult]:
        running = [asyncio.create_task(served.engine.generate(request)) for request in requests]
        while not served.engine.batch.rows or len(served.engine.batch.rows[0].token_ids_T) < 20:
            await asyncio.sleep(0.001)
        await served.engine.update_weights(weights_of(other), 2)
        return await asyncio.gather(*running)

    new = load_any(other)
    for request, result in zip(requests, served.runner.run(overtaken()), strict=True):
        assert 20 <= check_versions(old, new, request, result, within=1e-4) < 200


def random_adapter(model: Any, *, seed: int, rank: int = 4) -> tuple[Adapter, Any]:
    """An adapter that matters, as PEFT saves it, and the reference that PEFT computes with it."""
    torch.manual_seed(seed)
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["q_proj", "v_proj", "down_proj"])
    tuned: Any = get_peft_model(copy.deepcopy(model), config)
    tensors = {
        name.replace(".default", ""): torch.randn_like(parameter) * 0.1
        for name, parameter in tuned.named_parameters()
        if "lora_" in name
    }
    set_peft_model_state_dict(tuned, tensors)
    return Adapter(config.to_dict(), tensors), tuned.eval()  # type: ignore[no-untyped-call]


def test_adapters_and_base_together_are_each_pefts(served: Engine, tmp_path: Path) -> None:
    base = served.reset(version=3)
    references = {"base": base}
    for policy, seed, rank in (("solver", 0, 4), ("curator", 1, 8)):
        adapter, references[policy] = random_adapter(base, seed=seed, rank=rank)
        served.runner.run(served.engine.update_adapter(policy, adapter, 10 + seed))
    versions = {"base": 3, "solver": 10, "curator": 11}
    assert served.engine.report().versions == versions
    requests = [
        GenRequest(PROMPT[: 5 + seed], 12, float(seed % 2), seed=seed, policy=policy)
        for seed in range(4)
        for policy in references
    ]
    for request, result in zip(requests, served.all(*requests), strict=True):
        model = references[request.policy]
        recomputed = logprobs_of(model, request.prompt_ids, result.token_ids_T)
        assert result.sampled_logprobs_T == pytest.approx(recomputed, abs=1e-4)
        assert set(result.versions_T) == {versions[request.policy]}
        if request.temperature == 0:
            assert list(result.token_ids_T) == greedy(model, request.prompt_ids, 12)
        scored = served.score(request.prompt_ids + result.token_ids_T, len(request.prompt_ids), request.policy)
        assert scored == pytest.approx(recomputed, abs=1e-4)
    # A new base below an adapter.
    folder = like(served.folder, tmp_path / "new", seed=70)
    served.update(folder, 4)
    adapter, moved = random_adapter(load_any(folder), seed=0)
    result = served.one(GenRequest(PROMPT, max_tokens=8, temperature=0.0, policy="solver"))
    assert list(result.token_ids_T) == greedy(moved, PROMPT, 8)


def test_adapters_that_do_not_fit_are_refused(served: Engine) -> None:
    adapter, _ = random_adapter(served.reset(), seed=0)
    for policy, wrong in (
        ("base", adapter),
        ("fresh", Adapter(adapter.config, dict(list(adapter.tensors.items())[1:]))),
        ("fresh", Adapter({**adapter.config, "r": 5}, adapter.tensors)),
    ):
        with pytest.raises(BadRequest):
            served.runner.run(served.engine.update_adapter(policy, wrong, 7))
    assert "fresh" not in served.engine.report().versions
    with pytest.raises(BadRequest, match="no grammar"):
        served.one(GenRequest(PROMPT, max_tokens=4, json_schema={"type": "object"}))


def test_running_requests_end_with_the_adapter_they_began_with(served: Engine) -> None:
    base = served.reset()
    (first, old), (second, new) = (random_adapter(base, seed=seed) for seed in (5, 6))
    served.runner.run(served.engine.update_adapter("solver", first, 1))
    request = GenRequest(PROMPT, max_tokens=100, seed=1, policy="solver")

    async def overtaken() -> list[GenResult]:
        running = asyncio.create_task(served.engine.generate(request))
        while not served.engine.batch.rows:
            await asyncio.sleep(0.001)
        await served.engine.update_adapter("solver", second, 2)
        return [await running, await served.engine.generate(request)]

    for result, model, version in zip(served.runner.run(overtaken()), (old, new), (1, 2), strict=True):
        assert set(result.versions_T) == {version}
        assert result.sampled_logprobs_T == pytest.approx(logprobs_of(model, PROMPT, result.token_ids_T), abs=1e-4)


def test_a_dead_worker_is_told_to_all_and_a_restart_brings_everything_back(
    served: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = like(served.folder, tmp_path / "new", seed=77)
    served.update(folder, 9)
    adapter, _ = random_adapter(load_any(folder), seed=8)
    served.runner.run(served.engine.update_adapter("solver", adapter, 3))
    requests = [GenRequest(PROMPT, max_tokens=32, seed=4, policy=policy) for policy in ("base", "solver")]
    before = served.all(*requests)

    def fails() -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(served.engine.batch, "advance", fails)

    async def together() -> list[GenResult | BaseException]:
        return await asyncio.gather(*map(served.engine.generate, requests), return_exceptions=True)

    for _ in range(2):
        assert [type(answer) for answer in served.runner.run(together())] == [EngineDead, EngineDead]
    served.runner.run(served.engine.restart())
    assert served.all(*requests) == before


def test_a_cancelled_request_leaves_the_batch(served: Engine) -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(served.engine.generate(GenRequest(PROMPT, max_tokens=400)))
        while not served.engine.batch.rows:
            await asyncio.sleep(0.001)
        task.cancel()
        await served.engine.generate(GenRequest(PROMPT, max_tokens=4))
        assert not served.engine.batch.rows

    served.runner.run(cancelled())


@pytest.mark.parametrize("stale", ["model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight", "lm_head.weight"])
def test_one_stale_tensor_is_a_delivery_error(
    served: Engine, tmp_path: Path, stale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.reset()
    new = weights_of(like(served.folder, tmp_path / "new", seed=50))
    net: Any = served.engine.model.net
    named = net.named_parameters
    with monkeypatch.context() as patch:
        # All but one tensor arrive; of a tied pair, one half.
        patch.setattr(
            net,
            "named_parameters",
            lambda **options: [
                (name, parameter)
                for name, parameter in named(**options)
                if name.replace(".base_layer.", ".") != stale and not ("embed" in stale and name == "lm_head.weight")
            ],
        )
        if stale == "lm_head.weight" and stale not in new:
            net.lm_head.weight = torch.nn.Parameter(net.lm_head.weight.detach().clone())
        with pytest.raises(DeliveryError, match="does not compute with version 3"):
            served.runner.run(served.engine.update_weights(new, 3))
        with pytest.raises(DeliveryError, match="restart"):
            served.one(GenRequest(PROMPT, max_tokens=1))
    served.runner.run(served.engine.restart())
    served.runner.run(served.engine.update_weights(new, 4))
    assert set(served.one(GenRequest(PROMPT, max_tokens=2)).versions_T) == {4}


def test_it_computes_with_as_many_threads_as_it_is_told(served: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    advance, seen = RunningBatch.advance, list[int]()

    def counted(batch: RunningBatch) -> None:
        seen.append(torch.get_num_threads())
        advance(batch)

    monkeypatch.setattr(RunningBatch, "advance", counted)
    for threads in (1, 2):
        settings = TransformersSettings(served.folder, context=64, threads=threads)
        other: Served[TransformersEngine] = Served(TransformersEngine.start(settings))
        other.one(GenRequest((1,), max_tokens=1))
        assert seen.pop() == threads
        other.close()
