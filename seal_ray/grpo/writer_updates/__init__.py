"""Updates of a writer of tasks, by the name in `writer.update`: what it learns from its specifications' rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from envs.registry import Registry


class WriterUpdate(Protocol):
    """Called with the rewards of the G specifications of a window, and which of them were rejected, gives the weight of
    each in the loss named `loss`: advantages of a policy gradient, or weights of a regression. None where they teach
    nothing. Rewards of rejected ones are the least that there is.
    """

    loss: ClassVar[str]

    def __call__(self, rewards_G: Sequence[float], rejected_G: Sequence[bool]) -> NDArray[np.float64] | None: ...


WRITER_UPDATES: Registry[type[WriterUpdate]] = Registry(
    "writer.update",
    "seal_ray.writer_updates",
    {
        "grpo": "seal_ray.grpo.writer_updates.grpo:GRPOUpdate",
        "rwr": "seal_ray.grpo.writer_updates.rwr:RWRUpdate",
    },
)
"""The writer's updates. A class takes its `Settings` from the writer section and `writer.update_settings`."""
