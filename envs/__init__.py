"""Tasks, simulators, verifier, diagnosis, interface, dialects, dialogue and game. No torch, no Ray.

    from envs import Dialogue, find_task
    dialogue = Dialogue(find_task("multi_turn_base_0"))
    observation, info = dialogue.reset()
    observation, reward, terminated, truncated, info = dialogue.step(completion)

Both names are imported on first use, so that importing `envs` is quick; import all others from their own files.
`gymnasium.make("seal_ray/Dialogue-v0", task="multi_turn_base_0")` works once `envs.registration` is imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envs.dialogue import Dialogue
    from envs.sources import find_task

_HOME_OF = {"Dialogue": "envs.dialogue", "find_task": "envs.sources"}

__all__ = ["Dialogue", "find_task"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'envs' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
