"""Measures `tiny-hidden`: success under guidelines of each kind, and how often its proposals help."""

import random

from envs.hidden_conventions import SETS, tool_set
from envs.interface import Interface
from envs.interface.guard import LeakGuard
from envs.profile import FailureProfile
from policies.curator.llm import LLMCurator
from policies.engine import Engine
from policies.prompting import ChatFormat
from policies.proposal_sampling import Writing
from policies.rollouts import RolloutJob, Rollouts
from policies.solver import Budgets, Solver
from policies.tiny.hidden import FULL, GENERAL, TOOL, guideline, helping, hidden_source
from policies.tiny.measure import PLAIN, Count
from policies.trajectory import derive_seed

OTHER = "other"
"""A guideline that names another tool and its code."""
WRITING = Writing(context=3072, max_tokens=256, constrained=False)
_PLAYED = 128
"""Dialogues of the profile that a curator reads."""
_AT_ONCE = 100
"""Least number of proposals for a profile, each of another set."""
_LATER = 16
"""Tasks by which the profile of each set begins later than the last one, so that more tools have entered."""


async def measure_hidden(engine: Engine, form: ChatFormat, *, tasks: int, proposals: int) -> dict[str, Count]:
    """Success at temperature 1 on dev tasks of all sets by interface, and shares of the proposals."""
    budgets = Budgets(prompt=2048, response=192, context=3072)
    rollouts = Rollouts(Solver(engine, form, budgets, temperature=1.0), concurrent=64)
    counts = {PLAIN: await _success(rollouts, PLAIN, tasks)}
    for kind in (FULL, TOOL, OTHER, GENERAL):
        counts[f"guideline: {kind}"] = await _success(rollouts, kind, tasks)
    for kind in (FULL, TOOL):
        counts[f"guideline: {kind}, held-out wording"] = await _success(rollouts, kind, tasks, held_out=True)
    return counts | await _proposals(rollouts, engine, form, proposals)


async def _success(rollouts: Rollouts, kind: str, tasks: int, *, held_out: bool = False) -> Count:
    source, jobs = hidden_source(), []
    for number in range(tasks):
        tools = tool_set(number % SETS)
        task = source.task(source.pool("dev", difficulty=str(number % SETS)).task_id(number))
        rng = random.Random(f"measured {kind} {number}")
        needed = next(tool for tool in tools if tool.name == task.turns[0].ground_truth[0].name)
        about = rng.choice([tool for tool in tools if tool != needed]) if kind == OTHER else needed
        text = guideline(rng, FULL if kind == OTHER else kind, about, held_out=held_out) if kind != PLAIN else ""
        interface = Interface(guidelines=(text,)) if text else Interface.plain()
        jobs.append(RolloutJob(task, derive_seed("measure", kind, task.id), interface))
    won = [bool(trajectory.reward) async for _, trajectory in rollouts.play(jobs)]
    return Count(sum(won), len(won))


async def _proposals(rollouts: Rollouts, engine: Engine, form: ChatFormat, count: int) -> dict[str, Count]:
    """Shares of the proposals that are accepted, name a tool of the set, and state the code of an argument."""
    read = named = helped = 0
    source, profiles = hidden_source(), min(SETS, max(1, count // _AT_ONCE))
    each = count // profiles
    for number in range(profiles):
        pool, profile = source.pool("train", difficulty=str(number)), FailureProfile()
        tasks = [source.task(pool.task_id(number * _LATER + place)) for place in range(_PLAYED)]
        jobs = [RolloutJob(task, derive_seed("profile", task.id)) for task in tasks]
        async for _, trajectory in rollouts.play(jobs):
            profile.add(trajectory.diagnosis, trajectory.reward)
        curator = LLMCurator(lambda: engine, form, WRITING, check=LeakGuard(tasks).check)
        seed = derive_seed("measured proposals", number)
        written = await curator.propose(profile, incumbent=Interface.plain(), n=each, round_number=0, seed=seed)
        interfaces = [proposal.value for proposal in written if proposal.value is not None and proposal.accepted]
        tools = tool_set(number)
        read += len(interfaces)
        named += sum(any(tool.name in text for text in found.guidelines for tool in tools) for found in interfaces)
        helped += sum(any(helping(text, tools) for text in found.guidelines) for found in interfaces)
    written_in_all = each * profiles
    return {
        "proposals: accepted": Count(read, written_in_all),
        "proposals: a tool named": Count(named, written_in_all),
        "proposals: an argument and its code": Count(helped, written_in_all),
    }
