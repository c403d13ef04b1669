"""The timeline of a comparison: the interfaces of each curator by round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envs.interface import Interface, interface_diff
from envs.interface.json_form import interface_from_dict
from seal_ray.report.files import Row
from tuning.comparison.collect import Comparison

Change = tuple[int, tuple[str, ...]]
"""A round, and the changes of the interfaces from then on, as lines."""


def timeline_as_markdown(comparison: Comparison) -> str:
    """The timelines of all arms in Markdown. Seeds with equal timelines share one."""
    lines = ["# Interfaces by round", ""]
    lines += ["Differences to the interfaces before; the first is the plain interface.", ""]
    for arm, about in comparison.manifest.arms.items():
        lines += [f"## {arm}", "", *([about, ""] if about else [])]
        names_of: dict[tuple[Change, ...], list[str]] = {}
        for trial in comparison.arm_trials(arm):
            if trial.interfaces:
                names_of.setdefault(changes_of(trial.interfaces), []).append(trial.name)
        for changes, names in names_of.items():
            lines += [f"### {', '.join(names)}", ""]
            if not changes:
                lines += ["The plain interface throughout.", ""]
            for number, difference in changes:
                lines += [f"From round {number}:", "", "```diff", *difference, "```", ""]
    return "\n".join(lines)


def changes_of(rows: Sequence[Row]) -> tuple[Change, ...]:
    """The rounds in which the interfaces other than the plain one changed, with the changes."""
    changes: list[Change] = []
    before: tuple[Interface, ...] = ()
    for row in rows:
        documents = (
            {key: value for key, value in each.items() if key not in ("number", "id")} for each in row["interfaces"]
        )
        shown = tuple(each for each in map(interface_from_dict, documents) if each != Interface.plain())
        if shown != before:
            changes.append((row["round"], tuple(_differences(before, shown))))
            before = shown
    return tuple(changes)


def _differences(before: Sequence[Interface], after: Sequence[Interface]) -> Iterator[str]:
    for place, interface in enumerate(after or (Interface.plain(),)):
        if len(after) > 1:
            yield f"@@ interface {place + 1} of {len(after)} @@"
        old = before[place] if place < len(before) else before[0] if before else Interface.plain()
        yield from interface_diff(old, interface) or ("  unchanged",)
