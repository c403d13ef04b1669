"""Controls and rivals of a curator, as `curator.kind` and `training.advantage`."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from envs.interface import Interface
from envs.profile import FailureProfile
from policies.curator.fixed import IDLE, ConstantCurator
from policies.curator.llm import LLMCurator
from policies.proposer import Proposal


class ShamCurator(ConstantCurator):
    """Proposes an interface that shows nothing: both halves of a pair are plain, and failures of one are left out."""

    kind = "examples.experiments.curator.controls:ShamCurator"
    interface = Interface(fade=1.0)


class ShuffledCurator(LLMCurator):
    """Writes guidelines alone, with their words in random order: the same machinery without advice."""

    kind = "examples.experiments.curator.controls:ShuffledCurator"

    async def propose(
        self, profile: FailureProfile, *, incumbent: Interface, n: int, round_number: int, seed: int
    ) -> tuple[Proposal[Interface], ...]:
        written = await super().propose(profile, incumbent=incumbent, n=n, round_number=round_number, seed=seed)
        return tuple(
            each if each.value is None else replace(each, value=shuffled(each.value, random.Random(f"{seed} {place}")))
            for place, each in enumerate(written)
        )


class IdleCurator(LLMCurator):
    """Proposes idle guidelines in every window, whose turn probes should find no gain."""

    kind = "examples.experiments.curator.controls:IdleCurator"

    async def propose(
        self, profile: FailureProfile, *, incumbent: Interface, n: int, round_number: int, seed: int
    ) -> tuple[Proposal[Interface], ...]:
        del profile, incumbent, round_number, seed
        return (Proposal(IDLE),) if n else ()


class KeptTextCurator(LLMCurator):
    """Proposes until an arm has become the incumbent, and nothing more."""

    kind = "examples.experiments.curator.controls:KeptTextCurator"

    async def propose(
        self, profile: FailureProfile, *, incumbent: Interface, n: int, round_number: int, seed: int
    ) -> tuple[Proposal[Interface], ...]:
        n = n if incumbent == Interface.plain() else 0
        return await super().propose(profile, incumbent=incumbent, n=n, round_number=round_number, seed=seed)


def shuffled(interface: Interface, rng: random.Random) -> Interface:
    """The interface with the words of each guideline in random order, and nothing else."""
    guidelines = []
    for text in interface.guidelines:
        words = text.split()
        rng.shuffle(words)
        guidelines.append(" ".join(words))
    return Interface(guidelines=tuple(guidelines))


def guided_successes(rewards_G: NDArray[np.float64], arms_G: NDArray[np.int64]) -> NDArray[np.float64]:
    """GRPO on the plain members, and fine-tuning on guided successes: their advantage is 1, that of failures 0.

    A group of equal rewards gives no row, as in all arms, so that successes of groups without a failure are left out.
    """
    advantages_G = np.where(rewards_G > 0, 1.0, 0.0)
    plain_G = arms_G == 0
    if plain_G.any():
        plain = rewards_G[plain_G]
        advantages_G[plain_G] = (plain - plain.mean()) / (plain.std() + 1e-6)
    return advantages_G
