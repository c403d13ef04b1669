"""Hint-stripped rows in the learner: plain views of rollouts that were sampled under an interface.

Their old log-probs are the learner's before the round's first step, so that their ratio begins at 1. They have separate
sums: tokens that were sampled with other prompts are no evidence about the engine's weights.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from seal_ray.config.schema import TrainingSection
from seal_ray.grpo.losses import LOSSES, OFF_POLICY_WEIGHTS, Loss, LossSums, OffPolicyWeight, TokenLosses
from seal_ray.grpo.packing import Packed
from seal_ray.grpo.rows import Row
from seal_ray.metrics import MAX_ARMS

_NONE = LossSums()


@dataclass(frozen=True, slots=True)
class Counts:
    """Sums over the tokens of rows as they were sampled and of hint-stripped rows, and over off-policy weights."""

    sampled: LossSums = _NONE
    stripped: LossSums = _NONE
    weight: float = 0.0

    def __add__(self, other: Self) -> Self:
        return type(self)(self.sampled + other.sampled, self.stripped + other.stripped, self.weight + other.weight)

    @property
    def all(self) -> LossSums:
        return self.sampled + self.stripped


def loss_metrics(counts: Counts, first: Counts) -> dict[str, float]:
    """Metrics of the sums over all gradient steps, and over the first one."""
    total, sampled, stripped = counts.all, counts.sampled, counts.stripped
    tokens, sampled_tokens, stripped_tokens = (max(1, each.tokens) for each in (total, sampled, stripped))
    first_tokens = max(1, first.sampled.tokens)
    return {
        "tokens": total.tokens,
        "loss": total.loss / tokens,
        "kl": sampled.reference_kl / sampled_tokens,
        "kl_sampler": sampled.sampler_kl / sampled_tokens,
        "clip_fraction": total.clipped / tokens,
        "capped_fraction": sampled.capped / sampled_tokens,
        "ratio_first": first.sampled.ratio / first_tokens,
        # k3 is x²/2 for small x: the root mean square of the log-ratio.
        "ratio_first_error": math.sqrt(2 * max(0.0, first.sampled.sampler_kl) / first_tokens),
        "hint_stripped_tokens": stripped.tokens,
        "hint_stripped_ratio_first": first.stripped.ratio / max(1, first.stripped.tokens),
        "hint_stripped_clip_fraction": stripped.clipped / stripped_tokens,
        "off_policy_weight": counts.weight / stripped_tokens,
    }


class RowLoss:
    """The loss of rows of both kinds, by the settings of `training`."""

    def __init__(self, training: TrainingSection) -> None:
        self._loss: Loss = LOSSES.make(training.loss, dict(training))
        # The ratio of hint-stripped rows is to the learner's own log-probs: no difference to an engine to correct.
        self._stripped_loss: Loss = LOSSES.make(training.loss, {**dict(training), "importance_cap": None})
        self._weight: OffPolicyWeight = OFF_POLICY_WEIGHTS.make(training.off_policy_weight)

    def needs_own_logprobs(self, row: Row) -> bool:
        """Whether the loss reads the learner's own log-probs of the row before the round's first step."""
        return self._loss.needs_proximal or row.stripped_of is not None

    def reweight(self, packed: Packed, proximal_M: Tensor | None) -> tuple[Packed, float]:
        """`packed` with the old log-probs and weighted advantages of hint-stripped tokens, and the sum of the weights.

        `proximal_M` are the learner's own log-probs, arbitrary for rows that do not need them; None if none does.
        """
        if proximal_M is None or not packed.stripped_M.any():
            return packed, 0.0
        weight_M = self._weight(proximal_M - packed.sampled_logprobs_M).detach().to(packed.advantages_M.dtype)
        weight_M = torch.where(packed.stripped_M, weight_M, 1.0)
        reweighted = replace(
            packed,
            sampled_logprobs_M=torch.where(packed.stripped_M, proximal_M, packed.sampled_logprobs_M),
            advantages_M=packed.advantages_M * weight_M,
        )
        return reweighted, float(weight_M[packed.stripped_M].sum())

    def __call__(
        self, logprobs_M: Tensor, packed: Packed, *, reference_M: Tensor | None, proximal_M: Tensor | None
    ) -> tuple[Tensor, Counts]:
        """The loss after `reweight`, summed over the tokens, and the counts."""
        stripped_M = packed.stripped_M
        values = (logprobs_M, packed.sampled_logprobs_M, packed.advantages_M, reference_M, proximal_M)
        if not stripped_M.any():
            losses = _losses(self._loss, *values)
            return losses.loss_sum, Counts(losses.sums)
        sums, parts = [_NONE, _NONE], list[Tensor]()
        for place, (loss, chosen_M) in enumerate(((self._loss, ~stripped_M), (self._stripped_loss, stripped_M))):
            if chosen_M.any():
                losses = _losses(loss, *(None if each is None else each[chosen_M] for each in values))
                parts.append(losses.loss_sum)
                sums[place] = losses.sums
        return torch.stack(parts).sum(), Counts(sampled=sums[0], stripped=sums[1])


def _losses(loss: Loss, *values: Any) -> TokenLosses:
    *tokens, reference_M, proximal_M = values
    proximal_M = proximal_M if loss.needs_proximal else None
    return loss(*tokens, reference_logprobs_M=reference_M, proximal_logprobs_M=proximal_M)


@dataclass(frozen=True, slots=True)
class Internalisation:
    """Gaps of the plain policy π to the policy μ that sampled y under an arm: log π(y | plain) − log μ(y | shown).

    Means over hint-stripped rows (nats a token), before the round's first step and after its last one.
    """

    rows: int
    before: float
    after: float


LogprobGaps = Mapping[str, tuple[int, float]]
"""Arm → number of its hint-stripped rows, and the sum of their mean gaps (nats a token)."""


def logprob_gaps(rows: Iterable[Row], logprobs: Mapping[int, Tensor]) -> LogprobGaps:
    """The gaps of hint-stripped rows, from their `logprobs` by identity."""
    gaps: dict[str, tuple[int, float]] = {}
    for row in {id(row): row for row in rows}.values():
        if row.stripped_of is None:
            continue
        gap = float(logprobs[id(row)].double().mean()) - float(row.sampled_logprobs_T[row.mask_T].mean(dtype="f8"))
        count, total = gaps.get(row.stripped_of, (0, 0.0))
        gaps[row.stripped_of] = (count + 1, total + gap)
    return gaps


def internalisation(parts: Sequence[tuple[LogprobGaps, LogprobGaps]]) -> dict[str, Internalisation]:
    """Arm → internalisation, from each learner's gaps before and after the round."""
    measured = {}
    for arm in sorted({arm for before, _ in parts for arm in before}):
        rows = sum(before[arm][0] for before, _ in parts if arm in before)
        start = sum(before[arm][1] for before, _ in parts if arm in before)
        end = sum(after[arm][1] for _, after in parts if arm in after)
        measured[arm] = Internalisation(rows, start / rows, end / rows)
    return measured


def internalisation_metrics(measured: Mapping[str, Internalisation], arms: Sequence[str]) -> dict[str, float]:
    """Metrics of all arms together, and of each by its place among the window's `arms`."""
    values: dict[str, float] = {}
    rows = sum(each.rows for each in measured.values())
    for name in ("before", "after") if rows else ():
        metric = f"solver/internalised_{name}"
        places = {place: measured[arm] for place, arm in enumerate(arms[: MAX_ARMS + 1]) if arm in measured}
        values |= {f"{metric}/{place}": getattr(each, name) for place, each in places.items()}
        values[metric] = sum(each.rows * getattr(each, name) for each in measured.values()) / rows
    return values
