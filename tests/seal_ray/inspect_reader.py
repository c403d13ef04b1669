"""What Inspect's own reader finds in logs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

_PROGRAM = """
import json, sys
from inspect_ai.log import list_eval_logs, read_eval_log, read_eval_log_sample_summaries as summaries
logs = {}
for info in list_eval_logs(sys.argv[1]):
    log = read_eval_log(info)
    short = {(str(each.id), each.epoch): each for each in summaries(info)}
    assert {(str(each.id), each.epoch) for each in log.samples} == set(short), "the list is that of the samples"
    logs[info.task] = {
        "status": log.status, "model": log.eval.model, "samples": len(short), "metadata": log.eval.metadata,
        "accuracy": log.results.scores[0].metrics["accuracy"].value,
        "tokens": sum(usage.output_tokens for usage in log.stats.model_usage.values()),
        "dialogues": [
            {
                "id": each.id, "metadata": each.metadata, "messages": [(m.role, m.text) for m in each.messages],
                "scores": {name: score.value for name, score in each.scores.items()},
                "calls": [(c.function, c.arguments) for m in each.messages for c in getattr(m, "tool_calls", 0) or ()],
            }
            for each in log.samples
        ],
    }
print(json.dumps(logs))
"""


def read_by_inspect(folder: Path) -> dict[str, dict[str, Any]]:
    """Task → what Inspect reads in its log, for all logs in a folder."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    logs: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return logs
