"""Runs the official checker of single-turn calls in a process of its own.

Its table of models, which imports the SDKs of all providers, is replaced by one entry that renames no function.
"""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.bench.asking import answer_lines
from tests.seal_ray.evaluation.official_cli import StandIns


def main() -> None:
    sys.meta_path.append(StandIns())
    table: Any = ModuleType("bfcl_eval.constants.model_config")
    table.MODEL_CONFIG_MAPPING = {"model": SimpleNamespace(underscore_to_dot=False)}
    sys.modules[table.__name__] = table
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
    from bfcl_eval.utils import load_dataset_entry

    def answer(request: dict[str, Any]) -> Any:
        try:
            if "load" in request:
                return load_dataset_entry(request["load"])
            language = Language[request["language"].upper()]
            given = (request["functions"], request["calls"], request["answers"])
            return bool(ast_checker(*given, language, request["category"], "model")["valid"])
        except Exception as error:  # noqa: BLE001 - the official code can raise anything
            return f"{type(error).__name__}: {error}"

    answer_lines(answer)


if __name__ == "__main__":
    main()
