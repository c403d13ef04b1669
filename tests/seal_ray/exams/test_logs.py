"""Logs of exams: what stands in them, and that Inspect reads it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from envs.exams import Exam
from policies.engine.scripted import ScriptedEngine
from seal_ray.exams.exam_run import AnswerLog
from seal_ray.exams.logs import write_log
from seal_ray.exams.tau2.inspecting import environment
from tests.seal_ray.exams.tau2_script import interpreter, needs_inspect
from tests.seal_ray.exams.test_sitting import EXAM, adds, sit

READ = """
import json, sys
from inspect_ai.log import list_eval_logs, read_eval_log
(info,) = list_eval_logs(sys.argv[1])
log = read_eval_log(info)
print(json.dumps({
    "status": log.status, "task": info.task, "model": log.eval.model,
    "accuracy": log.results.scores[0].metrics["accuracy"].value,
    "scores": {str(each.id): each.scores["right"].value for each in log.samples},
    "input": [each.text for each in log.samples[0].input], "output": log.samples[0].output.completion,
    "roles": [each.role for each in log.samples[0].messages],
    "tokens": log.samples[0].model_usage["tiny"].output_tokens,
}))
"""


def written(folder: Path) -> Path:
    """The log of an exam whose second small sum was answered with nothing."""
    exam: Exam = EXAM
    sit(ScriptedEngine(adds(wrong=(" 1 and",))), folder)
    return write_log(AnswerLog(folder, {"model": "x"}), "arithmetic", "tiny", [item.id for item in exam.items()])


def test_a_log_has_every_item_with_what_was_asked_and_said(tmp_path: Path) -> None:
    path = written(tmp_path)
    log = json.loads(path.read_text())
    samples = {each["id"]: each for each in log["samples"]}
    assert len(samples) == 14
    assert samples["small_0"]["messages"][0] == {"role": "user", "content": "Add 0 and 1"}
    assert samples["small_0"]["output"]["completion"] == "1"
    values = {each["scores"]["right"]["value"] for name, each in samples.items() if name != "small_1"}
    assert values == {"C", "N"}, "the preparation of a story does not count"
    assert samples["small_1"]["scores"]["right"] == {"value": "I", "answer": "", "explanation": "nothing"}
    assert log["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 12 / 13
    content = path.read_bytes()
    again = write_log(AnswerLog(tmp_path, {"model": "x"}), "arithmetic", "tiny", list(samples))
    assert (again, again.read_bytes()) == (path, content)


@needs_inspect
def test_inspect_lists_and_reads_it(tmp_path: Path) -> None:
    path = written(tmp_path)
    found = interpreter()
    assert found is not None
    command = [str(found.path), "-I", "-c", READ, str(path.parent)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    log = json.loads(said.stdout)
    assert (log["status"], log["model"], log["accuracy"]) == ("success", "tiny", 12 / 13)
    assert (log["scores"]["small_0"], log["scores"]["small_1"], log["scores"]["first"]) == ("C", "I", "N")
    assert (log["input"], log["output"]) == (["Add 0 and 1"], "1")
    assert log["roles"] == ["user", "assistant"]
    assert log["tokens"] > 0
