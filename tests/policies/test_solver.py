"""The solver on scripted engines: exact tokens, budgets, seeds, deaths and concurrency."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.diagnosis import Label
from envs.dialogue import Protocol
from envs.errors import UserError
from envs.interface import Interface
from envs.toolworld import tasks
from policies.engine import Engine, EngineDead, GenRequest, GenResult
from policies.rollouts import MAX_RESTARTS, RolloutJob, Rollouts
from policies.solver import Budgets, Solver
from policies.trajectory import End, Trajectory, derive_seed, interface_id
from tests.policies.chat_models import chat_format, chat_tokenizer
from tests.policies.scripted_engine import ScriptedEngine
from tests.policies.scripts import Answer, DiesAtOnce, babble, collected, oracle

BUDGETS = Budgets(prompt=60_000, response=512, context=65_536)
TASKS = tasks(12, split="dev")


FORM = chat_format("qwen")
VOCABULARY = len(chat_tokenizer("qwen"))


def scripted(answer: Answer | None = None) -> ScriptedEngine:
    """An engine that babbles, if not told otherwise."""
    said = answer or babble(FORM, VOCABULARY, tasks=TASKS)
    return ScriptedEngine(said, logprob=lambda _, token: -token / 1000, context=65_536, vocabulary=VOCABULARY)


def solver_on(engine: Engine, **budgets: int) -> Solver:
    return Solver(engine, FORM, replace(BUDGETS, **budgets))


def play_all(rollouts: Rollouts, jobs: list[RolloutJob]) -> list[Trajectory]:
    return asyncio.run(collected(rollouts, jobs))


def play(solver: Solver, number: int, seed: int = 0, protocol: Protocol = Protocol.OFFICIAL) -> Trajectory:
    return asyncio.run(solver.play(TASKS[number], seed=seed, protocol=protocol))


@settings(max_examples=30, deadline=None)
@given(number=st.integers(0, 11), seed=st.integers(0, 2**62), protocol=st.sampled_from(list(Protocol)))
def test_a_trajectory_is_what_the_engine_saw_and_sampled(number: int, seed: int, protocol: Protocol) -> None:
    engine = scripted()
    trajectory = play(solver_on(engine), number, seed, protocol)
    assert len(engine.requests) == len(trajectory.sampled)
    sampled_anywhere = [False] * len(trajectory.token_ids_T)
    for request, span in zip(engine.requests, trajectory.sampled, strict=True):
        assert request.prompt_ids == trajectory.token_ids_T[: span.begin]
        result = asyncio.run(scripted().generate(request))
        assert trajectory.token_ids_T[span.begin : span.end] == result.token_ids_T
        assert trajectory.sampled_logprobs_T[span.begin : span.end] == result.sampled_logprobs_T
        assert trajectory.versions_T[span.begin : span.end] == result.versions_T
        sampled_anywhere[span.begin : span.end] = [True] * len(result.token_ids_T)
    assert trajectory.mask_T == tuple(sampled_anywhere)
    read = [place for place, mask in enumerate(trajectory.mask_T) if not mask]
    assert {(trajectory.sampled_logprobs_T[place], trajectory.versions_T[place]) for place in read} == {(0.0, -1)}
    assert len(trajectory.diagnosis.turns) == len(TASKS[number].turns)


@pytest.mark.parametrize("dialect", ["qwen", "llama3_json"])
def test_ground_truth_succeeds_and_is_written_in_json_as_tokens_and_words(dialect: str) -> None:
    form = chat_format(dialect)
    engine = ScriptedEngine(oracle(form, TASKS), context=65_536)
    for number in range(len(TASKS)):
        trajectory = play(Solver(engine, form, BUDGETS), number)
        assert (trajectory.reward, trajectory.end) == (1.0, End.FINISHED)
        row = trajectory.to_dict()
        assert row["token_ids"] == list(trajectory.token_ids_T)
        assert sum(row["mask"]) == trajectory.sampled_tokens
        said = [step["completion"] for turn in row["turns"] for step in turn["steps"]]
        spans = [trajectory.token_ids_T[span.begin : span.end] for span in trajectory.sampled]
        assert said == [form.text(span) for span in spans]


def test_requests_have_seeds_of_their_own_and_the_dialogues_seed_repeats_them() -> None:
    engine = scripted()
    solver = Solver(engine, FORM, BUDGETS, temperature=0.7, top_p=0.9)
    first = play(solver, 0, seed=5)
    seeds = [request.seed for request in engine.requests]
    assert seeds == [derive_seed(5, step) for step in range(len(seeds))]
    assert len(set(seeds)) == len(seeds) > 1
    assert {(request.temperature, request.top_p) for request in engine.requests} == {(0.7, 0.9)}
    assert play(solver, 0, seed=5) == first
    assert play(solver, 0, seed=6).token_ids_T != first.token_ids_T


@pytest.mark.parametrize(
    ("tight", "end"), [({"prompt": 50}, End.PROMPT), ({"response": 3}, End.RESPONSE), ({"steps": 2}, End.STEPS)]
)
def test_a_spent_budget_ends_the_dialogue_as_not_reached(tight: dict[str, int], end: End) -> None:
    for number in range(len(TASKS)):
        trajectory = play(solver_on(scripted(oracle(FORM, TASKS)), **tight), number)
        assert (trajectory.end, trajectory.reward) == (end, 0.0)
        assert trajectory.diagnosis.labels[-1] is Label.NOT_REACHED


def test_every_context_from_nothing_to_enough_ends_cleanly() -> None:
    engine = scripted(oracle(FORM, TASKS))
    whole = play(solver_on(engine), 0)
    length, opening = len(whole.token_ids_T), whole.sampled[0].begin
    for context in (*range(1, length, 23), opening - 1, opening, opening + 1, length - 1, length):
        trajectory = play(solver_on(engine, prompt=context, context=context), 0)
        if len(trajectory.token_ids_T) <= context:
            assert trajectory.token_ids_T == whole.token_ids_T[: len(trajectory.token_ids_T)]
        expected = End.PROMPT if opening > context else End.CONTEXT if context < length else End.FINISHED
        assert trajectory.end is expected, context
        assert trajectory.sampled_tokens <= context
        assert (trajectory.reward == 1.0) == (expected is End.FINISHED)


def test_a_completion_cut_by_its_budget_is_not_acted_on() -> None:
    call = FORM.completion(FORM.dialect.render_calls(TASKS[0].turns[0].ground_truth))
    trajectory = play(solver_on(scripted(lambda _: (*call[:-1], *call[:-1])), response=len(call) - 1), 0)
    assert trajectory.end is End.RESPONSE
    assert not any(trajectory.trace.turns)


def test_many_dialogues_at_once_are_each_as_alone_and_no_more_than_allowed() -> None:
    jobs = [RolloutJob(task, seed) for seed in range(3) for task in TASKS]
    engine = CountsConcurrent(babble(FORM, VOCABULARY, tasks=TASKS), context=65_536)
    together = play_all(Rollouts(solver_on(engine), concurrent=7), jobs)
    assert engine.most == 7
    quiet = CountsConcurrent(babble(FORM, VOCABULARY, tasks=TASKS), context=65_536)
    for job, trajectory in zip(jobs, together, strict=True):
        assert trajectory == asyncio.run(solver_on(quiet).play(job.task, seed=job.seed))


class CountsConcurrent(ScriptedEngine):
    """Counts the most requests that were ever in progress at once."""

    now = most = 0

    async def generate(self, request: GenRequest) -> GenResult:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await super().generate(request)
        finally:
            self.now -= 1


def test_a_dead_engine_changes_no_result() -> None:
    jobs = [RolloutJob(task, seed) for seed in range(3) for task in TASKS]
    calm = play_all(Rollouts(solver_on(scripted())), jobs)
    for death in (1, 2, 60):
        engine = scripted()
        engine.die_after(death)
        rollouts = Rollouts(solver_on(engine), concurrent=16)
        assert play_all(rollouts, jobs) == calm
        assert rollouts.restarts == engine.restarts == 1, "all dialogues share one restart"


def test_an_engine_that_keeps_dying_is_given_up() -> None:
    engine = DiesAtOnce(oracle(FORM, TASKS), context=65_536)
    engine.die_after(1)
    with pytest.raises(EngineDead, match=f"after {MAX_RESTARTS} restarts"):
        play_all(Rollouts(solver_on(engine)), [RolloutJob(task, 0) for task in TASKS])
    assert engine.restarts == MAX_RESTARTS


def test_closing_the_iterator_cancels_what_is_under_way() -> None:
    engine = scripted()

    async def first_only() -> None:
        played = Rollouts(solver_on(engine), concurrent=4).play([RolloutJob(task, 0) for task in TASKS * 20])
        await anext(played)
        await played.aclose()
        asked = len(engine.requests)
        await asyncio.sleep(0.05)
        assert len(engine.requests) == asked

    asyncio.run(first_only())


def test_impossible_budgets_are_refused() -> None:
    for wrong in ({"prompt": 0}, {"response": -1}, {"steps": 0}, {"context": 10}, {"prompt": True}):
        with pytest.raises(UserError, match="budgets"):
            Budgets(**wrong)


def test_an_interface_has_a_stable_name() -> None:
    assert interface_id(Interface.plain()) == "plain"
    one, other = Interface(guidelines=("Be brief.",)), Interface(guidelines=("Be polite.",))
    assert interface_id(one) == interface_id(Interface(guidelines=("Be brief.",))) != interface_id(other)
