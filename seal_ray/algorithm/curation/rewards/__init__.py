"""Rewards of a curator, by the name in `curator.reward`: the value of each arm of a window, at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from envs.registry import Registry
from seal_ray.grpo.arms import ArmGroup


class CuratorReward(Protocol):
    """Arm → value, for the arms that played; larger is better. The best arm may become the incumbent.

    A proposal that is rejected gets `worst`, the least value that there is. With `needs_gradients` the solver's policy
    gradients are compared in each round, and `alignments` has arm → cosine with the plain arm's gradient, one for each
    round in which the arm played; else it is empty. A class may also have `needs_internalised`: it then gets arm → what
    a round of training on the arm's views did, in the place of the cosines (`internalised.py`).
    """

    @property
    def worst(self) -> float: ...

    @property
    def needs_gradients(self) -> bool: ...

    def __call__(
        self, groups: Sequence[ArmGroup], alignments: Mapping[int, Sequence[float]]
    ) -> Mapping[int, float]: ...


CURATOR_REWARDS: Registry[type[CuratorReward]] = Registry(
    "curator.reward",
    "seal_ray.curator_rewards",
    {
        "gain": "seal_ray.algorithm.curation.rewards.gain:GainReward",
        "frontier": "seal_ray.algorithm.curation.rewards.frontier:FrontierReward",
        "alpha": "seal_ray.algorithm.curation.rewards.alpha:AlphaProposalReward",
        "transfer": "seal_ray.algorithm.curation.rewards.transfer:TransferReward",
        "internalised": "seal_ray.algorithm.curation.rewards.internalised:InternalisedReward",
    },
)
"""The curator's rewards. A class takes its `Settings` from the curator section and `curator.reward_settings`."""


def needs_internalised(reward: CuratorReward) -> bool:
    """Whether the reward is about what training on an arm's views did."""
    return bool(getattr(reward, "needs_internalised", False))


def by_rounds(reward: CuratorReward) -> bool:
    """Whether the reward has a number a round and arm, so that it compares arms whatever tasks they play."""
    return reward.needs_gradients or needs_internalised(reward)
