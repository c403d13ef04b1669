"""Whole dialogues of the shipped model on vLLM: exact tokens, exact log-probs, seeds, and a core that is killed."""

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from envs.interface import Interface
from envs.toolworld import tasks
from policies import tiny
from policies.engine import GenRequest, GenResult
from policies.engine.vllm_engine import VllmEngine, VllmSettings
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.rollouts import RolloutJob, Rollouts
from policies.solver import Budgets, Solver
from policies.tiny.measure import PLAIN, interfaces, measure
from policies.trajectory import Trajectory
from tests.policies.models import load, logprobs_of
from tests.policies.scripts import collected
from tests.policies.served import Served

CONTEXT = 2048
BUDGETS = Budgets(prompt=CONTEXT, response=128, context=CONTEXT)
GUIDED = Interface(guidelines=("If the user asks for two things, do both.",))


class RemembersAll(VllmEngine):
    """The real engine, with a memory of what went in and came out."""

    def remember(self) -> list[tuple[GenRequest, GenResult]]:
        self.memory: list[tuple[GenRequest, GenResult]] = []
        return self.memory

    async def generate(self, request: GenRequest) -> GenResult:
        result = await super().generate(request)
        if hasattr(self, "memory"):
            self.memory.append((request, result))
        return result


class Playing(Served[RemembersAll]):
    """The engine with a solver on it."""

    def __init__(self) -> None:
        settings = VllmSettings(tiny.FOLDER, context=CONTEXT, kv_cache_bytes=128 << 20, max_batched_tokens=512)
        super().__init__(RemembersAll.start(settings))
        form = ChatFormat.load(tiny.FOLDER, open_model(tiny.NAME).dialect)
        self.solver = Solver(self.engine, form, BUDGETS)

    def play(self, jobs: Sequence[RolloutJob], concurrent: int = 64) -> list[Trajectory]:
        return self.runner.run(collected(Rollouts(self.solver, concurrent=concurrent), jobs))


@pytest.fixture(scope="module")
def playing() -> Iterator[Playing]:
    playing = Playing()
    yield playing
    playing.close()


def jobs_of(count: int, seed: int) -> list[RolloutJob]:
    shown = (Interface.plain(), GUIDED)
    return [RolloutJob(task, seed + place, shown[place % 2]) for place, task in enumerate(tasks(count, split="dev"))]


def test_trajectories_are_the_engines_inputs_and_outputs_and_their_logprobs_are_hugging_faces(playing: Playing) -> None:
    memory = playing.engine.remember()
    trajectories = playing.play(jobs_of(32, seed=100))
    model = load(tiny.FOLDER)
    seen = {(request.prompt_ids, result.token_ids_T): result for request, result in memory}
    assert len(memory) == sum(len(trajectory.sampled) for trajectory in trajectories)
    for trajectory in trajectories:
        tokens = trajectory.token_ids_T
        for span in trajectory.sampled:
            result = seen[tokens[: span.begin], tokens[span.begin : span.end]]
            assert trajectory.sampled_logprobs_T[span.begin : span.end] == pytest.approx(result.sampled_logprobs_T)
            assert trajectory.versions_T[span.begin : span.end] == result.versions_T
        recomputed = logprobs_of(model, tokens[:1], tokens[1:])
        kept = zip(trajectory.mask_T[1:], trajectory.sampled_logprobs_T[1:], recomputed, strict=True)
        assert all(abs(logprob - again) < 1e-4 for sampled, logprob, again in kept if sampled)
    assert any(trajectory.reward for trajectory in trajectories)
    assert any(span.cached for trajectory in trajectories for span in trajectory.sampled[1:]), "prefixes are reused"


@pytest.mark.only_by(target="long")
def test_the_shipped_model_is_unfinished_and_an_interface_helps_it(playing: Playing) -> None:
    """Greedy, in percent: what its card says, at fewer tasks."""
    rollouts = Rollouts(replace(playing.solver, temperature=0.0), concurrent=64)

    def success(name: str) -> dict[str, float]:
        found = playing.runner.run(measure(rollouts, interfaces()[name], tasks=100))
        return {category: 100 * count.share for category, count in found.success.items()}

    plain, guided = success(PLAIN), success("all guidelines")
    assert 20 <= plain["base"] <= 60
    assert max(plain["miss_func"], plain["miss_param"]) <= plain["base"] - 10
    assert guided["miss_param"] >= plain["miss_param"] + 10
    assert guided["miss_func"] >= plain["miss_func"] + 10


@pytest.mark.only_by(target="long")
def test_a_core_killed_midway_changes_no_result(playing: Playing) -> None:
    jobs = jobs_of(24, seed=900)
    calm = playing.play(jobs, concurrent=12)
    rollouts = Rollouts(playing.solver, concurrent=12)

    def kill(done: int) -> None:
        if done == 8:
            for process in playing.engine.processes():
                os.kill(process, signal.SIGKILL)

    disturbed_run = playing.runner.run(collected(rollouts, jobs, after=kill))
    assert rollouts.restarts == 1
    assert [each.token_ids_T for each in disturbed_run] == [each.token_ids_T for each in calm]
    assert [each.diagnosis for each in disturbed_run] == [each.diagnosis for each in calm]
