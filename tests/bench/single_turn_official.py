"""Runs the official checker of single-turn calls in a process of its own: a JSON object a line in, one a line out.

Its table of models, which imports the SDKs of all providers, is replaced by one entry that renames no function.
"""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.seal_ray.evaluation.official_cli import StandIns


def main() -> None:
    sys.meta_path.append(StandIns())
    table: Any = ModuleType("bfcl_eval.constants.model_config")
    table.MODEL_CONFIG_MAPPING = {"model": SimpleNamespace(underscore_to_dot=False)}
    sys.modules[table.__name__] = table
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
    from bfcl_eval.utils import load_dataset_entry

    replies = sys.stdout
    sys.stdout = sys.stderr  # what the converters print
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "load" in request:
                reply: Any = load_dataset_entry(request["load"])
            else:
                reply = bool(
                    ast_checker(
                        request["functions"],
                        request["calls"],
                        request["answers"],
                        Language[request["language"].upper()],
                        request["category"],
                        "model",
                    )["valid"]
                )
        except Exception as error:  # noqa: BLE001 - the official code can raise anything
            reply = f"{type(error).__name__}: {error}"
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
