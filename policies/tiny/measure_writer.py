"""Measures `tiny-writer`: the shares of drafts that are specifications and that have tasks, and their variety.

Sampling is that of a run's writer, but without a grammar and without retries.
"""

import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from envs.profile import FailureProfile
from envs.sources import GENERATED
from envs.specifications import Rejected, Specification, writable
from policies.engine import Engine
from policies.prompting import ChatFormat
from policies.proposal_sampling import Writing
from policies.proposer import Proposal
from policies.rollouts import RolloutJob, Rollouts
from policies.task_writer import Known
from policies.task_writer.llm import LLMTaskWriter
from policies.tiny.measure import Count
from policies.tiny.proposals import draw_profile
from policies.tiny.specifications import DEEPEST, draw_known
from policies.tiny.world import generate_composition
from policies.trajectory import derive_seed

WRITING = Writing(context=4_096, max_tokens=256, constrained=False, retries=0)
AT_ONCE = 12
"""Specifications for one profile, as many as a run's writer writes."""
_PLAYED = 16
"""Dialogues between two profiles."""


@dataclass(frozen=True, slots=True)
class WriterMeasured:
    """Counts of drafts: readable ones, ones with a task, and the variety of these; `reasons` of those without."""

    read: Count
    made: Count
    distinct: int
    categories: Mapping[str, int]
    depths: Mapping[int, int]
    reasons: Mapping[str, int]


async def measure_writer(engine: Engine, form: ChatFormat, profiles: Sequence[FailureProfile]) -> WriterMeasured:
    """Writes `AT_ONCE` specifications for each profile, every second time with some of earlier windows, and counts.

    A specification has a task if one can be composed, and it is not deeper than the demonstrations.
    """
    source = writable(GENERATED)

    def check(specification: Specification) -> str | None:
        if specification.depth > DEEPEST:
            return f"specification: {specification.depth} turns are more than {DEEPEST}."
        made = source.compose(specification, derive_seed(0, "measured task") % 10**9)
        return made.reason if isinstance(made, Rejected) else None

    writer = LLMTaskWriter(lambda: engine, form, WRITING, source=source, check=check)
    drafts: list[Proposal[Specification]] = []
    for number, profile in enumerate(profiles):
        known: Sequence[Known] = draw_known(random.Random(f"measured 0 {number}")) if number % 2 else ()
        at = derive_seed(0, "measured window", number)
        drafts += await writer.propose(profile, known=known, n=AT_ONCE, seed=at)
    return counted(drafts)


def counted(drafts: Sequence[Proposal[Specification]]) -> WriterMeasured:
    """The counts of these drafts."""
    made = [each.value for each in drafts if each.value is not None and each.rejection is None]
    return WriterMeasured(
        read=Count(sum(each.value is not None for each in drafts), len(drafts)),
        made=Count(len(made), len(drafts)),
        distinct=len({each.key for each in made}),
        categories=Counter(str(each.category) for each in made),
        depths=Counter(each.depth for each in made),
        reasons=Counter(each.rejection for each in drafts if each.rejection is not None),
    )


def made_up_profiles(count: int) -> list[FailureProfile]:
    """New profiles with the distribution of the demonstrations; the first is empty, as when a run starts."""
    return [FailureProfile(), *(draw_profile(random.Random(f"measured profile 0 {n}")) for n in range(1, count))]


async def played_profiles(rollouts: Rollouts, count: int) -> AsyncIterator[FailureProfile]:
    """Cumulative profiles of a solver's dialogues on generated tasks, as a run collects them."""
    made = [generate_composition(number, split="train") for number in range(count * _PLAYED)]
    jobs = [RolloutJob(each.task, derive_seed("profiles", 0, each.task.id)) for each in made]
    profile = FailureProfile()
    played = 0
    async for _, trajectory in rollouts.play(jobs):
        profile.add(trajectory.diagnosis, trajectory.reward)
        played += 1
        if played % _PLAYED == 0:
            yield FailureProfile.from_dict(profile.to_dict())
