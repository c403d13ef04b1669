"""The scripted engine keeps the engine interface: cuts, log-probs, records, deaths."""

import asyncio

import pytest

from policies.engine import Adapter, BadRequest, Engine, EngineDead, Finish, GenRequest
from tests.policies.scripted_engine import ScriptedEngine

PROMPT = (5, 6, 7)


def counts_up(request: GenRequest) -> range:
    return range(request.prompt_ids[-1] + 1, request.prompt_ids[-1] + 101)


def made(**options: int) -> ScriptedEngine:
    return ScriptedEngine(counts_up, logprob=lambda request, token: -len(request.prompt_ids) - token / 100, **options)


def test_answers_are_cut_as_samples_are() -> None:
    async def play(engine: Engine) -> None:
        long = await engine.generate(GenRequest(PROMPT, max_tokens=3))
        assert (long.token_ids_T, long.finish, long.versions_T) == ((8, 9, 10), Finish.LENGTH, (0, 0, 0))
        stopped = await engine.generate(GenRequest(PROMPT, max_tokens=9, stop_token_ids=(9, 8)))
        assert (stopped.token_ids_T, stopped.finish) == ((8,), Finish.STOP)
        assert long.sampled_logprobs_T == pytest.approx((-3.08, -4.09, -5.10))
        assert await engine.score(PROMPT + long.token_ids_T, 3, policy="base") == long.sampled_logprobs_T

    asyncio.run(play(made()))


def test_an_answer_that_no_engine_could_give_is_told() -> None:
    with pytest.raises(ValueError, match="100 tokens without a stop token"):
        asyncio.run(made().generate(GenRequest(PROMPT, max_tokens=200)))


def test_updates_are_recorded_and_change_the_version() -> None:
    async def play() -> None:
        engine = made()
        adapter = Adapter({}, {})
        with pytest.raises(BadRequest, match="'solver' is not loaded"):
            await engine.generate(GenRequest(PROMPT, max_tokens=1, policy="solver"))
        with pytest.raises(BadRequest, match="name of its own"):
            await engine.update_adapter("base", adapter, 1)
        await engine.update_adapter("solver", adapter, 4)
        weights: dict[str, object] = {}
        await engine.update_weights(weights, 2)  # type: ignore[arg-type]
        assert engine.adapter_updates == [("solver", adapter, 4)]
        assert engine.weight_updates == [(weights, 2)]
        assert engine.report().versions == {"base": 2, "solver": 4}
        assert (await engine.generate(GenRequest(PROMPT, max_tokens=2, policy="solver"))).versions_T == (4, 4)
        assert [request.policy for request in engine.requests] == ["solver", "solver"]

    asyncio.run(play())


def test_it_dies_when_told_and_a_restart_brings_it_back() -> None:
    async def play() -> None:
        engine = made()
        request = GenRequest(PROMPT, max_tokens=1)
        engine.die_after(2)
        await engine.generate(request)
        for _ in range(2):
            with pytest.raises(EngineDead):
                await engine.generate(request)
        with pytest.raises(EngineDead):
            await engine.update_weights({}, 1)
        await engine.restart()
        assert engine.restarts == 1
        await engine.generate(request)
        await engine.close()
        with pytest.raises(EngineDead):
            await engine.generate(request)

    asyncio.run(play())
