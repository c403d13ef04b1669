"""Which proposals become arms: what they show, how likely they are, and how much they differ."""

from __future__ import annotations

from dataclasses import replace

from envs.interface import CueKind, Interface, RecoveryLevel, SchemaCue
from policies.proposer import Proposal
from policies.sample import Sample
from seal_ray.proposing.selection import first_distinct, likeliest_first, most_varied, shown_text
from tests.seal_ray.proposing.proposers import PLAIN_INTERFACE, A, B, C, written


def proposal(text: str, *logprobs: float) -> Proposal[Interface]:
    n = len(logprobs)
    sample = Sample(0, (1,) * (n + 1), (False, *(True,) * n), (0.0, *logprobs), (0,) * (n + 1))
    return Proposal(Interface(guidelines=(text,)), sample=sample)


def test_the_first_that_show_something_else() -> None:
    cue = Interface((SchemaCue(CueKind.ENUM),), guidelines=("Second.",))
    many = Interface(guidelines=("first ", "Second."))
    texts = [Interface(guidelines=("FIRST",)), A, B, many, Interface(guidelines=("Second.", "First.")), cue, C]
    assert first_distinct(written(*texts), [], 9) == [texts[0], B, many, cue, C]
    assert first_distinct(written(*texts), [PLAIN_INTERFACE, B], 2) == [texts[0], many]
    assert first_distinct([Proposal(A, "It leaks."), Proposal(None, "unreadable"), *written(B)], [], 2) == [B]
    assert shown_text(A) != shown_text(replace(A, recovery=RecoveryLevel.CLASS))


def test_the_likeliest_proposals_come_first() -> None:
    unlucky, usual, long = proposal("a", -0.1, -9.0), proposal("b", -0.5), proposal("c", -0.2, -0.2, -0.2, -0.2)
    assert likeliest_first([unlucky, usual, long]) == [long, usual, unlucky]


def test_the_most_varied_say_something_else() -> None:
    ask, again = proposal("Ask for what is missing.", -0.1), proposal("Ask the user for what is missing.", -0.2)
    abstain, check = proposal("Call nothing where no tool fits.", -0.3), proposal("Check the state first.", -0.4)
    garbled, nonsense = proposal("fuelAmount Ada", -9.0), proposal("nonsense", -8.0)
    rejected = replace(proposal("Log in.", -0.01), rejection="no")
    proposals = [garbled, ask, again, rejected, abstain, check, ask, nonsense]
    assert most_varied(proposals, [], 2) == [ask.value, abstain.value]
    assert ask.value is not None
    tried = [Interface(guidelines=("Where no tool fits, call nothing.",))]
    assert most_varied(proposals, [ask.value], 1, tried=tried) == [check.value]
    everything = most_varied(proposals, [], 9)
    assert len(everything) == 6, "all but the rejected one and the repeated one"
    assert rejected.value not in everything
    assert most_varied([], [], 3) == []
