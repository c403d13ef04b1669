"""Progress: how much the solver has got better at tasks like the written one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from seal_ray.algorithm.tasks.rewards import NEAR, TaskOutcome, WindowOutcomes, success_near


class LearningProgressReward:
    """A task is worth the change of plain success on the neighbours of its specification, from -1 to 1.

    Neighbours are tasks whose specification is of the same category and at least `near` like it: scenes, intents and
    turns that both have, of all that one has (Jaccard). Success now is that of the window's rollouts on them, the task
    itself included; success before is what the pool knew of them when the window began. Each rollout is weighed by
    likeness. Of a task without neighbours from before, or that was not played, nothing is known: it is not learnt from.

    Neighbours are not equally hard, so that a part of the change is chance and not learning. ALP-GMM compares a task
    with its nearest one in the same way (arXiv 1910.07224).
    """

    worst = -1.0
    needs_probe = False

    class Settings(BaseModel):
        """The setting of learning progress."""

        model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
        near: Annotated[float, Field(gt=0.0, le=1.0)] = NEAR
        """Likeness from which on two specifications are neighbours."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._near = (settings or self.Settings()).near

    def __call__(self, window: WindowOutcomes) -> list[float | None]:
        now = [*window.written, *window.now]
        return [self._change(each, now, window.earlier) if each.rollouts else None for each in window.written]

    def _change(self, task: TaskOutcome, now: Sequence[TaskOutcome], earlier: Sequence[TaskOutcome]) -> float | None:
        before = success_near(task.specification, earlier, near=self._near)
        after = success_near(task.specification, now, near=self._near)
        return None if before is None or after is None else after - before
