"""Settings of earlier versions: the sentence that says what replaces one, and the conversion of a run's config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envs.errors import UserError

_BY_POSTERIOR = "a curator that is a language model compares its arms on common tasks by the posterior; leave it out"
_CONSTANT = "it is constant now; leave it out"
_IMPORT = "write a custom {0} as package.module:NAME in {0}, with its constants inside"
REPLACED: Mapping[str, str] = {
    "environment.division": "set environment.split_scheme",
    "environment.sampler": "set training.dynamic_sampling, or let a task writer choose tasks",
    "environment.sampler_floor": "set training.dynamic_sampling, or let a task writer choose tasks",
    "environment.reward_settings": _IMPORT.format("environment.reward"),
    "environment.abstention_weight": "it is 0.5 now; write a custom environment.reward for another",
    "solver.lora_alpha": "it is twice solver.lora_rank",
    "solver.lora_targets": "all linear layers of attention and MLP have adapters",
    "curator.kind_settings": _IMPORT.format("curator.kind"),
    "curator.min_count": _CONSTANT,
    "curator.min_prevalence": _CONSTANT,
    "curator.max_reward": _CONSTANT,
    "curator.keep": _CONSTANT,
    "curator.fade_from": "the fade-out begins in the middle of the run; leave it out",
    "curator.show": "both halves of a pair are always played; leave it out",
    "curator.extends": "a proposal replaces the interface in force; leave it out",
    "curator.tasks": _BY_POSTERIOR,
    "curator.choose": _BY_POSTERIOR,
    "curator.margin": _BY_POSTERIOR,
    "curator.share_out": "set curator.allocation",
    "curator.noise": "curator.allocation=by_category includes it",
    "curator.guideline_tokens": _CONSTANT,
    "curator.retries": _CONSTANT,
    "curator.temperature": "proposals are sampled at temperature 1; leave it out",
    "curator.reward_settings": _IMPORT.format("curator.reward"),
    "curator.promote_at": _CONSTANT,
    "curator.prior": _CONSTANT,
    "curator.discount": _CONSTANT,
    "curator.advantage": "advantages of proposals are centred; leave it out",
    "curator.rejection_step": _CONSTANT,
    "curator.lora_rank": "solver.lora_rank is that of all agents",
    "diagnosis.trajectories_kept": "set training.trajectories_kept",
    "reweighting.overrides": "set reweighting.spurious_tool_call and reweighting.correct_abstention",
    "reweighting.confidence": _CONSTANT,
    "reweighting.warm_up": "weights hold from the first round; leave it out",
    "training.fill": "set training.dynamic_sampling",
    "training.fill_limit": _CONSTANT,
    "training.anchor_weight": "set training.off_policy_weight",
    "training.anchor_weight_settings": _IMPORT.format("training.off_policy_weight"),
    "training.anchor_share": "hint-stripped rows keep their advantages; leave it out",
    "training.anchor_share_end": "hint-stripped rows keep their advantages; leave it out",
    "training.anchor_cap": "hint-stripped rows keep their advantages; leave it out",
    "training.anchor_cap_end": "hint-stripped rows keep their advantages; leave it out",
    "training.anchor_fade_from": "hint-stripped rows keep their advantages; leave it out",
    "training.internalised": "it is always measured; leave it out",
    "training.baseline": "set training.advantage to grpo, dr-grpo, rloo or a custom one",
    "training.baseline_settings": _IMPORT.format("training.advantage"),
    "training.advantage_settings": _IMPORT.format("training.advantage"),
    "training.loss_settings": _IMPORT.format("training.loss"),
    "training.weight_decay": "there is none; leave it out",
    "training.dual_clip": "it is 10 now; write a custom training.loss for another",
    "training.group_floor": "set training.min_group_completion",
    "evaluation.suites_settings": _IMPORT.format("evaluation.suites"),
    "evaluation.temperature": "evaluation during training is greedy; seal-ray evaluate has --temperature",
    "learners.num_cpus_per_learner": "set it in Python, SealConfig().learners(num_cpus_per_learner=…)",
    "fault_tolerance.restart_failed_env_runners": "env runners are always restarted; leave it out",
    "fault_tolerance.max_num_env_runner_restarts": _CONSTANT,
    "fault_tolerance.max_engine_restarts": _CONSTANT,
    "fault_tolerance.retries": _CONSTANT,
}
"""Setting of an earlier version → what to do instead."""
_KINDS = {("curator", "coevolved"): "llm", ("task_writer", "learning"): "llm"}
"""Kinds of earlier versions that learnt; the present ones have `trainable`."""
_OFF_POLICY_WEIGHTS = {"one": "none", "shaped": "sqrt"}


def check_current(section: str, key: str) -> None:
    """Raises `UserError` with what replaces a setting of an earlier version."""
    if section == "writer":
        raise UserError(f"writer.{key}: the section is task_writer now; see docs/config.md.")
    if (instead := REPLACED.get(f"{section}.{key}")) is not None:
        raise UserError(f"{section}.{key}: this setting of an earlier version is gone: {instead}.")


def check_kind(section: str, kind: Any) -> None:
    """Raises `UserError` for a kind of an earlier version."""
    if (section, kind) in _KINDS:
        raise UserError(f"{section}.kind: {kind} is llm now; set {section}.kind=llm and {section}.trainable=true.")


def converted(document: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a run, with sections, keys and kinds of an earlier version under their present names.

    Settings that are gone stay as they are. A config of the present version is returned unchanged.
    """
    found = {name: dict(values) if isinstance(values, Mapping) else values for name, values in document.items()}
    if "writer" in found:
        writer = found.pop("writer")
        found["task_writer"] = writer
        if writer.get("reward") == "probe":
            writer["reward"] = "held_out_success"
    for section in ("curator", "task_writer"):
        kind = _KINDS.get((section, str(found.get(section, {}).get("kind"))))
        if kind is not None:
            found[section] |= {"kind": kind, "trainable": True}
    curator = found.get("curator", {})
    if "played" in curator and curator["played"] is None:  # all proposals
        curator["played"] = curator.get("proposals", 3)
    environment, training = found.get("environment", {}), found.get("training", {})
    if "division" in environment:
        environment["split_scheme"] = environment.pop("division")
    if "fill" in training:
        training["dynamic_sampling"] = training.pop("fill") == "resample"
    if "group_floor" in training:
        training["min_group_completion"] = training.pop("group_floor")
    if "anchor_weight" in training:
        weight = training.pop("anchor_weight")
        training["off_policy_weight"] = _OFF_POLICY_WEIGHTS.get(weight, weight)
    if training.get("baseline") == "leave-one-out" and training.get("advantage") == "dr-grpo":
        training |= {"advantage": "rloo"}
    if "diagnosis" in found:
        training.setdefault("trajectories_kept", found.pop("diagnosis").get("trajectories_kept", 8))
        found["training"] = training
    return found
