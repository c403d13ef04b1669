"""Reads Java and JavaScript values with the official converters, in a child process.

The converters' regular expressions can take for ever; a request that takes too long ends the process.
"""

import json
from typing import Any

from envs.line_server import limit, serve, take_stdout

SECONDS = 2
"""Processor time per request."""


def main() -> None:
    """Answers requests until there are none."""
    replies = take_stdout()
    from bfcl_eval.eval_checker.ast_eval.type_convertor.java_type_converter import java_type_converter
    from bfcl_eval.eval_checker.ast_eval.type_convertor.js_type_converter import js_type_converter

    converters = {"java": java_type_converter, "javascript": js_type_converter}

    def answer(request: dict[str, Any]) -> str:
        items = [] if request["items"] is None else [request["items"]]
        try:
            return json.dumps({"value": converters[request["language"]](request["text"], request["type"], *items)})
        except Exception as error:  # noqa: BLE001 - any error means that the value cannot be read
            return json.dumps({"error": f"{type(error).__name__}: {error}"[:200]})

    limit()
    serve(answer, replies, seconds=SECONDS)
