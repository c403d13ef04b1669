"""`Row`: a sample with its advantage; `Minibatch`: the groups of rows of one gradient step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from policies.trajectory import Sample


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A sample of T tokens and its advantage, made by `make_row` or `row_of`.

    `mask_T` is True for sampled tokens, never for the first one; only their `sampled_logprobs_T` (nats) are read.
    A hint-stripped row is the plain view of a rollout that was sampled under the arm `stripped_of`, with the log-probs
    under that arm.
    """

    token_ids_T: NDArray[np.int64]
    mask_T: NDArray[np.bool_]
    sampled_logprobs_T: NDArray[np.float32]
    advantage: float
    stripped_of: str | None = None

    def __len__(self) -> int:
        return len(self.token_ids_T)

    @property
    def sampled_tokens(self) -> int:
        """Number of tokens in the loss."""
        return int(self.mask_T.sum())


@dataclass(frozen=True, slots=True, eq=False)
class Minibatch:
    """The rows of one gradient step, in groups that share their prompt.

    `global_tokens` is the number of sampled tokens of the step over all learners: the loss is the mean over them.
    """

    groups: Sequence[Sequence[Row]]
    global_tokens: int

    @classmethod
    def of(cls, groups: Sequence[Sequence[Row]]) -> Self:
        """The minibatch of one learner."""
        return cls(groups, sum(row.sampled_tokens for group in groups for row in group))


def row_of(sample: Sample, advantage: float, *, stripped_of: str | None = None) -> Row:
    """The row of a sample. Raises `ValueError` as `make_row` does."""
    values = (sample.token_ids_T, sample.mask_T, sample.sampled_logprobs_T)
    return make_row(*values, advantage, stripped_of=stripped_of)


def make_row(
    token_ids_T: Sequence[int] | NDArray[np.integer],
    mask_T: Sequence[bool] | NDArray[np.bool_],
    sampled_logprobs_T: Sequence[float] | NDArray[np.floating],
    advantage: float,
    *,
    stripped_of: str | None = None,
) -> Row:
    """A checked row.

    Raises `ValueError` if the lengths differ, there is no token, the first one is sampled (nothing predicts it), or the
    advantage or a sampled token's log-prob is not finite.
    """
    row = Row(
        np.asarray(token_ids_T, dtype=np.int64),
        np.asarray(mask_T, dtype=np.bool_),
        np.asarray(sampled_logprobs_T, dtype=np.float32),
        float(advantage),
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
