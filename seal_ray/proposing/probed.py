"""`ProbedProposals`: a curator's proposals with their turn probes, and the archive of the best texts.

The credit of a proposal comes from its parts in the probes of all windows, and only from parts that name a failure if
there are any: others would share in what these repair. Texts that beat the plain interface by the error of their credit
are imitated, the first for each failure that they repair: other wordings of the same advice would teach it by heart,
and not to read failures. The archive keeps the best texts, and is probed again, with a text that combines their
guidelines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from envs.interface import Interface
from envs.interface.value import MAX_GUIDELINES
from envs.profile import FailureProfile
from envs.task import JSON
from policies.proposer import Proposal
from policies.trajectory import Sample
from seal_ray.grpo.rows import Row, row_of
from seal_ray.proposing.part_values import PartValues, parts_of, shown_text
from seal_ray.proposing.turn_probes import ProbeReport, ProbeValue, TurnProber
from seal_ray.rollout.types import Group

ARCHIVED = 4
"""Largest number of earlier texts that are kept."""
UNLIKELY, UNLIKELY_COST = -7.0, 0.1
"""Log-prob (nats) of a token below which a text counts as garbled, and what this costs of its gain."""


@dataclass(frozen=True, slots=True)
class Credit:
    """Posterior mean and standard deviation of a proposal's gain, from the probes of all windows; its own `probe`."""

    gain: float
    error: float
    probe: ProbeValue

    @property
    def helps(self) -> bool:
        """Whether the gain is above 0 by its own error."""
        return self.gain > self.error


_CREDIT: TypeAdapter[Any] = TypeAdapter(Credit | None)
_LESSONS: TypeAdapter[list[tuple[Sample, float]]] = TypeAdapter(list[tuple[Sample, float]])


