"""Values that differ by rounding alone: they teach nothing, and must not be taken for different."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1e-12
"""Values are equal where they differ by no more than this part of the largest one."""


def all_equal(values: NDArray[np.float64]) -> bool:
    """Whether one or more finite values are the same but for rounding."""
    return bool(values.max() - values.min() <= _ROUNDING * np.abs(values).max())
