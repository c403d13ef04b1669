"""`Row`: a sample with its advantage, for the learner; and `Minibatch`: the groups of rows of one gradient step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.sample import Sample


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A sample of T tokens and its advantage. Made by `make_row` or `row_of`.

    `mask_T` is True where the policy sampled the token, never at the first one; `sampled_logprobs_T` are these tokens'
    log-probabilities (nats) under the distribution they were sampled from, and are not read elsewhere. All sampled
    tokens have the `advantage`. `arm` is the id of the arm whose gradient the row belongs to, if arms are compared.

    A hint-stripped row is the plain view of a rollout that was sampled under the arm `stripped_of`:
    `sampled_logprobs_T` are those under that arm's interface. Its old log-probs are the learner's own before the
    round's first step.
    """

    token_ids_T: NDArray[np.int64]
    mask_T: NDArray[np.bool_]
    sampled_logprobs_T: NDArray[np.float32]
    advantage: float
    arm: str | None = None
    stripped_of: str | None = None

    def __len__(self) -> int:
        return len(self.token_ids_T)

    @property
    def sampled_tokens(self) -> int:
        """How many tokens the loss is over."""
        return int(self.mask_T.sum())


@dataclass(frozen=True, slots=True, eq=False)
class Minibatch:
    """The rows of one gradient step, in groups: those of a group share their prompt.

    `global_tokens` are the sampled tokens of the step in all learners together, over which the loss is the mean.
    """

    groups: Sequence[Sequence[Row]]
    global_tokens: int

    @classmethod
    def of(cls, groups: Sequence[Sequence[Row]]) -> Minibatch:
        """These groups, as the whole step."""
        return cls(groups, sum(row.sampled_tokens for group in groups for row in group))


def row_of(sample: Sample, advantage: float, *, arm: str | None = None, stripped_of: str | None = None) -> Row:
    """The row of a sample. Raises `ValueError` as `make_row` does."""
    values = (sample.token_ids_T, sample.mask_T, sample.sampled_logprobs_T)
    return make_row(*values, advantage, arm=arm, stripped_of=stripped_of)


def make_row(
    token_ids_T: Sequence[int] | NDArray[np.integer],
    mask_T: Sequence[bool] | NDArray[np.bool_],
    sampled_logprobs_T: Sequence[float] | NDArray[np.floating],
    advantage: float,
    *,
    arm: str | None = None,
    stripped_of: str | None = None,
) -> Row:
    """A row of these values.

    Raises `ValueError` where the lengths differ, there is no token, the first one is sampled (nothing predicts it), or
    the advantage or a sampled token's log-prob is not finite.
    """
    row = Row(
        np.asarray(token_ids_T, dtype=np.int64),
        np.asarray(mask_T, dtype=np.bool_),
        np.asarray(sampled_logprobs_T, dtype=np.float32),
        float(advantage),
        arm,
        stripped_of,
    )
    lengths = (len(row.token_ids_T), len(row.mask_T), len(row.sampled_logprobs_T))
    if len(set(lengths)) != 1:
        raise ValueError("{} tokens, {} of the mask and {} log-probs; a row has as many of each".format(*lengths))
    if not lengths[0]:
        raise ValueError("a row without tokens")
    if row.mask_T[0]:
        raise ValueError("the first token of a row cannot be sampled, since nothing predicts it")
    if not np.isfinite(row.advantage) or not np.isfinite(row.sampled_logprobs_T[row.mask_T]).all():
        raise ValueError("an advantage or a log-prob that is not finite")
    return row
