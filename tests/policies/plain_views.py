"""Plays under cues, takes plain views, checks and counts them.

A trajectory follows from the seed and its number. Its policy is a script with the task and the cues: it makes
right calls, wrong ones, hostile texts, abstentions and quotations, and budgets cut it off.
"""

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from envs.bfcl.tasks import load_tasks
from envs.dialects import DIALECTS
from envs.dialogue import Dialogue, Protocol
from envs.interface import Interface
from envs.interface.value import CueKind, RecoveryLevel, SchemaCue
from envs.task import Task
from envs.toolworld import generate
from policies import tiny
from policies.engine import GenRequest, GenResult
from policies.plain_view import PlainView
from policies.prompting import ChatFormat
from policies.solver import Budgets, Solver
from policies.trajectory import Trajectory
from tests.envs.advice import ADVICE
from tests.fuzz.completions import KINDS
from tests.policies.chat_models import chat_format, chat_tokenizer
from tests.policies.scripted_engine import ScriptedEngine

WIDE = Budgets(prompt=60_000, response=4096, context=131_072)


@cache
def forms() -> Mapping[str, ChatFormat]:
    """Every dialect in the format of its family, and the shipped model's."""
    llama = chat_tokenizer("llama3_json")
    made = {
        "qwen": chat_format("qwen"),
        "llama3_json": chat_format("llama3_json"),
        "toolace": ChatFormat(llama, DIALECTS["toolace"], name="toolace"),
        "tiny": ChatFormat.load(tiny.FOLDER, DIALECTS["qwen"]),
    }
    assert {form.dialect.name for form in made.values()} == set(DIALECTS)
    return made


def random_interface(rng: random.Random) -> Interface:
    """Any interface that is not plain; each kind of cue alone as well as together with others."""
    while True:
        kinds = [kind for kind in CueKind if rng.random() < 0.3]
        levels = rng.choice([[RecoveryLevel.NONE], list(RecoveryLevel)])
        made = Interface(
            schema_cues=tuple(SchemaCue(kind) for kind in kinds),
            recovery=rng.choice(levels),
            guidelines=tuple(rng.sample(ADVICE, rng.choice((0, 0, 1, 2, 4)))),
        )
        if not made.is_plain:
            return made


