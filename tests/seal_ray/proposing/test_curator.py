"""The end of a window: which arm becomes the incumbent, reward by reward."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from seal_ray.algorithm.curation.curation import CuratorLoop
from seal_ray.algorithm.curation.rewards.gain import GainReward
from seal_ray.algorithm.curation.window import CuratorWindow, likeliest_first, most_varied
from seal_ray.grpo.arms import ArmGroup
from seal_ray.rollout.groups import number_arms

from envs.interface import Interface
from envs.roles import CURATOR
from policies.curator import Proposal
from policies.curator.llm import LLMCurator
from policies.documents import Writing
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.sample import Sample
from seal_ray.agent import Agent
from seal_ray.config import sections

FIRST, SECOND = Interface(guidelines=("First.",)), Interface(guidelines=("Second.",))


def judging(**settings: Any) -> CuratorLoop:
    """One with a language model that is not asked for anything."""
    model = open_model("tiny")
    form = ChatFormat.load(model.path, model.dialect)

    def refuse() -> None:
        raise AssertionError("nothing is sampled here")

    curator = LLMCurator(refuse, form, Writing(context=512), check=lambda _: None)  # type: ignore[arg-type]
    agent = Agent(
        name=CURATOR,
        settings=sections.Solver(),
        model=model,
        engines=None,  # type: ignore[arg-type]
        owns=False,
        learns=True,
        dtype="float32",
        ratio_tolerance=1e-3,
        engine_timeout=1.0,
    )
    return CuratorLoop(sections.Curator(kind="coevolved", **settings), curator, agent=agent)


@pytest.mark.parametrize(
    ("incumbent", "alignments", "kept"),
    [
        (Interface.plain(), {1: [0.3, 0.1], 2: [0.1]}, FIRST),
        (Interface.plain(), {1: [0.04], 2: [0.01]}, Interface.plain()),
        (Interface.plain(), {1: [-0.3], 2: [-0.1]}, Interface.plain()),
        (FIRST, {1: [0.1], 2: [0.2]}, SECOND),
        (FIRST, {1: [0.1], 2: [0.12]}, FIRST),
        (FIRST, {1: [-0.2], 2: [-0.1]}, Interface.plain()),
        (FIRST, {2: [0.9]}, SECOND),
        (FIRST, {2: [0.04]}, FIRST),
    ],
)
def test_transfer_compares_proposals_with_the_incumbent_and_with_nothing(
    incumbent: Interface, alignments: dict[int, list[float]], kept: Interface
) -> None:
    judged = judging(reward="transfer")
    judged.incumbent = incumbent
    judged.window = CuratorWindow(number_arms([FIRST, SECOND]), (Proposal(FIRST), Proposal(SECOND)))
    judged.window.alignments.update({arm: dict(enumerate(values)) for arm, values in alignments.items()})
    verdict = judged.judge()
    assert judged.incumbent == kept
    assert verdict.promoted is (kept != incumbent)
    expected = [sum(values) / len(values) if (values := alignments.get(arm)) else None for arm in (1, 2)]
    assert verdict.rewards == tuple(expected)


def test_gain_is_within_categories_and_not_across_them() -> None:
    def groups(*found: tuple[int, str, float]) -> list[ArmGroup]:
        return [ArmGroup(*each) for each in found]

    gain = GainReward()
    apart = groups((0, "a", 0.2), (1, "b", 0.8), (2, "a", 0.3))
    assert gain(apart, {}) == pytest.approx({0: 0.0, 2: 0.1})
    # Through the third one, which played both.
    assert gain([*apart, ArmGroup(2, "b", 0.7)], {}) == pytest.approx({0: 0.0, 1: 0.2, 2: 0.1})
    assert gain(groups((1, "a", 0.5)), {}) == {}
    assert gain([], {}) == {}


def test_the_likeliest_proposals_come_first() -> None:
    def written(*logprobs: float) -> Proposal:
        n = len(logprobs)
        return Proposal(
            FIRST, sample=Sample(0, (1,) * (n + 1), (False, *(True,) * n), (0.0, *logprobs), (0,) * (n + 1))
        )

    unlucky, usual, long = written(-0.1, -9.0), written(-0.5), written(-0.2, -0.2, -0.2, -0.2)
    assert likeliest_first([unlucky, usual, long]) == [long, usual, unlucky]


def test_what_is_played_says_something_else() -> None:
    def written(text: str, logprob: float) -> Proposal:
        sample = Sample(0, (1, 2), (False, True), (0.0, logprob), (-1, 0))
        return Proposal(Interface(guidelines=(text,)), sample=sample)

    ask, again = written("Ask for what is missing.", -0.1), written("Ask the user for what is missing.", -0.2)
    abstain, check = written("Call nothing where no tool fits.", -0.3), written("Check the state first.", -0.4)
    garbled = written("fuelAmount Ada", -9.0)
    rejected = replace(written("Log in.", -0.01), rejection="no")
    proposals = [garbled, ask, again, rejected, abstain, check, ask, written("nonsense", -8.0)]
    assert most_varied(proposals, [], 2) == [ask.interface, abstain.interface]
    tried = [Interface(guidelines=("Where no tool fits, call nothing.",))]
    assert most_varied(proposals, [ask.interface], 1, tried=tried) == [check.interface]
    everything = most_varied(proposals, [], 9)
    assert len(everything) == 6, "nobody is left out but what was rejected or is there already"
    assert rejected.interface not in everything
    assert most_varied([], [], 3) == []


def test_a_window_is_stored_and_read_back_with_samples_of_earlier_checkpoints_too() -> None:
    sample = Sample(3, token_ids_T=(1, 2), mask_T=(False, True), sampled_logprobs_T=(0.0, -0.5), versions_T=(-1, 0))
    window = CuratorWindow(number_arms([FIRST]), (Proposal(FIRST, sample=sample), Proposal(SECOND, "too long")))
    stored = json.loads(json.dumps(window.to_dict()))
    assert CuratorWindow.from_dict(stored) == window
    stored["proposals"][0]["sample"]["logprobs_T"] = stored["proposals"][0]["sample"].pop("sampled_logprobs_T")
    assert CuratorWindow.from_dict(stored) == window
