"""The program that makes text of a web page, in a process of its own: as it is, as Markdown, or as plain text.

    python -P -s -B page_reader.py

Encodings, html2text and Beautiful Soup read what a stranger wrote; a page that takes too long ends the process. A JSON
object a line in, one a line out.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import signal
import sys
from typing import NoReturn

SECONDS = 5
"""Processor time of a page."""
MAX_TEXT = 1_000_000
"""Characters of a page that are handed on."""


def text_of(body: bytes, encoding: str | None) -> str:
    """The text of a body, as `requests` reads it: an encoding that is not named is guessed."""
    if body and encoding is None:
        try:
            from charset_normalizer import detect
        except ImportError:
            pass
        else:
            encoding = detect(body)["encoding"]
    try:
        return str(body, encoding or "", errors="replace")
    except (LookupError, ValueError):
        return str(body, errors="replace")


def content_of(text: str, mode: str) -> str:
    """What the official class gives for a page."""
    if mode == "raw":
        return text
    if mode == "markdown":
        import html2text

        markdown: str = html2text.HTML2Text().handle(text)
        return markdown
    if mode == "truncate":
        from bs4 import BeautifulSoup

        soup = BeautifulSoup(text, "html.parser")
        for element in soup(["script", "style"]):
            element.extract()
        plain: str = soup.get_text(separator="\n", strip=True)
        return plain
    raise ValueError(f"Unsupported mode: {mode}")


def main() -> NoReturn:
    """Answers requests until there are none."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the libraries print
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        request = json.loads(line)
        try:
            text = text_of(base64.b64decode(request["body"]), request["encoding"])
            reply = json.dumps({"content": content_of(text, request["mode"])[:MAX_TEXT]})
        except Exception as error:  # noqa: BLE001 - whatever they raise, the page cannot be read
            reply = json.dumps({"error": str(error)[:1000]})
        replies.write(reply + "\n")
        replies.flush()
        signal.setitimer(signal.ITIMER_PROF, 0)
    sys.exit(0)


if __name__ == "__main__":
    main()
