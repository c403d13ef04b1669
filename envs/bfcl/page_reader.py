"""Turns a web page into text in a child process: raw, as Markdown, or as plain text.

Encodings, html2text and Beautiful Soup process a stranger's bytes; a page that takes too long ends the process.
"""

import base64
import io
from typing import Any

from envs.line_server import limit, or_error, serve, take_stdout

SECONDS = 5
"""Processor time per page."""
MAX_TEXT = 1_000_000
"""Characters of a page that are returned."""


def text_of(body: bytes, encoding: str | None) -> str:
    """The text of a body, decoded as `requests` does: without a named encoding it is guessed."""
    from requests import Response

    response = Response()
    response.raw, response.encoding = io.BytesIO(body), encoding
    return response.text


def content_of(text: str, mode: str) -> str:
    """The official class's text of a page, "raw", "markdown" or "truncate"."""
    if mode == "raw":
        return text
    if mode == "markdown":
        import html2text

        markdown: str = html2text.HTML2Text().handle(text)
        return markdown
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(text, "html.parser")
    for element in soup(["script", "style"]):
        element.extract()
    plain: str = soup.get_text(separator="\n", strip=True)
    return plain


def main() -> None:
    replies = take_stdout()
    limit()
    serve(or_error(_answer), replies, seconds=SECONDS)


def _answer(request: dict[str, Any]) -> dict[str, str]:
    text = text_of(base64.b64decode(request["body"]), request["encoding"])
    return {"content": content_of(text, request["mode"])[:MAX_TEXT]}
