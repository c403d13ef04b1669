"""The program that reads Java and JavaScript values with the official converters, in a process of its own.

    python -P -s -B converting.py FOLDER

FOLDER is the one that the package `bfcl_eval` lies in. The converters are made of patterns that can take for ever; a
request that takes too long ends the process. A JSON object a line in, one a line out.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import NoReturn

SECONDS = 2
"""Processor time of a request."""


def main() -> NoReturn:
    """Answers requests until there are none."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the converters print
    sys.path.append(sys.argv[1])
    from bfcl_eval.eval_checker.ast_eval.type_convertor.java_type_converter import java_type_converter
    from bfcl_eval.eval_checker.ast_eval.type_convertor.js_type_converter import js_type_converter

    converters = {"java": java_type_converter, "javascript": js_type_converter}
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        request = json.loads(line)
        arguments = [request["text"], request["type"]]
        if request["items"] is not None:
            arguments.append(request["items"])
        try:
            reply = json.dumps({"value": converters[request["language"]](*arguments)})
        except Exception as error:  # noqa: BLE001 - whatever they raise, the value cannot be read
            reply = json.dumps({"error": f"{type(error).__name__}: {error}"[:200]})
        replies.write(reply + "\n")
        replies.flush()
        signal.setitimer(signal.ITIMER_PROF, 0)
    sys.exit(0)


if __name__ == "__main__":
    main()
