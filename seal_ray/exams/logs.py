"""Logs of exams in the JSON format of Inspect (https://inspect.aisi.org.uk/eval-logs.html), for `inspect view`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from envs.received import read_json_object
from seal_ray.exams.exam_run import AnswerLog
from seal_ray.report.files import replace_file

_SCORER = "right"
_STOPS = {"stop": "stop", "response": "max_tokens", "context": "model_length"}
"""The end of an answer → Inspect's name for it."""
_ROLES = ("system", "user", "assistant")


def write_log(answers: AnswerLog, suite: str, model: str, items: Sequence[str]) -> Path:
    """Writes the log of these answered items into the folder of their answers.

    It has the time at which the answers were begun, so that the same answers give the same file.
    """
    begun = datetime.fromtimestamp(answers.settings_path.stat().st_mtime, UTC)
    settings = read_json_object(answers.settings_path)
    wanted = set(items)
    rows = [row for row in answers.lines.rows() if row["item"] in wanted]
    document = inspect_log(rows, suite=suite, model=model, begun=begun, settings=settings)
    folder = answers.inspect / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{begun:%Y-%m-%dT%H-%M-%S}+00-00_{suite}_{document['eval']['eval_id']}.json"
    replace_file(path, json.dumps(document, indent=1, ensure_ascii=False).encode())
    return path


def inspect_log(
    rows: Sequence[Mapping[str, Any]], *, suite: str, model: str, begun: datetime, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The log of a suite as JSON values: one sample per item, with the share of right ones as accuracy."""
    created = begun.isoformat(timespec="seconds")
    name = hashlib.sha256(json.dumps([suite, settings], sort_keys=True).encode()).hexdigest()[:22]
    counted = [row["right"] for row in rows if row["counts"]]
    share = sum(counted) / max(1, len(counted))
    score = {
        "name": _SCORER,
        "scorer": _SCORER,
        "scored_samples": len(counted),
        "unscored_samples": len(rows) - len(counted),
        "metrics": {"accuracy": {"name": "accuracy", "value": share}},
    }
    usage = [row["prompt_tokens"] for row in rows], [row["sampled_tokens"] for row in rows]
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": name,
            "run_id": name,
            "created": created,
            "task": suite,
            "task_id": name,
            "dataset": {"name": suite, "samples": len(rows), "sample_ids": [row["item"] for row in rows]},
            "model": model,
            "config": {},
            "packages": {"seal_ray": version("seal-ray")},
            "metadata": dict(settings),
        },
        "results": {"total_samples": len(rows), "completed_samples": len(rows), "scores": [score]},
        "stats": {"started_at": created, "model_usage": {model: _usage(sum(usage[0]), sum(usage[1]))}},
        "samples": [_sample(row, model) for row in rows],
    }


def _sample(row: Mapping[str, Any], model: str) -> dict[str, Any]:
    *_, last = row["said"] or [""]
    asked = [{"role": role if role in _ROLES else "tool", "content": text} for role, text in row.get("asked", ())]
    answer = {"role": "assistant", "content": last, "source": "generate", "model": model}
    choice = {"message": answer, "stop_reason": _STOPS.get(row["end"], "unknown")}
    value = ("C" if row["right"] else "I") if row["counts"] else "N"
    return {
        "id": row["item"],
        "epoch": 1,
        "input": asked or row["item"],
        "target": "",
        "messages": [*asked, answer],
        "output": {"model": model, "choices": [choice], "completion": last},
        "scores": {_SCORER: {"value": value, "answer": last, "explanation": row["why"]}},
        "metadata": {name: row[name] for name in ("category", "group", "counts", "end")},
        "model_usage": {model: _usage(row["prompt_tokens"], row["sampled_tokens"])},
    }


def _usage(read: int, sampled: int) -> dict[str, int]:
    return {"input_tokens": read, "output_tokens": sampled, "total_tokens": read + sampled}