class Script(ScriptedEngine):
    """Says the given token ids, one completion after another, and then the last one for ever.

    The log-prob of a token identifies the token and its place.
    """

    def __init__(self, completions: Sequence[Sequence[int]]) -> None:
        waiting = iter(completions)
        last = completions[-1]
        super().__init__(lambda _: next(waiting, last))

    async def generate(self, request: GenRequest) -> GenResult:
        tokens, finish = self.cut(request)
        places = range(len(request.prompt_ids), len(request.prompt_ids) + len(tokens))
        logprobs = tuple(-(place + token / 1e6) for place, token in zip(places, tokens, strict=True))
        return GenResult(tokens, logprobs, (7,) * len(tokens), finish, cached_tokens=len(request.prompt_ids) // 2)


def play(
    task: Task,
    form: ChatFormat,
    completions: Sequence[str | Sequence[int]],
    *,
    interface: Interface,
    protocol: Protocol = Protocol.SEAL,
    budgets: Budgets = WIDE,
    seed: int = 0,
) -> Trajectory:
    """The trajectory of a policy that says these completions, as texts or token ids, and then repeats the last one."""
    said = [form.completion(each) if isinstance(each, str) else each for each in completions]
    engine = Script([each if each[-1] in form.stop_token_ids else [*each, *each] * 5_000 for each in said])
    solver = Solver(engine, form, budgets)
    return asyncio.run(solver.play(task, seed=seed, interface=interface, protocol=protocol))


@dataclass(frozen=True)
class Case:
    """A trajectory with what it was played with."""

    task: Task
    form: ChatFormat
    interface: Interface
    budgets: Budgets
    trajectory: Trajectory


def random_case(seed: int, number: int) -> Case:
    rng = random.Random(f"plain views {seed} {number}")
    task = rng.choice(list(load_tasks().values())) if rng.random() < 0.3 else generate(rng.randrange(400))
    form = rng.choice(list(forms().values()))
    interface = random_interface(rng)
    protocol = rng.choice(list(Protocol))
    completions = list(_completions(rng, task, form))
    budgets = _budgets(rng, task, form, interface)
    trajectory = play(task, form, completions, interface=interface, protocol=protocol, budgets=budgets, seed=number)
    return Case(task, form, interface, budgets, trajectory)


def _budgets(rng: random.Random, task: Task, form: ChatFormat, interface: Interface) -> Budgets:
    kind = rng.random()
    if kind < 0.7:
        return WIDE
    if kind < 0.8:
        return Budgets(prompt=60_000, response=rng.randint(5, 60), context=131_072)
    if kind < 0.85:
        return Budgets(prompt=60_000, response=4096, context=131_072, steps=rng.randint(1, 6))
    _, info = Dialogue(task, dialect=form.dialect, interface=interface).reset()
    opening = len(form.opening(info["messages"], info["tools"]))
    if kind < 0.88:
        return Budgets(prompt=opening - 1, response=4096, context=131_072)
    return Budgets(prompt=opening, response=4096, context=opening + rng.randint(0, 900))


def _completions(rng: random.Random, task: Task, form: ChatFormat) -> Iterator[str | Sequence[int]]:
    """The ground truth, with other completions among it in a share of the turns that is the trajectory's own."""
    dialect = form.dialect
    share = rng.choice((0.0, 0.0, 0.3, 0.3, 0.8))
    kinds = {made: weight for name, (weight, made) in KINDS.items() if name != "many"}
    recent = [dialect.render_calls(turn.ground_truth) for turn in task.turns]
    for turn in task.turns:
        while rng.random() < share:
            if rng.random() < 0.1:
                ids = [rng.randrange(700) for _ in range(rng.randint(1, 60))]
                yield [*(each for each in ids if each not in form.stop_token_ids), form.stop_token_ids[-1]]
            else:
                (made,) = rng.choices(list(kinds), list(kinds.values()))
                yield made(rng, task, dialect, recent).encode("utf-8", "replace").decode()[:4_000]
        if turn.ground_truth and rng.random() < 0.95:
            yield dialect.render_calls(turn.ground_truth)
        yield rng.choice(("Done.", "I cannot do this.", "", "Which one do you mean?"))


def check_view(view: PlainView, case: Case) -> None:
    """Asserts, with a plain dialogue of its own, that a view is the trajectory's tokens among plain ones.

    Whatever was not sampled is, id for id, what a plain dialogue renders, so that no token of a cue is there.
    """
    trajectory, form = case.trajectory, case.form
    dialogue = Dialogue(case.task, dialect=form.dialect, protocol=trajectory.protocol, context=case.budgets.context)
    _, info = dialogue.reset()
    expected = form.opening(info["messages"], info["tools"])
    steps = [step for turn in trajectory.trace.turns for step in turn]
    place = 0
    assert len(view.sampled) == len(trajectory.sampled)
    for number, (span, original) in enumerate(zip(view.sampled, trajectory.sampled, strict=True)):
        assert view.token_ids_T[place : span.begin] == expected, "what was read is not plain"
        here, there = slice(span.begin, span.end), slice(original.begin, original.end)
        assert view.token_ids_T[here] == trajectory.token_ids_T[there]
        assert view.sampled_logprobs_T[here] == trajectory.sampled_logprobs_T[there]
        assert view.versions_T[here] == trajectory.versions_T[there]
        assert all(view.mask_T[here])
        assert not any(view.mask_T[place : span.begin])
        place, expected = span.end, ()
        if number < len(steps):
            *_, info = dialogue.step(form.text(view.token_ids_T[here]))
            expected = () if dialogue.over else form.continuation(info["messages"])
    assert view.token_ids_T[place:] == expected, "what was read is not plain"
    dialogue.truncate()
    assert float(dialogue.success) == trajectory.reward
    assert dialogue.diagnosis == trajectory.diagnosis
    completions = [step.completion for turn in dialogue.trace.turns for step in turn]
    assert completions == [step.completion for step in steps]
    lengths = {len(view.token_ids_T), len(view.mask_T), len(view.sampled_logprobs_T), len(view.versions_T)}
    assert lengths == {len(view.token_ids_T)}
    assert sum(view.mask_T) == trajectory.sampled_tokens
