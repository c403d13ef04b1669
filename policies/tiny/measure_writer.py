"""Measuring what `tiny-writer` writes: how much of it is a specification, how much has a task, and how varied it is.

Sampled as a writer of a run samples, but without a grammar and with no second try.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from envs.profile import FailureProfile
from envs.sources import GENERATED
from envs.specifications import Rejected, Specification, writable
from policies.documents import Writing
from policies.engine import Engine
from policies.prompting import ChatFormat
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
"""How it is sampled."""
AT_ONCE = 12
"""Specifications for one profile, as many as a run's writer writes."""
_PLAYED = 16
"""Dialogues from one profile of what was played to the next."""


@dataclass(frozen=True, slots=True)
class WriterMeasured:
    """Of what was written: what could be read as a specification, what has a task, and what that is like."""

    read: Count
    made: Count
    distinct: int
    categories: Mapping[str, int]
    depths: Mapping[int, int]
    reasons: Mapping[str, int]
    """Why there is no task, and how often."""


async def measure_writer(
    engine: Engine, form: ChatFormat, profiles: Sequence[FailureProfile], *, seed: int = 0
) -> WriterMeasured:
    """Has `AT_ONCE` specifications written for each profile, half of them with some of earlier windows, and counts.

    A specification has a task where one of it can be composed, and is not deeper than what was shown to the model.
    """
    source = writable(GENERATED)

    def check(specification: Specification) -> str | None:
        if specification.depth > DEEPEST:
            return f"specification: {specification.depth} turns are more than {DEEPEST}."
        made = source.compose(specification, derive_seed(seed, "measured task") % 10**9)
        return made.reason if isinstance(made, Rejected) else None

    writer = LLMTaskWriter(lambda: engine, form, WRITING, source=source, check=check)
    drafts: list[Proposal[Specification]] = []
    for number, profile in enumerate(profiles):
        known: Sequence[Known] = draw_known(random.Random(f"measured {seed} {number}")) if number % 2 else ()
        at = derive_seed(seed, "measured window", number)
        drafts += await writer.propose(profile, known=known, n=AT_ONCE, seed=at)
    return counted(drafts)


def counted(drafts: Sequence[Proposal[Specification]]) -> WriterMeasured:
    """What was measured, of these drafts."""
    made = [each.value for each in drafts if each.value is not None and each.rejection is None]
    return WriterMeasured(
        read=Count(sum(each.value is not None for each in drafts), len(drafts)),
        made=Count(len(made), len(drafts)),
        distinct=len({each.key for each in made}),
        categories=Counter(str(each.category) for each in made),
        depths=Counter(each.depth for each in made),
        reasons=Counter(each.rejection for each in drafts if each.rejection is not None),
    )


def made_up_profiles(count: int, *, seed: int = 0) -> list[FailureProfile]:
    """Profiles as demonstrations have them, but none of theirs; the first is empty, as that of a run's begin is."""
    return [FailureProfile(), *(draw_profile(random.Random(f"measured profile {seed} {n}")) for n in range(1, count))]


async def played_profiles(rollouts: Rollouts, count: int, *, seed: int = 0) -> AsyncIterator[FailureProfile]:
    """Profiles of what a solver plays on generated tasks, as a run collects them: each goes on from the one before."""
    made = [generate_composition(number, split="train") for number in range(count * _PLAYED)]
    jobs = [RolloutJob(each.task, derive_seed("profiles", seed, each.task.id)) for each in made]
    profile = FailureProfile()
    played = 0
    async for _, trajectory in rollouts.play(jobs):
        profile.add(trajectory.diagnosis, trajectory.reward)
        played += 1
        if played % _PLAYED == 0:
            yield FailureProfile.from_dict(profile.to_dict())
