"""`Row`: what the learner needs of one trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One trajectory of T tokens and its advantage. Made by `make_row`.

    `mask_T` is True where the policy sampled the token, never at the first one; `logprobs_T` are these tokens'
    log-probabilities (nats) under the distribution they were sampled from, and are not read elsewhere. `advantage` is
    that of each sampled token. `arm` is the one that the row counts for where the gradients of arms are compared.
    """

    token_ids_T: NDArray[np.int64]
    mask_T: NDArray[np.bool_]
    logprobs_T: NDArray[np.float32]
    advantage: float
    arm: int | None = None

    def __len__(self) -> int:
        return len(self.token_ids_T)

    @property
    def sampled_tokens(self) -> int:
        """How many tokens the loss is over."""
        return int(self.mask_T.sum())


def make_row(
    token_ids_T: Sequence[int] | NDArray[np.integer],
    mask_T: Sequence[bool] | NDArray[np.bool_],
    logprobs_T: Sequence[float] | NDArray[np.floating],
    advantage: float,
    *,
    arm: int | None = None,
) -> Row:
    """A row of these values.

    Raises `ValueError` where the lengths differ, there is no token, the first one is sampled (nothing predicts it), or
    the advantage or a sampled token's log-prob is not finite.
    """
    row = Row(
        np.asarray(token_ids_T, dtype=np.int64),
        np.asarray(mask_T, dtype=np.bool_),
        np.asarray(logprobs_T, dtype=np.float32),
        float(advantage),
        arm,
    )
    lengths = (len(row.token_ids_T), len(row.mask_T), len(row.logprobs_T))
    if len(set(lengths)) != 1:
        raise ValueError("{} tokens, {} of the mask and {} log-probs; a row has as many of each".format(*lengths))
    if not lengths[0]:
        raise ValueError("a row without tokens")
    if row.mask_T[0]:
        raise ValueError("the first token of a row cannot be sampled, since nothing predicts it")
    if not np.isfinite(row.advantage) or not np.isfinite(row.logprobs_T[row.mask_T]).all():
        raise ValueError("an advantage or a log-prob that is not finite")
    return row
