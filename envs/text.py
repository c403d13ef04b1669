"""The border for text: what leaves a dialogue for a tokenizer, a record, a log or a client is valid Unicode."""

from __future__ import annotations


def valid_text(text: str) -> str:
    """The text with every lone surrogate replaced by U+FFFD, and every surrogate pair by its character.

    JSON can spell half of a surrogate pair (`"\\ud83d"`). Python keeps it, but no tokenizer, file or socket can encode it.
    Text without surrogates is returned as it is.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
