"""The schedule of the learning rate over gradient steps."""

import math

from seal_ray.config.schema import TrainingSection


def rate_factor(step: int, training: TrainingSection) -> float:
    """The factor of the learning rate at a step, counted from 0: linear warm-up, then a decay to 0.

    0 is reached at the end of a run that learns from all its groups, and not before the end of the warm-up. Groups that
    are left out take steps away, so that the run ends above 0.
    """
    warm_up, total = training.warm_up, training.gradient_steps
    if step < warm_up:
        return (step + 1) / warm_up
    if training.schedule == "constant":
        return 1.0
    done = min(1.0, (step - warm_up) / (total - warm_up)) if total > warm_up else 1.0
    return 1 - done if training.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
