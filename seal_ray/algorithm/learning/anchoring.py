"""Anchored rows in the learner: plain views of rollouts that were sampled under an interface.

Their old log-probs are the learner's own on the view before the round's first step, so that their ratio begins at 1.
They are counted apart: what was sampled with other prompts proves nothing about the sampler's weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seal_ray.algorithm.curation.rewards.internalised import change_of
from seal_ray.algorithm.objects import make_anchor_weight, make_anchored_loss, make_loss
from seal_ray.config.sections import Training
from seal_ray.grpo.losses import Loss
from seal_ray.grpo.losses.sums import LossSums, TokenLosses
from seal_ray.grpo.packing import Packed
from seal_ray.grpo.rows import Row
from seal_ray.report.metrics import MOST_ARMS

_NOTHING = LossSums()


@dataclass(frozen=True, slots=True)
class Counts:
    """Sums over the tokens of rows that are learnt from as they were sampled, and over those of anchored ones."""

    sampled: LossSums = _NOTHING
    anchored: LossSums = _NOTHING
    weight: float = 0.0
    """The weights of anchored tokens."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.sampled + other.sampled, self.anchored + other.anchored, self.weight + other.weight)

    @property
    def all(self) -> LossSums:
        return self.sampled + self.anchored


class RowLoss:
    """The loss of rows of both kinds, by the settings of `training`."""

    def __init__(self, training: Training) -> None:
        self._loss = make_loss(training)
        self._anchored_loss = make_anchored_loss(training)
        self._weight = make_anchor_weight(training)

    def needs_own_logprobs(self, row: Row) -> bool:
        """Whether the learner's own log-probs of the row before the round's first step are asked for."""
        return self._loss.needs_proximal or row.anchored is not None

    def anchor(self, packed: Packed, proximal_M: Tensor | None) -> tuple[Packed, float]:
        """`packed` with anchored tokens' old log-probs and weighted advantages, and the sum of their weights.

        `proximal_M` are the learner's own log-probs, with any value where they are not asked for; None for no such row.
        """
        if proximal_M is None or not packed.anchored_M.any():
            return packed, 0.0
        weight_M = self._weight(proximal_M - packed.sampled_logprobs_M).detach().to(packed.advantages_M.dtype)
        weight_M = torch.where(packed.anchored_M, weight_M, 1.0)
        anchored = replace(
            packed,
            sampled_logprobs_M=torch.where(packed.anchored_M, proximal_M, packed.sampled_logprobs_M),
            advantages_M=packed.advantages_M * weight_M,
        )
        return anchored, float(weight_M[packed.anchored_M].sum())

    def __call__(
        self, logprobs_M: Tensor, packed: Packed, *, reference_M: Tensor | None, proximal_M: Tensor | None
    ) -> tuple[Tensor, Counts]:
        """The loss, summed over the tokens of what `anchor` gave, and what was counted."""
        values = (logprobs_M, packed.sampled_logprobs_M, packed.advantages_M)
        anchored_M = packed.anchored_M
        if not anchored_M.any():
            losses = _losses(self._loss, values, reference_M, proximal_M)
            return losses.loss_sum, Counts(losses.sums)
        found = []
        for loss, chosen_M in ((self._loss, ~anchored_M), (self._anchored_loss, anchored_M)):
            reference, proximal = (None if each is None else each[chosen_M] for each in (reference_M, proximal_M))
            # A loss is not asked about no token at all.
            some = bool(chosen_M.any())
            found.append(_losses(loss, [each[chosen_M] for each in values], reference, proximal) if some else None)
        sampled, anchored = (_NOTHING if each is None else each.sums for each in found)
        return torch.stack([each.loss_sum for each in found if each is not None]).sum(), Counts(sampled, anchored)


def _losses(loss: Loss, values: Sequence[Tensor], reference_M: Tensor | None, proximal_M: Tensor | None) -> TokenLosses:
    proximal_M = proximal_M if loss.needs_proximal else None
    return loss(*values, reference_logprobs_M=reference_M, proximal_logprobs_M=proximal_M)


@dataclass(frozen=True, slots=True)
class Internalised:
    """How near the plain policy is to what was sampled under an arm: means over anchored rows, in nats a token.

    They are of log π(y | plain) − log μ(y | shown), where μ sampled y, for π before the round's first step and after
    its last one. At 0 plain says it as readily. `after` is None where it was not measured.
    """

    rows: int
    before: float
    after: float | None


LogprobGaps = Mapping[int, tuple[int, float]]
"""Arm → its anchored rows, and the sum of their mean shifts (nats a token)."""


def logprob_gaps(rows: Iterable[Row], logprobs: Mapping[int, Tensor]) -> LogprobGaps:
    """How far these rows' log-probs lie from those that they were sampled with. `logprobs` go by a row's identity."""
    found: dict[int, tuple[int, float]] = {}
    for row in {id(row): row for row in rows if row.anchored is not None}.values():
        assert row.anchored is not None
        shift = float(logprobs[id(row)].double().mean()) - float(row.sampled_logprobs_T[row.mask_T].mean(dtype="f8"))
        count, total = found.get(row.anchored, (0, 0.0))
        found[row.anchored] = (count + 1, total + shift)
    return found


def internalised(parts: Sequence[tuple[LogprobGaps, LogprobGaps | None]]) -> dict[int, Internalised]:
    """Arm → what was measured, from each learner's shifts before and after the round."""
    found = {}
    for arm in sorted({arm for before, _ in parts for arm in before}):
        rows = sum(before[arm][0] for before, _ in parts if arm in before)
        start = sum(before[arm][1] for before, _ in parts if arm in before)
        ends = [after[arm][1] for _, after in parts if after is not None and arm in after]
        found[arm] = Internalised(rows, start / rows, sum(ends) / rows if ends else None)
    return found


def gap_closed(found: Mapping[int, Internalised]) -> dict[int, float]:
    """Arm → what the round's training did for its rows where that was measured, as the curator's reward takes it."""
    return {arm: change_of(each.before, each.after) for arm, each in found.items() if each.after is not None}


def internalisation_metrics(found: Mapping[int, Internalised]) -> dict[str, float]:
    """What was measured of each arm and of all of them, by the names of metrics."""
    values: dict[str, float] = {}
    for name in ("before", "after"):
        known = {arm: (each.rows, value) for arm, each in found.items() if (value := getattr(each, name)) is not None}
        values |= {f"solver/internalised_{name}/{arm}": value for arm, (_, value) in known.items() if arm <= MOST_ARMS}
        if known:
            rows = sum(count for count, _ in known.values())
            values[f"solver/internalised_{name}"] = sum(count * value for count, value in known.values()) / rows
    return values
