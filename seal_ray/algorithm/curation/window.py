"""`Window`: the arms of some rounds and the groups played under them; `Verdict`: its end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from envs.interface import Interface
from envs.interface.document import interface_from_dict, interface_to_dict
from envs.task import JSON
from policies.curator import Proposal
from policies.sample import Sample
from policies.trajectory import interface_id
from seal_ray.algorithm.sampling.groups import PLAIN_ARM, Arm, PlayedGroup, number_arms
from seal_ray.grpo.arms import ArmGroup
from seal_ray.grpo.rows import Row


@dataclass
class Window:
    """The arms of a window, the plain one first, and the groups that were played under them."""

    arms: tuple[Arm, ...] = (PLAIN_ARM,)
    proposals: tuple[Proposal, ...] = ()
    groups: list[ArmGroup] = field(default_factory=list)
    alignments: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Number of an arm → cosine of its policy gradient with the plain arm's, for each round in which it played."""

    def arm_of(self, interface: Interface) -> Arm:
        """The arm of an interface."""
        return next(arm for arm in self.arms if arm.interface == interface)

    def observe(self, groups: Sequence[PlayedGroup], alignments: Mapping[int, float]) -> None:
        """Adds a round of the window."""
        for group in groups:
            played = group.trajectories
            if played:
                rate = sum(each.reward for each in played) / len(played)
                self.groups.append(ArmGroup(group.plan.arm.number, played[0].category, rate))
        for arm, value in alignments.items():
            self.alignments[arm].append(value)

    def to_dict(self) -> dict[str, JSON]:
        """The window as JSON values."""
        return {
            "interfaces": [interface_to_dict(arm.interface) for arm in self.arms],
            "proposals": [
                {
                    "interface": interface_to_dict(each.interface),
                    "rejection": each.rejection,
                    "sample": None if each.sample is None else asdict(each.sample),
                }
                for each in self.proposals
            ],
            "groups": [[group.arm, group.category, group.success] for group in self.groups],
            "alignments": [[arm, list(values)] for arm, values in self.alignments.items()],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, JSON]) -> Window:
        """The inverse."""
        return cls(
            number_arms(map(interface_from_dict, value["interfaces"])),
            tuple(
                Proposal(interface_from_dict(each["interface"]), each["rejection"], _sample_from(each["sample"]))
                for each in value["proposals"]
            ),
            [ArmGroup(*group) for group in value["groups"]],
            defaultdict(list, {arm: list(values) for arm, values in value["alignments"]}),
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a window: each proposal's reward, and the rows that the curator learns from."""

    rewards: tuple[float | None, ...]
    """One a proposal; None where its arm was not played."""
    rows: list[Row]
    promoted: bool


def proposals_as_rows(window: Window, verdict: Verdict | None) -> list[dict[str, JSON]]:
    """The window's proposals for people to read: the interface, the reason of a rejection, and the reward."""
    rewards = verdict.rewards if verdict else (None,) * len(window.proposals)
    return [
        {
            "id": interface_id(each.interface),
            **interface_to_dict(each.interface),
            "rejection": each.rejection,
            "reward": reward,
        }
        for each, reward in zip(window.proposals, rewards, strict=True)
    ]


def _sample_from(value: Mapping[str, JSON] | None) -> Sample | None:
    if value is None:
        return None
    # Checkpoints of earlier versions have the log-probs under a shorter name.
    logprobs = value.get("sampled_logprobs_T", value.get("sampled_logprobs_T", ()))
    return Sample(
        seed=value["seed"],
        token_ids_T=tuple(value["token_ids_T"]),
        mask_T=tuple(value["mask_T"]),
        sampled_logprobs_T=tuple(logprobs),
        versions_T=tuple(value["versions_T"]),
    )