class ProbedProposals:
    """The credits of a window's proposals, None for one that was not probed, and the archive, the best first."""

    def __init__(self, prober: TurnProber) -> None:
        self._prober = prober
        self._values = PartValues()
        self._report = ProbeReport(())
        self.has_probes = False
        """Whether the window has probes: without, nothing is imitated."""
        self.credits: list[Credit | None] = []
        self.archive: list[tuple[Proposal[Interface], Credit]] = []
        self._learnt: dict[str, None] = {}
        """The failures for which a text is imitated, and the best parts of texts that name none."""
        self._lessons: list[tuple[Sample, float]] = []
        """The imitated texts with their gain."""
        self.learns_earlier = False
        """Whether the last training rows have texts of earlier windows."""

    def observe(self, groups: Sequence[Group]) -> None:
        """Adds a round's rollouts, whose turns the next window probes."""
        self._prober.observe(groups)

    def score(
        self,
        proposals: Sequence[Proposal[Interface]],
        seed: int,
        check: Callable[[Interface], str | None] = lambda _: None,
    ) -> None:
        """Probes the proposals of a window that begins, and what the archive has that `check` does not reject.

        The archive comes first, then proposals that name a failure, which take few turns, then those whose credit may
        be highest (mean plus deviation): the budget may be too small for all.
        """
        self.archive = [pair for pair in self.archive if pair[0].value and check(pair[0].value) is None]
        kept = [each for each, _ in self.archive]
        if (combined := self._combined()) is not None and check(combined) is None:
            kept.insert(0, Proposal(combined))
        readable = [each for each in (*kept, *proposals) if each.accepted and each.value]
        distinct = {text: each.value for each in readable if each.value and (text := shown_text(each.value))}
        naming = {text: self._prober.naming(parts_of(each)) for text, each in distinct.items()}
        parts = {text: naming[text] or parts_of(each) for text, each in distinct.items()}
        hopes = dict(zip(parts, map(sum, self._values.values(list(parts.values()))), strict=True))
        first = {shown_text(each.value) for each in kept if each.value}
        order = sorted(
            distinct,
            key=lambda text: (text in first, bool(naming[text]), hopes[text]),
            reverse=True,
        )
        self._report = self._prober.score([distinct[text] for text in order], seed)
        self._prober.start_window()
        probes = {text: probe for text, probe in zip(order, self._report.values, strict=True) if probe is not None}
        self.credits, self.has_probes = [None] * len(proposals), bool(probes)
        if not probes:
            return
        self._values.observe([(parts[text], probe.gain, probe.error) for text, probe in probes.items()])
        gains = self._values.values([parts[text] for text in probes])
        credit_of = {text: Credit(*gain, probe) for (text, probe), gain in zip(probes.items(), gains, strict=True)}
        self.credits = [_credit(each, credit_of) for each in proposals]
        credited = [(each, credit) for each in readable if (credit := _credit(each, credit_of)) and credit.helps]
        self.archive = []
        for each, credit in sorted(credited, key=lambda pair: pair[1].error - pair[1].gain):
            texts = [shown_text(other.value) for other, _ in self.archive if other.value]
            if each.value and len(texts) < ARCHIVED and not any(shown_text(each.value) <= text for text in texts):
                self.archive.append((each, credit))

    def unrepaired(self, profile: FailureProfile) -> FailureProfile:
        """A profile without the failures that the archive repairs, so that the curator writes for others."""
        return profile.without({name for _, credit in self.archive for name in credit.probe.repaired})

    def _combined(self) -> Interface | None:
        """The best text of the archive with the guidelines of all, if there are others, the best guidelines first."""
        texts = [each.value for each, _ in self.archive if each.value]
        if len(texts) < 2:
            return None
        singles = {
            shown_text(single): single
            for each in texts
            for single in (Interface(guidelines=(guideline,)) for guideline in each.guidelines)
        }
        values = zip(singles.values(), self._values.values(list(map(parts_of, singles.values()))), strict=True)
        best = sorted(((gain, single) for single, (gain, _) in values if gain > 0), key=lambda pair: -pair[0])
        guidelines = tuple(guideline for _, single in best[:MAX_GUIDELINES] for guideline in single.guidelines)
        return replace(texts[0], guidelines=guidelines)

    def ranked(self, proposals: Sequence[Proposal[Interface]]) -> list[Proposal[Interface]]:
        """The probed proposals and the archive by decreasing reward, none below 0."""
        pairs = [*self.archive, *zip(proposals, self.credits, strict=True)]
        rewards = [(each, _reward(each, credit)) for each, credit in pairs if credit is not None]
        return [each for each, reward in sorted(rewards, key=lambda pair: -pair[1]) if reward >= 0]

    def rewards(self, proposals: Sequence[Proposal[Interface]]) -> list[float | None]:
        """The gain of each proposal less the cost of unlikely text; None for one that was not probed."""
        pairs = zip(proposals, self.credits, strict=True)
        return [None if credit is None else _reward(each, credit) for each, credit in pairs]

    def training_rows(self, proposals: Sequence[Proposal[Interface]]) -> list[Row]:
        """The texts that were the first to help, of all windows, with their gain over the largest as weight.

        One for each failure that is repaired, none without a gain of its own, and no unlikely one. A text that names no
        failure has one for its best part. The loss clips the ratio to the policy that sampled a text, so that repeated
        steps stop. Called once a window; empty if nothing has helped, or if the window has no probes.
        """
        self.learns_earlier = bool(self._lessons)
        if not self.has_probes:
            return []
        pairs = [(each, credit) for each, credit in zip(proposals, self.credits, strict=True) if credit is not None]
        for each, credit in sorted(pairs, key=lambda pair: -pair[1].gain):
            if each.sample is None or each.value is None or _is_unlikely(each):
                continue
            if not credit.helps or credit.probe.gain <= 0:
                continue
            repaired = credit.probe.repaired or (self._values.best_part(parts_of(each.value)),)
            if not self._learnt.keys() >= set(repaired):
                self._learnt |= dict.fromkeys(repaired)
                self._lessons.append((each.sample, credit.gain))
        largest = max((gain for _, gain in self._lessons), default=1.0)
        return [row_of(sample, gain / largest) for sample, gain in self._lessons]

    def metrics(self) -> dict[str, float]:
        """Of the window's probes, and of the credits of its proposals."""
        credited = [credit for credit in self.credits if credit is not None]
        metrics: dict[str, float] = {
            "curator/probes": len(credited),
            "curator/probe_tokens": self._report.tokens,
            "perf/probe_seconds": self._report.seconds,
        }
        if credited:
            metrics["curator/probe_gain"] = sum(credit.probe.gain for credit in credited) / len(credited)
            metrics["curator/credit"] = sum(credit.gain for credit in credited) / len(credited)
            metrics["curator/credit_best"] = max(credit.gain for credit in credited)
            metrics["curator/helping"] = sum(credit.helps for credit in credited) / len(credited)
        return metrics

    def rows(self) -> list[dict[str, JSON]]:
        """The credit of each proposal as a row for a file."""
        return [{"credit": None if credit is None else asdict(credit)} for credit in self.credits]

    def get_state(self) -> dict[str, JSON]:
        """JSON values for a checkpoint, without the texts of the archive."""
        return {
            "prober": self._prober.get_state(),
            "values": self._values.get_state(),
            "has_probes": self.has_probes,
            "tokens": self._report.tokens,
            "credits": [None if credit is None else asdict(credit) for credit in self.credits],
            "archive": [asdict(credit) for _, credit in self.archive],
            "learnt": list(self._learnt),
            "lessons": _LESSONS.dump_python(self._lessons, mode="json"),
        }

    def set_state(self, state: Mapping[str, Any], archive: Sequence[Proposal[Interface]]) -> None:
        """The inverse of `get_state`, with the texts of the archive."""
        self._prober.set_state(state["prober"])
        self._values.set_state(state["values"])
        self.has_probes = state["has_probes"]
        self._report = ProbeReport((), state["tokens"])
        self.credits = [_CREDIT.validate_python(value) for value in state["credits"]]
        self._learnt = dict.fromkeys(state.get("learnt", ()))
        self._lessons = _LESSONS.validate_python(state.get("lessons", ()))
        self.archive = list(zip(archive, map(_CREDIT.validate_python, state["archive"]), strict=True))


def _credit(proposal: Proposal[Interface], credit_of: Mapping[frozenset[str], Credit]) -> Credit | None:
    return credit_of.get(shown_text(proposal.value)) if proposal.accepted and proposal.value else None


def _reward(proposal: Proposal[Interface], credit: Credit) -> float:
    """The gain less the cost of a text with an unlikely token."""
    return credit.gain - UNLIKELY_COST * _is_unlikely(proposal)


def _is_unlikely(proposal: Proposal[Interface]) -> bool:
    return proposal.sample is not None and min(proposal.sample.sampled_logprobs_T, default=0.0) < UNLIKELY
