"""Judges single-turn calls with the official checker, in a child process.

Its converters of Java and JavaScript values have regular expressions that can take for ever; a request that takes too
long ends the process. If the official code raises, the calls are wrong.
"""

import ast
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

from envs.line_server import limit, or_error, serve, take_stdout

SECONDS = 2
"""Processor time per request."""


def main() -> None:
    replies = take_stdout()
    # Its table of models would import the SDKs of all providers; one entry that renames no function is enough.
    table: Any = ModuleType("bfcl_eval.constants.model_config")
    table.MODEL_CONFIG_MAPPING = {"model": SimpleNamespace(underscore_to_dot=False)}
    sys.modules[table.__name__] = table
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        calls = ast.literal_eval(request["calls"])
        language, category = Language(request["language"]), request["category"]
        found = ast_checker(request["functions"], calls, request["answers"], language, category, "model")
        return {"error": None if found["valid"] else str(found["error"])}

    limit()
    serve(or_error(answer), replies, seconds=SECONDS)
