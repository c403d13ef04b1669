"""The difference of two interfaces, in lines for people to read."""

from __future__ import annotations

from envs.interface.value import Interface, SchemaCue


def interface_diff(before: Interface, after: Interface) -> tuple[str, ...]:
    """What changed: "+ …" for what `after` adds, "- …" for what it drops, "~ …" for what it sets; empty when equal."""
    lines = [f"- cue {_cue(cue)}" for cue in before.schema_cues if cue not in after.schema_cues]
    lines += [f"+ cue {_cue(cue)}" for cue in after.schema_cues if cue not in before.schema_cues]
    if before.recovery is not after.recovery:
        lines.append(f"~ recovery feedback: {before.recovery} → {after.recovery}")
    lines += [f"- guideline: {text}" for text in before.guidelines if text not in after.guidelines]
    lines += [f"+ guideline: {text}" for text in after.guidelines if text not in before.guidelines]
    if not lines and before.guidelines != after.guidelines:
        lines.append("~ guidelines: another order")
    if before.fade != after.fade:
        lines.append(f"~ fade: {before.fade:g} → {after.fade:g}")
    return tuple(lines)


def _cue(cue: SchemaCue) -> str:
    return f"{cue.kind} on {', '.join(cue.tools) or 'every tool'}"
