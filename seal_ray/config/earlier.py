"""The conversion of the config of a run of an earlier version."""

from collections.abc import Mapping
from typing import Any

_LEARNING = {"curator": "coevolved", "task_writer": "learning"}
"""Kinds of earlier versions that learnt; now they have `trainable`."""
_OFF_POLICY_WEIGHTS = {"one": "none", "shaped": "sqrt"}


def converted(document: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a run, with the sections, keys and kinds of an earlier version under their present names.

    Settings that are gone stay as they are. A config of the present version is returned unchanged.
    """
    sections = {name: dict(values) if isinstance(values, Mapping) else values for name, values in document.items()}
    if "writer" in sections:
        writer = sections["task_writer"] = sections.pop("writer")
        if writer.get("reward") == "probe":
            writer["reward"] = "held_out_success"
    for section, kind in _LEARNING.items():
        if sections.get(section, {}).get("kind") == kind:
            sections[section] |= {"kind": "llm", "trainable": True}
    curator = sections.get("curator", {})
    if "played" in curator and curator["played"] is None:  # all proposals
        curator["played"] = curator.get("proposals", 3)
    environment, training = sections.get("environment", {}), sections.get("training", {})
    if "division" in environment:
        environment["split_scheme"] = environment.pop("division")
    if "fill" in training:
        training["dynamic_sampling"] = training.pop("fill") == "resample"
    if "group_floor" in training:
        training["min_group_completion"] = training.pop("group_floor")
    if "anchor_weight" in training:
        weight = training.pop("anchor_weight")
        training["off_policy_weight"] = _OFF_POLICY_WEIGHTS.get(str(weight), weight)
    if training.get("baseline") == "leave-one-out" and training.get("advantage") == "dr-grpo":
        training["advantage"] = "rloo"
    if "diagnosis" in sections:
        training.setdefault("trajectories_kept", sections.pop("diagnosis").get("trajectories_kept", 8))
        sections["training"] = training
    return sections
