"""What every engine keeps: tests that run for each, with a module's fixture `served`."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from policies.engine import BadRequest, Finish, GenRequest, GenResult
from tests.policies.models import VOCABULARY, greedy, logprobs_of
from tests.policies.served import Updated, like, load_any, weights_of

PROMPT = tuple(range(20, 60))


def check_alone_is_the_same(served: Updated[Any], *runs: Sequence[GenResult]) -> None:
    """Every seventh request, asked alone, gives what it gave in each run among all others."""
    for index, request in list(enumerate(mixed_requests()))[::7]:
        alone = served.one(request)
        for run in runs:
            assert run[index].token_ids_T == alone.token_ids_T
            assert run[index].sampled_logprobs_T == pytest.approx(alone.sampled_logprobs_T, abs=1e-4)


def mixed_requests() -> list[GenRequest]:
    """64 requests of all lengths, some with the same prompt."""
    rng = random.Random(0)
    prompts = [tuple(rng.randrange(VOCABULARY) for _ in range(rng.randrange(1, 300))) for _ in range(64)]
    prompts[24:40] = prompts[:1] * 16  # what is alike is computed once
    return [GenRequest(prompt, rng.randrange(20, 48), seed=index) for index, prompt in enumerate(prompts)]


def check_versions(old: Any, new: Any, request: GenRequest, result: GenResult, *, within: float) -> int:
    """Tokens of each version, 1 and 2, are sampled from its weights, the past included. Returns those of version 1."""
    assert list(result.versions_T) == sorted(result.versions_T)
    assert len(result.token_ids_T) == request.max_tokens
    turn = result.versions_T.count(1)
    before = logprobs_of(old, request.prompt_ids, result.token_ids_T)[:turn]
    after = logprobs_of(new, request.prompt_ids, result.token_ids_T)[turn:]
    assert result.sampled_logprobs_T == pytest.approx([*before, *after], abs=within)
    return turn


class EngineContract:
    """Subclassed as `TestContract` by the tests of each engine."""

    def test_greedy_tokens_and_logprobs_are_hugging_faces(self, served: Updated[Any]) -> None:
        model = served.reset()
        requests = [GenRequest(PROMPT[:length], max_tokens=24, temperature=0.0) for length in (1, 2, 17, 40)]
        for request, result in zip(requests, served.all(*requests), strict=True):
            assert list(result.token_ids_T) == greedy(model, request.prompt_ids, 24)
            expected = logprobs_of(model, request.prompt_ids, result.token_ids_T)
            assert result.sampled_logprobs_T == pytest.approx(expected, abs=1e-4)
            assert result.finish is Finish.LENGTH

    def test_sampled_and_scored_logprobs_are_recomputed_within_1e_4(self, served: Updated[Any]) -> None:
        model = served.reset()
        requests = [GenRequest((*PROMPT, 100 + seed), max_tokens=8 + seed, seed=seed) for seed in range(16)]
        for request, result in zip(requests, served.all(*requests), strict=True):
            recomputed = logprobs_of(model, request.prompt_ids, result.token_ids_T)
            assert result.sampled_logprobs_T == pytest.approx(recomputed, abs=1e-4)
            scored = served.score(request.prompt_ids + result.token_ids_T, len(request.prompt_ids))
            assert scored == pytest.approx(recomputed, abs=1e-4)

    def test_a_stop_token_ends_the_completion_and_is_kept(self, served: Updated[Any]) -> None:
        served.reset()
        free = served.one(GenRequest(PROMPT, max_tokens=16, seed=3))
        stop = free.token_ids_T[5]
        stopped = served.one(GenRequest(PROMPT, max_tokens=16, seed=3, stop_token_ids=(stop,)))
        assert stopped.finish is Finish.STOP
        assert stopped.token_ids_T == free.token_ids_T[: free.token_ids_T.index(stop) + 1]

    def test_after_each_update_the_engine_is_the_new_model(self, served: Updated[Any], tmp_path: Path) -> None:
        for version in range(1, 4):
            folder = like(served.folder, tmp_path / str(version), seed=100 + version)
            served.update(folder, version)
            result = served.one(GenRequest(PROMPT, max_tokens=12, temperature=0.0))
            model = load_any(folder)
            assert list(result.token_ids_T) == greedy(model, PROMPT, 12)
            assert result.sampled_logprobs_T == pytest.approx(logprobs_of(model, PROMPT, result.token_ids_T), abs=1e-4)
            assert set(result.versions_T) == {version}
            assert result.cached_tokens == 0, "the prefix cache outlived its weights"
            assert served.engine.report().versions["base"] == version

    def test_wrong_weights_are_refused_before_anything_is_touched(self, served: Updated[Any]) -> None:
        served.reset(version=5)
        weights, request = weights_of(served.folder), GenRequest(PROMPT, max_tokens=8, temperature=0.0)
        served.one(request)  # its opening is cached from here on, so that the same is computed before and after
        before = served.one(request)
        norm = "model.norm.weight"
        for wrong, named in (
            ({name: weights[name] for name in weights if name != norm}, f"'{norm}' is missing"),
            ({**weights, "extra": weights[norm]}, "'extra' is not a tensor"),
            ({**weights, norm: weights[norm][:5]}, "has shape"),
        ):
            with pytest.raises(BadRequest, match=named):
                served.runner.run(served.engine.update_weights(wrong, 6))
        assert served.one(request) == before

    @pytest.mark.parametrize(
        "bad",
        [
            *(GenRequest((), max_tokens=4), GenRequest(PROMPT, max_tokens=0), GenRequest(PROMPT, max_tokens=500)),
            *(GenRequest((VOCABULARY + 5,), max_tokens=4), GenRequest((-1,), max_tokens=4)),
            *(GenRequest(PROMPT, max_tokens=4, policy="nobody"), GenRequest(PROMPT, max_tokens=4, temperature=-1.0)),
            *(GenRequest(PROMPT, max_tokens=4, top_p=0.0), GenRequest(PROMPT, max_tokens=4, top_p=1.1)),
            GenRequest(PROMPT, max_tokens=4, json_schema={"type": "no such type"}),
        ],
    )
    def test_a_bad_request_is_refused_at_once_and_hurts_nobody(self, served: Updated[Any], bad: GenRequest) -> None:
        with pytest.raises(BadRequest):
            served.one(bad)
        assert len(served.one(GenRequest(PROMPT, max_tokens=4)).token_ids_T) == 4
