"""Registers the dialogue with Gymnasium as "seal_ray/Dialogue-v0"; importing this module is enough."""

from typing import Any

import gymnasium

from envs.dialects import get_dialect
from envs.dialogue import Dialogue
from envs.interface.json_form import interface_from_dict
from envs.interface.value import Interface
from envs.sources import find_task
from envs.task import JSON

DIALOGUE_ID = "seal_ray/Dialogue-v0"


def make_dialogue(task: str, *, dialect: str = "qwen", interface: JSON = None, **settings: Any) -> Dialogue:
    """A dialogue from plain values, as `gymnasium.make` passes them; `interface` is its JSON form, None for plain."""
    shown = Interface.plain() if interface is None else interface_from_dict(interface)
    return Dialogue(find_task(task), dialect=get_dialect(dialect), interface=shown, **settings)


if DIALOGUE_ID not in gymnasium.registry:
    gymnasium.register(id=DIALOGUE_ID, entry_point="envs.registration:make_dialogue")
