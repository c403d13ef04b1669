"""`CuratorWindow`: the arms of some rounds, what was played under them, and how proposals become arms."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from envs.interface import Interface
from envs.interface.document import interface_from_dict, interface_to_dict
from envs.task import JSON
from policies.curator import Proposal
from policies.sample import Sample
from policies.trajectory import interface_id
from seal_ray.algorithm.sampling.groups import PLAIN_ARM, Arm, PlayedGroup, number_arms
from seal_ray.grpo.arms import ArmGroup
from seal_ray.grpo.rows import Row

ByRound = dict[int, dict[int, float]]
"""Number of an arm → round of the window, counted from 0 → a number, where there is one."""


@dataclass
class CuratorWindow:
    """The arms of a window, the plain one first, and the groups that were played under them."""

    arms: tuple[Arm, ...] = (PLAIN_ARM,)
    proposals: tuple[Proposal, ...] = ()
    groups: list[ArmGroup] = field(default_factory=list)
    alignments: ByRound = field(default_factory=lambda: defaultdict(dict))
    """Number of an arm → round → cosine of its policy gradient with the plain arm's, where it played."""
    internalised: ByRound = field(default_factory=lambda: defaultdict(dict))
    """Number of an arm → round → what training on its views did, where it has such (`internalised.py`)."""
    rounds: int = 0
    """Rounds that were played."""

    def arm_of(self, interface: Interface) -> Arm:
        return next(arm for arm in self.arms if arm.interface == interface)

    def arm_that_shows(self, interface: Interface) -> Arm | None:
        """The arm that shows what this interface shows; None where none does."""
        same = [arm for arm in self.arms if arm.interface == interface]
        alike = [arm for arm in self.arms if shown_text(arm.interface) == shown_text(interface)]
        return next(iter([*same, *alike]), None)

    def observe(
        self,
        groups: Sequence[PlayedGroup],
        alignments: Mapping[int, float],
        internalised: Mapping[int, float] | None = None,
    ) -> None:
        """Adds a round of the window. A pair counts for both of its arms."""
        for group in groups:
            for arm, played in group.by_arm().items():
                rate = sum(each.reward for each in played) / len(played)
                self.groups.append(ArmGroup(arm, str(played[0].category), rate, group.plan.task, len(played)))
        for arm, value in alignments.items():
            self.alignments[arm][self.rounds] = value
        for arm, value in (internalised or {}).items():
            self.internalised[arm][self.rounds] = value
        self.rounds += 1

    def to_dict(self) -> dict[str, JSON]:
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
            "groups": [[each.arm, each.category, each.success, each.task, each.rollouts] for each in self.groups],
            "alignments": [[arm, list(values.items())] for arm, values in self.alignments.items()],
            "internalised": [[arm, list(values.items())] for arm, values in self.internalised.items()],
            "rounds": self.rounds,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, JSON]) -> CuratorWindow:
        """The inverse of `to_dict`. Checkpoints of earlier versions know neither tasks nor rounds."""
        return cls(
            number_arms(map(interface_from_dict, value["interfaces"])),
            tuple(
                Proposal(interface_from_dict(each["interface"]), each["rejection"], _sample_from(each["sample"]))
                for each in value["proposals"]
            ),
            [ArmGroup(*group) for group in value["groups"]],
            _by_round_from(value["alignments"]),
            _by_round_from(value.get("internalised", ())),
            value.get("rounds", 0),
        )


def _by_round_from(value: Iterable[tuple[int, Sequence[Any]]]) -> ByRound:
    """Earlier versions kept an arm's values without their rounds: they become those of the first ones."""
    found: ByRound = defaultdict(dict)
    for arm, values in value:
        for place, each in enumerate(values):
            round_number, measured = each if isinstance(each, Sequence) else (place, each)
            found[arm][round_number] = measured
    return found


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a window: each proposal's reward, and the rows that the curator learns from."""

    rewards: tuple[float | None, ...]
    """One a proposal; None where its arm was not played."""
    rows: list[Row]
    promoted: bool
    probability: float = 0.0
    """The largest probability with which an arm is better than the incumbent was; 0 without a posterior."""


