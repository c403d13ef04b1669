"""Runs the official memories and the official grading of their questions, a JSON object a line in, one a line out.

`rank_bm25` is the real one where it is installed; else whatever searches says so.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.seal_ray.evaluation.official_cli import SDKS, StandIns


class WithoutSearch(StandIns):
    """Stands in for the search as well, where its package is not there."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name == "rank_bm25" or name.split(".")[0] in SDKS:
            return importlib.util.spec_from_loader(name, self, is_package=True)
        return None


def main() -> None:
    searches = importlib.util.find_spec("rank_bm25") is not None
    sys.meta_path.append(WithoutSearch())
    from bfcl_eval.eval_checker.agentic_eval.agentic_checker import agentic_checker
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call
    from bfcl_eval.model_handler.utils import add_memory_instruction_system_prompt
    from bfcl_eval.utils import load_dataset_entry

    replies = sys.stdout
    sys.stdout = sys.stderr

    def converse(request: dict[str, Any]) -> Any:
        """One conversation: results, what was shown of the memory, and what it left."""
        name, conversation = f"MemoryAPI_{request['backend']}", request["id"]
        config = {
            "model_result_dir": Path(os.environ["BFCL_PROJECT_ROOT"]) / request["run"],
            "test_id": conversation,
            "scenario": request["scenario"],
        }
        where = ({name: config}, [name], request["run"], conversation)
        _, found = execute_multi_turn_func_call([], *where)
        prompts = [[{"role": "user", "content": "Hello"}]]
        shown = add_memory_instruction_system_prompt(
            prompts, f"memory_{request['backend']}", request["scenario"], found[name]
        )
        results, found = execute_multi_turn_func_call(request["calls"], *where)
        found[name]._flush_memory_to_local_file()
        left = {
            key: value
            for key, value in vars(found[name]).items()
            if key in ("core_memory", "archival_memory", "memory")
        }
        return {"results": results, "system": shown[0][0]["content"], "left": left}

    for line in sys.stdin:
        request = json.loads(line)
        reply: Any
        if "said" in request:
            reply = bool(agentic_checker(request["said"], request["answers"])["valid"])
        elif "load" in request:
            reply = load_dataset_entry(request["load"])
        elif "calls" in request:
            reply = converse(request)
        else:
            reply = searches
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
