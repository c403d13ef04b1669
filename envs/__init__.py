"""The world: tasks, simulators, verifier, diagnosis, interface, dialects, dialogue and game. No torch, no Ray.

A dialogue is played in a few lines:

    from envs import Dialogue, find_task
    dialogue = Dialogue(find_task("multi_turn_base_0"))
    observation, info = dialogue.reset()
    observation, reward, terminated, truncated, info = dialogue.step(completion)

Names are loaded when first used, so that importing `envs` is quick. `gymnasium.make("seal_ray/Dialogue-v0",
task="multi_turn_base_0")` works once `envs.registration` is imported; the two-agent game is `envs.co_evolution_v0`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envs.diagnosis import Diagnosis, Flag, Label, TurnDiagnosis
    from envs.dialects import DIALECTS, Dialect, get_dialect
    from envs.dialogue import Dialogue, Message, Protocol
    from envs.errors import EnvironmentFault, SealError, UserError
    from envs.interface import CueKind, Interface, RecoveryLevel, SchemaCue, interface_diff
    from envs.interface.document import dump_interface, interface_from_json, load_interface
    from envs.profile import FailureProfile
    from envs.sources import Split, TaskSet, TaskSource, find_task, get_source
    from envs.task import Category, Task, ToolCall, ToolDoc, Turn
    from envs.trace import CallRecord, ParseError, Step, Trace
    from envs.verifier import Outcome, TurnVerdict, Verifier
    from envs.world import CallResult, Setting, User, World

_HOMES = {
    "envs.diagnosis": ("Diagnosis", "Flag", "Label", "TurnDiagnosis"),
    "envs.dialects": ("DIALECTS", "Dialect", "get_dialect"),
    "envs.dialogue": ("Dialogue", "Message", "Protocol"),
    "envs.errors": ("EnvironmentFault", "SealError", "UserError"),
    "envs.interface": ("CueKind", "Interface", "RecoveryLevel", "SchemaCue", "interface_diff"),
    "envs.interface.document": ("dump_interface", "interface_from_json", "load_interface"),
    "envs.profile": ("FailureProfile",),
    "envs.sources": ("Split", "TaskSet", "TaskSource", "find_task", "get_source"),
    "envs.task": ("Category", "Task", "ToolCall", "ToolDoc", "Turn"),
    "envs.trace": ("CallRecord", "ParseError", "Step", "Trace"),
    "envs.verifier": ("Outcome", "TurnVerdict", "Verifier"),
    "envs.world": ("CallResult", "Setting", "User", "World"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "DIALECTS",
    "CallRecord",
    "CallResult",
    "Category",
    "CueKind",
    "Diagnosis",
    "Dialect",
    "Dialogue",
    "EnvironmentFault",
    "FailureProfile",
    "Flag",
    "Interface",
    "Label",
    "Message",
    "Outcome",
    "ParseError",
    "Protocol",
    "RecoveryLevel",
    "SchemaCue",
    "SealError",
    "Setting",
    "Split",
    "Step",
    "Task",
    "TaskSet",
    "TaskSource",
    "ToolCall",
    "ToolDoc",
    "Trace",
    "Turn",
    "TurnDiagnosis",
    "TurnVerdict",
    "User",
    "UserError",
    "Verifier",
    "World",
    "dump_interface",
    "find_task",
    "get_dialect",
    "get_source",
    "interface_diff",
    "interface_from_json",
    "load_interface",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'envs' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
