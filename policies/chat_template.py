"""Chat templates, rendered in a separate process: a template is a program that comes with a model.

The process has one template and is confined by the kernel (`envs/confinement.py`). A rendering may take `SECONDS` of
processor time and `MEMORY` bytes, and returns the text of transformers' `apply_chat_template`.
"""

import json
import os
import resource
import sys
from codecs import lookup
from collections.abc import Mapping
from datetime import datetime
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NoReturn

from envs.bounded import BoundedProcess, program_of
from envs.confinement import confine
from envs.line_server import or_error, serve, take_stdout

SECONDS = 1
"""Processor time of a rendering."""
MEMORY = 256 << 20
"""Bytes that a process may take in addition to its initial size."""
DATE = "2024-07-26"
"""The date that `strftime_now` returns by default, on every day: the one in the text of Llama 3.1's template."""


def render_chat(template: str, values: Mapping[str, Any], date: str = DATE) -> str:
    """Renders a template with JSON values. Raises `ValueError` if it refuses them or takes too much."""
    reply = _process(template).ask({"date": date, "values": dict(values)})
    if reply is None:
        raise ValueError(f"it takes more than {SECONDS} s or {MEMORY >> 20} MB")
    if "error" in reply:
        raise ValueError(reply["error"])
    return str(reply["text"])


@lru_cache(maxsize=8)
def _process(template: str) -> BoundedProcess:
    program = program_of(__name__, "jinja2", "markupsafe")
    return BoundedProcess(lambda: program, seconds=60.0 * SECONDS, first={"template": template})


def main() -> NoReturn:
    """Answers requests until the input ends."""
    replies = take_stdout()
    environment = _environment()
    os.rmdir(os.getcwd())  # it needs no folder, and the process that made it may be killed
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    confine()
    template = cache(partial(environment.from_string, json.loads(sys.stdin.readline())["template"]))

    def answer(request: dict[str, Any]) -> dict[str, str]:
        environment.globals["strftime_now"] = datetime.fromisoformat(request["date"]).strftime
        return {"text": template().render(request["values"])}

    serve(or_error(answer), replies, seconds=SECONDS)


def _environment() -> Any:
    """Jinja's environment, as in `_compile_jinja_template` of `transformers/utils/chat_template_utils.py`."""
    # Jinja imports some of these only on use, which is too late.
    import html  # noqa: F401
    import pprint  # noqa: F401
    import textwrap  # noqa: F401

    from jinja2 import TemplateError, constants, debug, nodes  # noqa: F401
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Renders the content of `{% generation %}…{% endgeneration %}`, which marks a model's text."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    def tojson(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    for encoding in ("ascii", "latin-1", "unicode-escape"):
        lookup(encoding)
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    return environment
