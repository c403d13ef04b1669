"""Advantages: of a group's rollouts by `training.advantage`, and of a window's proposals."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from envs.registry import Registry

Floats = NDArray[np.float64]
Advantage = Callable[[Floats, NDArray[np.int64]], Floats]
"""Advantages of a group from its G rewards, two or more and not all equal, and the arm of each member (0 is plain)."""

_EPSILON = 1e-6
_ROUNDING = 1e-12
"""Relative tolerance of equal values."""
REJECTION_STEP = 0.1
"""Distance of a rejected proposal from the worst accepted one."""


def grpo(rewards_G: Floats, arms_G: NDArray[np.int64]) -> Floats:
    """`(r − mean) / (std + ε)` (GRPO, arXiv 2402.03300, section 4.1)."""
    del arms_G  # members are compared whatever they were shown
    return np.asarray((rewards_G - rewards_G.mean()) / float(rewards_G.std() + _EPSILON), dtype=np.float64)


def dr_grpo(rewards_G: Floats, arms_G: NDArray[np.int64]) -> Floats:
    """`r − mean`, so that nearly solved groups weigh the same as others (Dr. GRPO, arXiv 2503.20783, section 3.2)."""
    del arms_G
    return np.asarray(rewards_G - rewards_G.mean(), dtype=np.float64)


def rloo(rewards_G: Floats, arms_G: NDArray[np.int64]) -> Floats:
    """`r_i − Σ_{j≠i} r_j / (G − 1)`, an unbiased baseline (RLOO, arXiv 2402.14740, section 2.2)."""
    del arms_G
    return np.asarray(rewards_G - (rewards_G.sum() - rewards_G) / (len(rewards_G) - 1), dtype=np.float64)


ADVANTAGES: Registry[Advantage] = Registry(
    "training.advantage",
    "seal_ray.advantages",
    {name: f"seal_ray.grpo.advantages:{name.replace('-', '_')}" for name in ("grpo", "dr-grpo", "rloo")},
)


def group_advantages(
    rewards_G: Sequence[float], arms_G: Sequence[int] | None = None, *, advantage: Advantage = grpo
) -> Floats | None:
    """The advantages of a group, or None if its rewards are equal except for rounding.

    Args:
        rewards_G: Rewards of the G members.
        arms_G: The arm that each member played, by default the plain one.
        advantage: The estimator.

    Raises:
        ValueError: If a reward or an advantage is not finite, or there is none.
    """
    rewards = np.asarray(rewards_G, dtype=np.float64)
    if rewards.ndim != 1 or rewards.size == 0 or not np.isfinite(rewards).all():
        raise ValueError(f"a group's rewards must be a row of finite numbers, not {rewards_G!r}")
    # Not `std == 0`: the mean of equal rewards is rounded, and ε is too small to hide the remainder.
    if all_equal(rewards):
        return None
    arms = np.zeros(len(rewards), dtype=np.int64) if arms_G is None else np.asarray(arms_G, dtype=np.int64)
    advantages_G = np.asarray(advantage(rewards, arms), dtype=np.float64)
    if advantages_G.shape != rewards.shape or not np.isfinite(advantages_G).all():
        raise ValueError(f"a group's advantages must be as many finite numbers as its rewards, not {advantages_G!r}")
    return advantages_G


def centred_advantages(values_G: Sequence[float], rejected_G: Sequence[bool]) -> Floats | None:
    """Advantages of proposals: `v − mean(v)`, where a rejected one has the worst accepted value less `REJECTION_STEP`.

    There is no division by the deviation, or rejections would set the scale (arXiv 2503.20783, section 3.2). Returns
    None if all values are equal or none was accepted. Raises `ValueError` if an accepted value is not finite.
    """
    values, rejected = _checked(values_G, rejected_G)
    if len(values) < 2 or rejected.all():
        return None
    values = np.where(rejected, values[~rejected].min() - REJECTION_STEP, values)
    return None if all_equal(values) else values - values.mean()


def regression_weights(values_G: Sequence[float], rejected_G: Sequence[bool]) -> Floats | None:
    """Weights of reward-weighted regression: `exp(v)`, divided by the mean over the group; 0 for rejected proposals.

    Peters and Schaal 2007, as in GenEnv (arXiv 2512.19682, λ = 1). Returns None if all weights are equal: the expected
    gradient is then 0. Raises `ValueError` if an accepted value is not finite.
    """
    values, rejected = _checked(values_G, rejected_G)
    if rejected.all():
        return None
    weights = np.zeros_like(values)
    best = values[~rejected].max()  # it cancels, and keeps the exponential finite
    weights[~rejected] = np.exp(values[~rejected] - best)
    weights /= weights.mean()
    return None if all_equal(weights) else weights


def all_equal(values: Floats) -> bool:
    """Whether one or more finite values are equal except for rounding."""
    return bool(values.max() - values.min() <= _ROUNDING * np.abs(values).max())


def _checked(values_G: Sequence[float], rejected_G: Sequence[bool]) -> tuple[Floats, NDArray[np.bool_]]:
    values, rejected = np.asarray(values_G, dtype=np.float64), np.asarray(rejected_G, dtype=bool)
    if not np.isfinite(values[~rejected]).all():
        raise ValueError(f"the values of proposals must be finite numbers, not {values_G!r}")
    return values, rejected
