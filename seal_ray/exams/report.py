"""The table of an exam: a row a suite and category, the model's share beside the base's, paired by item."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from seal_ray.evaluation.intervals import Interval, mcnemar, paired_difference, wilson
from seal_ray.exams.sitting import Answer
from seal_ray.report.files import replace_file

ALL = "all"


@dataclass(frozen=True, slots=True)
class ExamRow:
    """One suite and category: `groups` are what intervals count. `difference` is the model's share less the base's."""

    suite: str
    category: str
    items: int
    groups: int
    model: Interval
    ends: Counter[str]
    base: Interval | None = None
    difference: Interval | None = None
    p: float | None = None

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"items": self.items, "groups": self.groups, "model": _interval(self.model)}
        if self.base is not None and self.difference is not None:
            found |= {"base": _interval(self.base), "difference": _interval(self.difference), "p_mcnemar": self.p}
        return found | {"ends": dict(sorted(self.ends.items()))}


def rows_of(suite: str, model: Sequence[Answer], base: Mapping[str, Answer] | None = None) -> list[ExamRow]:
    """A row a category in the order of the answers, and one for all where there are several.

    `base` has the base's answers by item; only items that both have answered are counted then.
    """
    counted = [each for each in model if each.counts and (base is None or each.item in base)]
    categories = list(dict.fromkeys(each.category for each in counted))
    found = [_row(suite, name, [each for each in counted if each.category == name], base) for name in categories]
    return found if len(found) == 1 else [*found, _row(suite, ALL, counted, base)]


def _row(suite: str, category: str, answers: Sequence[Answer], base: Mapping[str, Answer] | None) -> ExamRow:
    groups = {each.group for each in answers}
    ends = Counter(each.end for each in answers)
    model = _share([each.right for each in answers], len(groups))
    if base is None:
        return ExamRow(suite, category, len(answers), len(groups), model, ends)
    pairs = [(each.group, each.right, base[each.item].right) for each in answers]
    differences: dict[str, list[float]] = {}
    for group, right, was in pairs:
        differences.setdefault(group, []).append(float(right) - float(was))
    return ExamRow(
        suite,
        category,
        len(answers),
        len(groups),
        model,
        ends,
        _share([was for _, _, was in pairs], len(groups)),
        paired_difference(differences),
        mcnemar(sum(right > was for _, right, was in pairs), sum(right < was for _, right, was in pairs)),
    )


def _groups(answers: Sequence[Answer]) -> dict[str, list[int]]:
    """Group → how many of its items are right, and how many there are."""
    found: dict[str, list[int]] = {}
    for each in answers:
        if each.counts:
            of = found.setdefault(each.group, [0, 0])
            of[0] += each.right
            of[1] += 1
    return dict(sorted(found.items()))


def _share(right: Sequence[bool], groups: int) -> Interval:
    return wilson(sum(right) / max(1, len(right)), groups)


def table_of(rows: Sequence[ExamRow], title: str) -> Table:
    """The rows for a terminal."""
    head, *body = _cells(rows)
    table = Table(*head[:2], title=title, title_justify="left")
    for name in head[2:]:
        table.add_column(name, justify="right", no_wrap=True)
    for cells, row in zip(body, rows, strict=True):
        table.add_row(*cells, style="bold" if row.category == ALL else "")
    return table


def write(
    out: Path,
    rows: Sequence[ExamRow],
    *,
    model: str,
    base: str | None,
    notes: Sequence[str],
    settings: Mapping[str, Any],
    answers: Mapping[str, Sequence[Answer]],
) -> None:
    """Writes `exam.md` and `exam.json` into the folder. `answers` are the model's by suite."""
    suites: dict[str, dict[str, Any]] = {}
    for row in rows:
        suites.setdefault(row.suite, {})[row.category] = row.to_dict()
    document = {"model": model, "base": base, "suites": suites, "notes": list(notes), "settings": dict(settings)}
    document["groups"] = {suite: _groups(each) for suite, each in answers.items()}
    replace_file(out / "exam.json", json.dumps(document, indent=1, ensure_ascii=False).encode())
    lines = [
        f"# Exam of {model}" + (f", beside {base}" if base else ""),
        "",
        *_markdown(_cells(rows)),
        "",
        "Shares are in percent, with 95 % intervals (Wilson), which count groups: items of one "
        "dialogue or story depend on each other.",
    ]
    if base is not None:
        lines.append(
            "Differences are in points, over the same items, with 95 % intervals over groups (Agresti and Min); p is "
            "McNemar's exact test, which takes items for independent."
        )
    ends = sum((Counter(row.ends) for row in rows if _is_total(row, rows)), Counter[str]())
    cut = {end: count for end, count in sorted(ends.items()) if end != "stop"}
    if cut:
        which = ", ".join(f"{end} {count}" for end, count in cut.items())
        lines.append(f"{sum(cut.values())} answers did not come to an end, and count as wrong ({which}).")
    lines += [f"\n{note}" for note in notes]
    replace_file(out / "exam.md", ("\n".join(lines) + "\n").encode())


def _is_total(row: ExamRow, rows: Sequence[ExamRow]) -> bool:
    return row.category == ALL or sum(each.suite == row.suite for each in rows) == 1


def _cells(rows: Sequence[ExamRow]) -> list[list[str]]:
    paired = any(row.base is not None for row in rows)
    head = ["suite", "category", "items", "groups", "right %", "95 % interval"]
    head += ["base %", "base's interval", "difference", "its interval", "p"] if paired else []
    found = [head]
    for row in rows:
        cells = [row.suite, row.category, str(row.items), str(row.groups), _percent(row.model), str(row.model)]
        if paired:
            assert row.base is not None
            assert row.difference is not None
            assert row.p is not None
            low, high = 100 * row.difference.low, 100 * row.difference.high
            cells += [
                _percent(row.base),
                str(row.base),
                f"{100 * row.difference.share:+.1f}",
                f"{low:+.1f} to {high:+.1f}",
            ]
            cells.append(f"{row.p:.3f}")
        found.append(cells)
    return found


def _markdown(cells: Sequence[Sequence[str]]) -> list[str]:
    head, *body = ("| " + " | ".join(row) + " |" for row in cells)
    return [head, "| --- | --- |" + " ---: |" * (len(cells[0]) - 2), *body]


def _percent(interval: Interval) -> str:
    return f"{100 * interval.share:.1f}"


def _interval(interval: Interval) -> dict[str, float]:
    return {"share": interval.share, "low": interval.low, "high": interval.high}
