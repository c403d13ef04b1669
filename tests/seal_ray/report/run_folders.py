"""Folders of runs made by hand, with no training behind them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from seal_ray.report.files import RunFolder
from seal_ray.report.inspect_log import PLAIN, SUCCESS, write_log

HOSTILE = '<script>alert("x")</script>\u202e{{ 7 * 7 }}\x1b[31m<img src=x onerror=alert(1)>'
CONFIG = {
    "seed": 3,
    "solver": {"model": "tiny-rare"},
    "curator": {"kind": "llm"},
    "training": {"rounds": 4},
    "evaluation": {"source": None},
}


def arm(name: str, **values: Any) -> dict[str, Any]:
    shown = {"schema_cues": [], "recovery": "none", "guidelines": [], "groups": 2, "rollouts": 8, "success": 0.5}
    return {"id": name, **shown, "gain": None, "error": None, "incumbent": False, "promoted": False, **values}


def dialogue(task: str, solved: bool, words: str = "Hello", *, arm: str = PLAIN, group: int = 0) -> Mapping[str, Any]:
    """A dialogue in Inspect's form, with a call that fails and the cue that follows it."""
    cue = f"\n[HINT] {arm}"
    messages = [
        {"role": "user", "content": "Book a table."},
        {"role": "assistant", "content": words},
        {"role": "tool", "content": f"no such table{cue}", "error": {"message": "x"}, "metadata": {"cue": cue}},
    ]
    score = {"value": "C" if solved else "I", "explanation": f"turn 1: {solved}"}
    metadata = {"arm": arm, "group": group}
    return {
        "id": task,
        "input": "",
        "target": [],
        "messages": messages,
        "scores": {SUCCESS: score},
        "metadata": metadata,
        "model_usage": {"tiny": {}},
    }


def log_of(path: Path, samples: Iterable[Mapping[str, Any]]) -> Path:
    write_log(path, ((each, None) for each in samples), task="x", model="tiny", scorer=SUCCESS)
    return path


def make_run(path: Path, hostile: str = HOSTILE) -> RunFolder:
    """Four rounds with two windows, a promotion, a rejection, a restart and a solved task, with a hostile text."""
    run = RunFolder(path)
    run.write_config(CONFIG)
    for number in range(5):
        metrics: dict[str, float] = {
            "diagnosis/share/pass": 0.2 + 0.1 * number,
            "diagnosis/share/missing_tool_call": 0.8 - 0.1 * number,
            "solver/success/base": 0.1 * number,
            "solver/success_plain": 0.3,
            "solver/success_shown": 0.6,
            "solver/tokens_sampled": 1000,
            "perf/engine_restarts": int(number > 2),
            "diagnosis/faults": int(number == 1),
        }
        if number in (0, 4):
            metrics |= {"evaluation/success": 0.25 + number / 16, "evaluation/success/base": 0.25 + number / 16}
            run.evaluations.append({"round": number, "suites": {"dev": {"base": {"t1": number // 4, "t2": 1}}}})
        run.append_metrics(number, metrics)
    guided = arm("a1", guidelines=[hostile], gain=0.2, error=0.05, promoted=True)
    run.arms.append({"round": 2, "rounds": 2, "arms": [arm("plain", gain=0.0, error=0.0, incumbent=True), guided]})
    run.arms.append({"round": 4, "rounds": 2, "arms": [arm("plain"), {**guided, "promoted": False, "incumbent": True}]})
    for number in (0, 4):
        log_of(run.log_of("evaluation", number), [dialogue("t1", number == 4, f"{hostile} {number}")])
    log_of(run.log_of("round", 4), [dialogue("t9", arm == "a1", arm=arm, group=5) for arm in (PLAIN, "a1")])
    for number in (1, 2):  # the proposals of a window, in both of its rounds
        rejected = {"rejection": f"it names a task {hostile}", "reward": None}
        run.proposals.append({"round": number, "proposals": [rejected]})
    return run
