"""Played dialogues as samples of Inspect's logs: messages with marked cues, the verdict on each turn, scores."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from envs.diagnosis import Label
from envs.errors import EnvironmentFault, UserError
from envs.interface import Interface
from envs.interface.show import show_tools
from envs.sources import find_task
from envs.task import JSON, Task
from envs.text import visible
from seal_ray.report.inspect_log import SUCCESS, model_usage

TOKENS = ("token_ids", "mask", "logprobs", "versions", "sampled")
"""Keys of a trajectory's JSON form that its sample lacks."""
_PLAIN_FIELDS = ("category", "protocol", "policy", "end")


def known_task(task: str, sources: Sequence[str]) -> Task | None:
    """The task of that id; None if no source has it or it is broken."""
    with suppress(EnvironmentFault, UserError):
        return find_task(task, sources)
    return None


def dialogue_sample(
    row: Mapping[str, Any],
    task: Task | None = None,
    *,
    model: str,
    interface: Interface | None = None,
    scores: Mapping[str, float] | None = None,
    metadata: Mapping[str, JSON] | None = None,
) -> dict[str, JSON]:
    """A dialogue as a sample.

    Args:
        row: The JSON form of a trajectory.
        task: Its task, for the ground truth of each turn and the tools at the start.
        interface: The interface that the tools were shown with; by default the plain one.
        scores: Scores next to `success` and `reward`, which is the verifier's unless it is among them.
        metadata: Metadata next to the category, protocol, policy, end and tools.
    """
    truth = [list(map(str, turn.ground_truth)) for turn in task.turns] if task else []
    tools = show_tools(interface or Interface.plain(), task.tools) if task else ()
    turns = [
        {key: value for key, value in turn.items() if key not in ("user", "steps") and value}
        | {"turn": number, "ground_truth": list(calls)}
        for number, (turn, calls) in enumerate(zip(row["turns"], [*truth, *[()] * len(row["turns"])], strict=False), 1)
    ]
    failures = [turn["label"] for turn in turns if Label(turn["label"]).is_failure]
    verdict = {"value": "C" if row["reward"] == 1 else "I", "explanation": "\n".join(map(_explained, turns))}
    values = {"label": failures[0] if failures else turns[-1]["label"], "reward": row["reward"], **(scores or {})}
    first = row["turns"][0].get("user") or row["task"]
    sampled = sum(row["mask"])
    return {
        "id": row["task"],
        "input": first,
        "target": ["; ".join(calls) for calls in truth],
        "messages": list(_messages(row, model)),
        "scores": {SUCCESS: {**verdict, "metadata": {"turns": turns}}, **{k: {"value": v} for k, v in values.items()}},
        "metadata": {
            **{name: row[name] for name in _PLAIN_FIELDS},
            "seed": str(row["seed"]),
            **(metadata or {}),
            "tools": {tool.name: tool.document.get("description", "") for tool in tools},
        },
        "model_usage": model_usage(model, read=len(row["mask"]) - sampled, sampled=sampled),
    }


def _explained(turn: Mapping[str, Any]) -> str:
    """The verdict on a turn in a line."""
    said = [turn.get(key) for key in ("detail", "tool", "argument")]
    said += turn.get("flags", []) + turn.get("wrong_state", [])
    parts = [f"turn {turn['turn']}: {turn['outcome']}, label {turn['label']}", *filter(None, said)]
    return visible(" · ".join([*parts, f"ground truth: {'; '.join(turn['ground_truth']) or 'no call'}"]))


def _messages(row: Mapping[str, Any], model: str) -> Iterator[dict[str, JSON]]:
    if row.get("system"):
        yield {"role": "system", "content": row["system"], "metadata": {"cue": row["system"]}}
    for number, turn in enumerate(row["turns"], 1):
        if turn.get("user") is not None:
            yield {"role": "user", "content": turn["user"], "metadata": {"turn": number}}
        for place, step in enumerate(turn["steps"]):
            yield from _step_messages(step, f"{number}-{place + 1}", model)
    if row.get("unread"):
        yield {"role": "assistant", "content": row["unread"], "model": model, "metadata": {"unread": row["end"]}}


def _step_messages(step: Mapping[str, Any], name: str, model: str) -> Iterator[dict[str, JSON]]:
    """A completion with its calls, then the texts that it was answered with."""
    calls = [
        {"id": f"{name}-{place}", "function": tool, "arguments": arguments, "type": "function"}
        for place, (tool, arguments) in enumerate(step.get("calls", ()))
    ]
    answer = {"role": "assistant", "content": step["completion"], "source": "generate", "model": model}
    errors = {"metadata": {"parse_errors": step["parse_errors"]}} if step["parse_errors"] else {}
    yield {**answer, "tool_calls": calls, **errors}
    cues = step.get("cues", [""] * len(step["results"]))
    texts = [*step["results"], *(f"[ERROR] {error}" for error in step["parse_errors"])]
    for place, (text, cue) in enumerate(zip(texts, cues, strict=False)):
        message: dict[str, JSON] = {"role": "tool", "content": text + cue}
        if place < len(calls):
            message |= {"tool_call_id": calls[place]["id"], "function": calls[place]["function"]}
        if place >= len(step["results"]) or step.get("failed", [False] * len(calls))[place]:
            message["error"] = {"type": "unknown", "message": text}
        yield {**message, "metadata": {"cue": cue}} if cue else message
