"""Reads Java and JavaScript values with the official converters, in a child process.

The converters' regular expressions can take for ever; a request that takes too long ends the process.
"""

from typing import Any

from envs.line_server import limit, or_error, serve, take_stdout

SECONDS = 2
"""Processor time per request."""


def main() -> None:
    replies = take_stdout()
    from bfcl_eval.eval_checker.ast_eval.type_convertor.java_type_converter import java_type_converter
    from bfcl_eval.eval_checker.ast_eval.type_convertor.js_type_converter import js_type_converter

    converters = {"java": java_type_converter, "javascript": js_type_converter}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        items = [] if request["items"] is None else [request["items"]]
        return {"value": converters[request["language"]](request["text"], request["type"], *items)}

    limit()
    serve(or_error(answer), replies, seconds=SECONDS)
