"""Runs BFCL's own executor and checker, as a program: one JSON request a line in, one JSON answer a line out.

It evaluates text, so it runs in a process of its own, on trajectories that the tests make. The official code keeps
simulators and defaults in module globals; every request is served in a fork of the freshly imported process, so that
no request sees what another left behind.
"""

import importlib
import json
import os
import traceback
from typing import Any

from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

from tests.bench.asking import answer_lines


def execute(request: dict[str, Any]) -> dict[str, Any]:
    """All result texts: turn → step → call."""
    entry = request["entry"]
    return {
        "results": [
            [
                execute_multi_turn_func_call(
                    step,
                    entry["initial_config"],
                    entry["involved_classes"],
                    "model",
                    entry["id"],
                    long_context="long_context" in entry["id"],
                )[0]
                for step in turn
            ]
            for turn in request["turns"]
        ]
    }


def check(request: dict[str, Any]) -> dict[str, Any]:
    """The official verdict on a whole trajectory."""
    entry = request["entry"]
    category = entry["id"].rsplit("_", 1)[0]
    found = multi_turn_checker(request["turns"], request["ground_truth"], entry, category, "model")
    return {"valid": found["valid"], "error_type": found.get("error_type")}


def serve(request: dict[str, Any]) -> dict[str, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            answer = {"execute": execute, "check": check}[request["what"]](request)
        except BaseException:  # noqa: BLE001 - the fork must answer, whatever happened
            answer = {"crash": traceback.format_exc(limit=-2)}
        with os.fdopen(writer, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    served: dict[str, Any] = json.loads(text)
    return served


def main() -> None:
    # The official executor imports a simulator on first use: done here once, before any fork.
    for module in CLASS_FILE_PATH_MAPPING.values():
        if "memory" not in module and "web_search" not in module:
            importlib.import_module(module)
    answer_lines(serve)


if __name__ == "__main__":
    main()
