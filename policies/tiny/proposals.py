"""Demonstrations for a curator: made-up failure profiles, each with a proposal that mostly fits it.

Most proposals advise against the most frequent failure; some advise something else, or harm. So the tiny base starts as
a curator with readable proposals that prefer what fits, and with room to learn.
"""

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from envs.diagnosis import Diagnosis, Label, TurnDiagnosis
from envs.dialogue import Message
from envs.interface import CueKind, Interface, RecoveryLevel, SchemaCue
from envs.profile import FailureProfile
from envs.sources import BENCHMARK, get_source
from envs.task import Category
from envs.verifier import Outcome, TurnVerdict
from policies.curator.base import Tried
from policies.curator.proposal_text import messages_for, write_proposal
from policies.tiny.behaviours import CURATOR_WORDINGS, FIRST_WORDINGS, Behaviour, Wordings
from policies.tiny.demonstrations import draw_interface

CAUSES: Mapping[Label, tuple[Behaviour, ...]] = MappingProxyType(
    {
        Label.SPURIOUS_TOOL_CALL: (Behaviour.ABSTAIN, Behaviour.ASK),
        Label.MISSING_TOOL_CALL: (Behaviour.SECOND_REQUEST,),
        Label.STATE_MISMATCH: (Behaviour.SECOND_REQUEST, Behaviour.ASK),
        Label.RESPONSE_MISMATCH: (Behaviour.SECOND_REQUEST,),
        Label.RECOVERY_FAILURE: (Behaviour.RECOVER,),
        Label.INVALID_TOOL_CALL: (Behaviour.ABSTAIN,),
        Label.ARGUMENT_MISMATCH: (Behaviour.ASK,),
    }
)
"""Failure label → behaviours whose lack causes it."""
_OTHERS = (Label.PASS, Label.CORRECT_ABSTENTION, Label.INHERITED_STATE)
_FITTING = 0.75
"""Share of guidelines that are drawn by the frequency of failures; the others are drawn from all."""

_GARBLED = 0.2
"""Share of tried interfaces whose guidelines are garbled."""


@dataclass(frozen=True, slots=True)
class ProposalDemonstration:
    """A curator's or a task writer's prompt, and answers to it that do not know of each other."""

    messages: tuple[Message, ...]
    answers: tuple[str, ...]


def proposal_demonstrations(
    seed: int, *, wordings: Wordings = CURATOR_WORDINGS, answers: int = 1
) -> Iterator[ProposalDemonstration]:
    """Endless demonstrations with so many answers to a prompt, the same for a seed in every process.

    Some prompts list what has been tried, garbled at times, as the samples of a small curator are. The prompts of
    `tiny`, with `FIRST_WORDINGS`, do not.
    """
    for number in itertools.count():
        rng = random.Random(f"proposal {seed} {number}")
        profile = draw_profile(rng)
        incumbent, before = draw_interface(rng, wordings), draw_interface(rng, wordings)
        tried = _draw_tried(rng, wordings) if wordings != FIRST_WORDINGS else ()
        messages = messages_for(profile, incumbent=incumbent, before=before, tried=tried)
        drawn = (_draw_proposal(rng, profile, wordings) for _ in range(answers))
        yield ProposalDemonstration(messages, tuple(map(write_proposal, drawn)))


def draw_profile(rng: random.Random) -> FailureProfile:
    """A profile of made-up diagnoses."""
    weights = {label: rng.expovariate(1.0) ** 2 for label in CAUSES}
    weights |= {label: rng.expovariate(0.5) for label in _OTHERS}
    profile = FailureProfile()
    if rng.random() < 0.5:
        _add(rng, profile, weights)
        profile.start_window()
    _add(rng, profile, weights)
    return profile


def _add(rng: random.Random, profile: FailureProfile, weights: Mapping[Label, float]) -> None:
    tools = list(get_source(BENCHMARK).tools().values())
    some = rng.sample(tools, 10)
    for _ in range(rng.choice((48, 96, 192))):
        labels = rng.choices(list(weights), list(weights.values()), k=rng.choice((1, 2, 2, 3, 3, 4)))
        turns = []
        for place, label in enumerate(labels):
            tool = rng.choice(some) if label.is_failure and rng.random() < 0.5 else None
            argument = None
            if tool is not None and tool.parameters and label is Label.ARGUMENT_MISMATCH:
                argument = rng.choice(tool.parameters).name
            verdict = TurnVerdict(place, Outcome.UNSCORED)
            name = tool.name if tool else None
            turns.append(TurnDiagnosis(place, label, "missing", verdict, tool=name, argument=argument))
        success = not any(label.is_failure for label in labels)
        profile.add(Diagnosis("made up", str(rng.choice(list(Category))), tuple(turns), success), float(success))


def _draw_tried(rng: random.Random, wordings: Wordings) -> list[Tried]:
    interfaces = [draw_interface(rng, wordings) for _ in range(rng.choice((0, 1, 2, 4)))]
    gains = sorted((rng.gauss(0.05, 0.1) for _ in interfaces), reverse=True)
    garbled = [
        replace(each, guidelines=tuple(_garbled(rng, text) for text in each.guidelines))
        if rng.random() < _GARBLED
        else each
        for each in interfaces
    ]
    return [Tried(each, gain, rng.uniform(0.04, 0.15)) for each, gain in zip(garbled, gains, strict=True)]


def _garbled(rng: random.Random, text: str) -> str:
    """The text with some words left out, doubled, cut or in another place."""
    words = []
    for word in text.split():
        words += rng.choice(([word], [word], [word], [word, word], [], [word[: rng.randint(1, len(word))]]))
    if rng.random() < 0.5:
        rng.shuffle(words)
    return " ".join(words) or text


def _draw_proposal(rng: random.Random, profile: FailureProfile, wordings: Wordings) -> Interface:
    pressure = dict.fromkeys(Behaviour, 0.0)
    for label, behaviours in CAUSES.items():
        for behaviour in behaviours:
            pressure[behaviour] += profile.prevalence(label) / len(behaviours)
    guidelines: dict[str, None] = {}
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        fitting = rng.random() < _FITTING and any(pressure.values())
        weights = [pressure[each] ** 2 for each in Behaviour] if fitting else [1.0] * len(Behaviour)
        (behaviour,) = rng.choices(list(Behaviour), weights)
        both = behaviour in (Behaviour.ABSTAIN, Behaviour.ASK) and rng.random() < 0.2
        guidelines[rng.choice(wordings.both_abstentions if both else wordings.behaviours[behaviour])] = None
    if rng.random() < 0.15:
        guidelines[rng.choice(wordings.idle)] = None
    if rng.random() < 0.05:
        guidelines = {rng.choice(wordings.harmful): None}
    cues = tuple(SchemaCue(kind) for kind in sorted(CueKind) if rng.random() < 0.1)
    failing = pressure[Behaviour.RECOVER] >= max(pressure.values())
    recovery = RecoveryLevel.CLASS if rng.random() < (0.6 if failing else 0.15) else RecoveryLevel.NONE
    return Interface(cues, recovery, tuple(guidelines))
