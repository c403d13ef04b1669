"""Probe: what the window did for plain success on held-out tasks like the written one."""

from __future__ import annotations

from envs.specifications import Specification, likeness
from seal_ray.algorithm.tasks.rewards import Probe, WindowOutcomes


class ProbeReward:
    """A task is worth the gain in plain success on the held-out probe tasks over the window, from -1 to 1.

    A window has one gain, and its tasks must be told apart: each probe task counts by its likeness to the written one,
    all of them equally where none is like it. So a task is paid for what became better near it. Not learnt from where
    there are no probe tasks.
    """

    worst = -1.0
    needs_probe = True

    def __call__(self, window: WindowOutcomes) -> list[float | None]:
        return [self._gain(each.specification, window) if each.rollouts else None for each in window.written]

    def _gain(self, specification: Specification, window: WindowOutcomes) -> float | None:
        if not window.probes:
            return None
        weights = [likeness(specification, each.specification) for each in window.probes]
        if not any(weights):
            weights = [1.0] * len(window.probes)
        return sum(weight * _change(each) for weight, each in zip(weights, window.probes, strict=True)) / sum(weights)


def _change(probe: Probe) -> float:
    return probe.after - probe.before
