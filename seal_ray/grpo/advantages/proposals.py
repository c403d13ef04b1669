"""Advantages of a curator's proposals: what they are worth, centred, not divided by their deviation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from seal_ray.grpo.rounding import all_equal

STEP = 0.1
"""How far below the worst accepted proposal a rejected one lies."""


def centred_advantages(
    values_G: Sequence[float], rejected_G: Sequence[bool], *, step: float = STEP
) -> NDArray[np.float64] | None:
    """`A = v − mean(v)`, where a rejected proposal has the value of the worst accepted one less `step`.

    The values of rejected ones are not read. So a rejection does not set the scale of the others, which a division by
    the deviation would have it do: Dr. GRPO's argument (arXiv 2503.20783, section 3.2). Returns None where all are
    worth the same, or none was accepted. Raises `ValueError` where a value is not finite.
    """
    values, rejected = np.asarray(values_G, dtype=np.float64), np.asarray(rejected_G, dtype=bool)
    if not np.isfinite(values[~rejected]).all():
        raise ValueError(f"the values of proposals must be finite numbers, not {values_G!r}")
    if rejected.all():
        return None
    values = np.where(rejected, values[~rejected].min() - step, values)
    return None if all_equal(values) else values - values.mean()
