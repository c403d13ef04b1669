"""The table of an exam: one row per suite and category, with the model's share and the base's, paired by item."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.table import Column, Table

from envs.received import read_json_object
from seal_ray.exams.exam_run import Answer, AnswerLog
from seal_ray.report.files import replace_file
from seal_ray.report.inspect_log import SUFFIX, model_usage, write_log
from seal_ray.statistics import Interval, effective_groups, mcnemar, paired_difference, wilson

ALL = "all"


@dataclass(frozen=True, slots=True)
class ExamComparison:
    """The base's share, the model's share less the base's, and McNemar's p."""

    base: Interval
    difference: Interval
    p: float


@dataclass(frozen=True, slots=True)
class ExamRow:
    """One suite and category. Intervals count groups, by their sizes."""

    suite: str
    category: str
    items: int
    groups: int
    model: Interval
    ends: Counter[str]
    compared: ExamComparison | None = None

    def to_dict(self) -> dict[str, Any]:
        row: dict[str, Any] = {"items": self.items, "groups": self.groups, "model": asdict(self.model)}
        if (other := self.compared) is not None:
            row |= {"base": asdict(other.base), "difference": asdict(other.difference), "p_mcnemar": other.p}
        return row | {"ends": dict(sorted(self.ends.items()))}


def exam_rows(suite: str, model: Sequence[Answer], base: Mapping[str, Answer] | None = None) -> list[ExamRow]:
    """A row for each category in the order of the answers, and one for all if there are several.

    With `base`, the base's answers by item, only items count that both have answered.
    """
    counted = [answer for answer in model if answer.counts and (base is None or answer.item in base)]
    categories = list(dict.fromkeys(answer.category for answer in counted))
    rows = [_row(suite, name, [answer for answer in counted if answer.category == name], base) for name in categories]
    return rows if len(rows) == 1 else [*rows, _row(suite, ALL, counted, base)]


def _row(suite: str, category: str, answers: Sequence[Answer], base: Mapping[str, Answer] | None) -> ExamRow:
    sizes = Counter(answer.group for answer in answers)
    groups = effective_groups(list(sizes.values()))
    model = _share([answer.right for answer in answers], groups)
    compared = None
    if base is not None:
        before = [base[answer.item].right for answer in answers]
        changes = [int(answer.right) - int(was) for answer, was in zip(answers, before, strict=True)]
        differences: dict[str, list[float]] = {}
        for answer, change in zip(answers, changes, strict=True):
            differences.setdefault(answer.group, []).append(float(change))
        p = mcnemar(changes.count(1), changes.count(-1))
        compared = ExamComparison(_share(before, groups), paired_difference(differences), p)
    ends = Counter(answer.end for answer in answers)
    return ExamRow(suite, category, len(answers), len(sizes), model, ends, compared)


def _share(right: Sequence[bool], groups: float) -> Interval:
    return wilson(sum(right) / max(1, len(right)), groups)


def _group_counts(answers: Sequence[Answer]) -> dict[str, list[int]]:
    """Group → the number of right items and of all items."""
    counts: dict[str, list[int]] = {}
    for answer in answers:
        if answer.counts:
            right, items = counts.get(answer.group, (0, 0))
            counts[answer.group] = [right + answer.right, items + 1]
    return dict(sorted(counts.items()))


def exam_table(rows: Sequence[ExamRow], title: str) -> Table:
    head, *body = _cells(rows)
    numbers = (Column(name, justify="right", no_wrap=True) for name in head[2:])
    table = Table(*head[:2], *numbers, title=title, title_justify="left")
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
    document["groups"] = {suite: _group_counts(each) for suite, each in answers.items()}
    replace_file(out / "exam.json", json.dumps(document, indent=1, ensure_ascii=False).encode())
    cells = _cells(rows)
    head, *body = ("| " + " | ".join(row) + " |" for row in cells)
    lines = [
        f"# Exam of {model}" + (f", next to {base}" if base else ""),
        "",
        *(head, "| --- | --- |" + " ---: |" * (len(cells[0]) - 2), *body),
        "",
        "Shares are in percent, with 95 % intervals (Wilson) over the effective number of groups (Kish): items of one "
        "dialogue or story depend on each other.",
    ]
    if base is not None:
        lines.append(
            "Differences are in points, over the same items, with 95 % intervals over groups (Agresti and Min); p is "
            "McNemar's exact test, which takes items for independent."
        )
    totals = [row for row in rows if row.category == ALL or len(suites[row.suite]) == 1]
    ends = sum((Counter(row.ends) for row in totals), Counter[str]())
    cut = {end: count for end, count in sorted(ends.items()) if end != "stop"}
    if cut:
        which = ", ".join(f"{end} {count}" for end, count in cut.items())
        lines.append(f"{sum(cut.values())} answers did not come to an end, and count as wrong ({which}).")
    lines += [f"\n{note}" for note in notes]
    replace_file(out / "exam.md", ("\n".join(lines) + "\n").encode())


def _cells(rows: Sequence[ExamRow]) -> list[list[str]]:
    head = ["suite", "category", "items", "groups", "right %", "95 % interval"]
    if any(row.compared is not None for row in rows):
        head += ["base %", "base's interval", "difference", "its interval", "p"]
    table = [head]
    for row in rows:
        cells = [row.suite, row.category, str(row.items), str(row.groups), _percent(row.model), str(row.model)]
        if (other := row.compared) is not None:
            low, high = 100 * other.difference.low, 100 * other.difference.high
            cells += [_percent(other.base), str(other.base), f"{100 * other.difference.share:+.1f}"]
            cells += [f"{low:+.1f} to {high:+.1f}", f"{other.p:.3f}"]
        table.append(cells)
    return table


def _percent(interval: Interval) -> str:
    return f"{100 * interval.share:.1f}"


_SCORER = "right"
_STOPS = {"stop": "stop", "response": "max_tokens", "context": "model_length"}
"""The end of an answer → Inspect's name for it."""
_ROLES = ("system", "user", "assistant")


def write_exam_log(answers: AnswerLog, suite: str, model: str, items: Sequence[str]) -> Path:
    """Writes the log of these answered items into the folder of their answers.

    It has the time at which the answers were begun, so that the same answers give the same file.
    """
    begun = datetime.fromtimestamp(answers.settings_path.stat().st_mtime, UTC)
    settings = read_json_object(answers.settings_path)
    wanted = set(items)
    folder = answers.inspect / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{suite}{SUFFIX}"
    samples = ((_sample(row, model), None) for row in answers.rows() if row["item"] in wanted)
    write_log(path, samples, task=suite, model=model, scorer=_SCORER, created=begun, metadata=settings)
    return path


def _sample(row: Mapping[str, Any], model: str) -> dict[str, Any]:
    *_, last = row["said"] or [""]
    asked = [{"role": role if role in _ROLES else "tool", "content": text} for role, text in row.get("asked", ())]
    answer = {"role": "assistant", "content": last, "source": "generate", "model": model}
    choice = {"message": answer, "stop_reason": _STOPS.get(row["end"], "unknown")}
    value = ("C" if row["right"] else "I") if row["counts"] else "N"
    return {
        "id": row["item"],
        "input": asked or row["item"],
        "target": "",
        "messages": [*asked, answer],
        "output": {"model": model, "choices": [choice], "completion": last},
        "scores": {_SCORER: {"value": value, "answer": last, "explanation": row["why"]}},
        "metadata": {name: row[name] for name in ("category", "group", "counts", "end")},
        "model_usage": model_usage(model, read=row["prompt_tokens"], sampled=row["sampled_tokens"]),
    }
