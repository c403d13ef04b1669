"""Settings of earlier versions: their replacements, and the conversion of a run's config."""

from collections.abc import Mapping
from typing import Any

from envs.errors import UserError

_SENTENCES: Mapping[str, str] = {
    "set environment.split_scheme": "environment.division",
    "set training.dynamic_sampling, or let a task writer choose tasks": "environment.sampler environment.sampler_floor",
    "it is 0.5 now; write a custom environment.reward for another": "environment.abstention_weight",
    "it is twice solver.lora_rank": "solver.lora_alpha",
    "all linear layers of attention and MLP have adapters": "solver.lora_targets",
    "it is constant now; leave it out": """
        curator.min_count curator.min_prevalence curator.max_reward curator.keep curator.guideline_tokens
        curator.retries curator.promote_at curator.prior curator.discount curator.rejection_step
        reweighting.confidence training.fill_limit fault_tolerance.max_num_env_runner_restarts
        fault_tolerance.max_engine_restarts fault_tolerance.retries""",
    "the fade-out begins in the middle of the run; leave it out": "curator.fade_from",
    "both halves of a pair are always played; leave it out": "curator.show",
    "a proposal replaces the interface in force; leave it out": "curator.extends",
    "a curator that is a language model compares its arms on common tasks by the posterior; leave it out": (
        "curator.tasks curator.choose curator.margin"
    ),
    "set curator.allocation": "curator.share_out",
    "curator.allocation=by_category includes it": "curator.noise",
    "proposals are sampled at temperature 1; leave it out": "curator.temperature",
    "advantages of proposals are centred; leave it out": "curator.advantage",
    "solver.lora_rank is that of all agents": "curator.lora_rank",
    "set training.trajectories_kept": "diagnosis.trajectories_kept",
    "set reweighting.spurious_tool_call and reweighting.correct_abstention": "reweighting.overrides",
    "weights hold from the first round; leave it out": "reweighting.warm_up",
    "set training.dynamic_sampling": "training.fill",
    "set training.off_policy_weight": "training.anchor_weight",
    "hint-stripped rows keep their advantages; leave it out": """
        training.anchor_share training.anchor_share_end training.anchor_cap training.anchor_cap_end
        training.anchor_fade_from""",
    "it is always measured; leave it out": "training.internalised",
    "set training.advantage to grpo, dr-grpo, rloo or a custom one": "training.baseline",
    "there is none; leave it out": "training.weight_decay",
    "it is 10 now; write a custom training.loss for another": "training.dual_clip",
    "set training.min_group_completion": "training.group_floor",
    "evaluation during training is greedy; seal-ray evaluate has --temperature": "evaluation.temperature",
    "set it in Python, SealConfig().learners(num_cpus_per_learner=…)": "learners.num_cpus_per_learner",
    "env runners are always restarted; leave it out": "fault_tolerance.restart_failed_env_runners",
    **{
        f"write a custom {name} as package.module:NAME in {name}, with its constants inside": settings
        for name, settings in {
            "environment.reward": "environment.reward_settings",
            "curator.kind": "curator.kind_settings",
            "curator.reward": "curator.reward_settings",
            "training.off_policy_weight": "training.anchor_weight_settings",
            "training.advantage": "training.baseline_settings training.advantage_settings",
            "training.loss": "training.loss_settings",
            "evaluation.suites": "evaluation.suites_settings",
        }.items()
    },
}
"""Sentence → the settings that it is about."""
REPLACED: Mapping[str, str] = {name: sentence for sentence, names in _SENTENCES.items() for name in names.split()}
"""Setting of an earlier version → what to do instead."""
_KINDS = {("curator", "coevolved"): "llm", ("task_writer", "learning"): "llm"}
"""Kinds of earlier versions that learnt; now they have `trainable`."""
_OFF_POLICY_WEIGHTS = {"one": "none", "shaped": "sqrt"}


def check_current(section: str, key: str) -> None:
    """Raises `UserError` with the replacement of a setting of an earlier version."""
    if section == "writer":
        raise UserError(f"writer.{key}: the section is task_writer now; see docs/config.md.")
    if (instead := REPLACED.get(f"{section}.{key}")) is not None:
        raise UserError(f"{section}.{key}: this setting of an earlier version is gone: {instead}.")


def check_kind(section: str, kind: Any) -> None:
    """Raises `UserError` for a kind of an earlier version."""
    if (section, kind) in _KINDS:
        raise UserError(f"{section}.kind: {kind} is llm now; set {section}.kind=llm and {section}.trainable=true.")


def converted(document: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a run, with the sections, keys and kinds of an earlier version under their present names.

    Settings that are gone stay as they are. A config of the present version is returned unchanged.
    """
    sections = {name: dict(values) if isinstance(values, Mapping) else values for name, values in document.items()}
    if "writer" in sections:
        writer = sections["task_writer"] = sections.pop("writer")
        if writer.get("reward") == "probe":
            writer["reward"] = "held_out_success"
    for section in ("curator", "task_writer"):
        kind = _KINDS.get((section, str(sections.get(section, {}).get("kind"))))
        if kind is not None:
            sections[section] |= {"kind": kind, "trainable": True}
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