def proposals_as_rows(window: CuratorWindow, verdict: Verdict | None) -> list[dict[str, JSON]]:
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


def arms_as_rows(
    window: CuratorWindow, known: Mapping[int, tuple[float, float]], *, before: Interface, after: Interface
) -> list[dict[str, JSON]]:
    """The arms of a window that has ended, for people to read: what was played and what is known of them.

    `known` has number of an arm → value and standard deviation over all windows. `before` and `after` are incumbents.
    """
    rows: list[dict[str, JSON]] = []
    for arm in window.arms:
        played = [group for group in window.groups if group.arm == arm.number]
        rollouts = sum(group.rollouts for group in played)
        gain, error = known.get(arm.number, (0.0, 0.0) if arm.plain else (None, None))
        rows.append(
            {
                "id": interface_id(arm.interface),
                **interface_to_dict(arm.interface),
                "groups": len(played),
                "rollouts": rollouts,
                "success": sum(each.success * each.rollouts for each in played) / rollouts if rollouts else None,
                "gain": gain,
                "error": error,
                "incumbent": arm.interface == before,
                "promoted": arm.interface == after and after != before,
            }
        )
    return rows


def _sample_from(value: Mapping[str, JSON] | None) -> Sample | None:
    if value is None:
        return None
    tuples = {key: tuple(each) for key, each in value.items() if key != "seed"}
    # Checkpoints of earlier versions have the log-probs under a shorter name.
    logprobs = tuples.pop("logprobs_T", ())
    return Sample(**{"sampled_logprobs_T": logprobs, **tuples}, seed=value["seed"])


def shown_text(interface: Interface) -> tuple[object, ...]:
    """What an interface shows, without what makes no difference to a reader: case, spaces, full stops and order."""
    guidelines = {" ".join(text.split()).rstrip(" .").casefold() for text in interface.guidelines}
    return (frozenset(interface.schema_cues), interface.recovery, frozenset(guidelines))


def likeliest_first(proposals: Sequence[Proposal]) -> list[Proposal]:
    """The proposals by the mean log-prob (nats) that their writer gave their tokens; what no model wrote, first."""

    def mean(proposal: Proposal) -> float:
        sample = proposal.sample
        return 0.0 if sample is None else sum(sample.sampled_logprobs_T) / max(1, sample.sampled_tokens)

    return sorted(proposals, key=mean, reverse=True)


def first_distinct(proposals: Sequence[Proposal], known: Sequence[Interface], most: int) -> list[Interface]:
    """The first accepted interfaces, at most `most`, that show something else than each other and those `known`."""
    seen = {shown_text(interface) for interface in known}
    found: list[Interface] = []
    for each in proposals:
        if each.rejection is None and len(found) < most and shown_text(each.interface) not in seen:
            seen.add(shown_text(each.interface))
            found.append(each.interface)
    return found


def most_varied(
    proposals: Sequence[Proposal], known: Sequence[Interface], most: int, *, tried: Sequence[Interface] = ()
) -> list[Interface]:
    """At most `most` of the accepted interfaces that say something else than each other and what was `tried`.

    The less likely half is left out, where enough are left: an unlucky draw says something else too. None shows what
    one of `known` does. Two interfaces are as alike as the share of their words that both have (Jaccard's index); the
    next one is that whose nearest is farthest, the likelier one in doubt.
    """
    distinct = first_distinct(likeliest_first(proposals), known, len(proposals))
    left = distinct[: max(most, (len(distinct) + 1) // 2)]
    met = [_words(interface) for interface in (*known, *tried)]
    found: list[Interface] = []
    while left and len(found) < most:
        nearest = [max((_alike(_words(each), words) for words in met), default=0.0) for each in left]
        found.append(left.pop(nearest.index(min(nearest))))
        met.append(_words(found[-1]))
    return found


def _words(interface: Interface) -> frozenset[str]:
    said = " ".join((*interface.guidelines, str(interface.recovery), *map(str, interface.schema_cues)))
    return frozenset(re.findall(r"\w+", said.casefold()))


def _alike(left: frozenset[str], right: frozenset[str]) -> float:
    return len(left & right) / max(1, len(left | right))
