"""Letters and words of any script: lookalikes of ASCII letters, and the boundaries of words."""

from __future__ import annotations

import re
import unicodedata

_LOOKALIKES = str.maketrans(
    "АВЕКМНОРСТУХІЅЈԌаеорсухіѕјһԁԛԝкмтвнԍгΑΒΕΖΗΙΚΜΝΟΡΤΥΧαεορτυνικηχβγωμɑɡıøØłŁđĐᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ",
    "ABEKMHOPCTYXISJGaeopcyxisjhdqwkmtbhgrABEZHIKMNOPTYXaeoptuvikhxbywuagioOlLdDABCDEFGHIJKLMNOPRSTUVWYZ",
)
_FRAMED = {start + i: chr(65 + i) for start in (0x1F150, 0x1F170, 0x1F1E6) for i in range(26)}
"""Letters in dark circles, in dark squares and of flags, which Unicode does not map to plain ones."""
_UNSEEN = dict.fromkeys((0x115F, 0x1160, 0x3164, 0xFFA0, 0x2800))
_APOSTROPHE = re.compile(r"(?<=[A-Za-z])['’](?=[A-Za-z])")
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_TOKENS = re.compile(r"[A-Za-z]+|[0-9]+")
_WITHOUT_BLANKS = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    r"\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # kana and Han
)
_ANY = re.compile(rf"[0-9]+|[{_WITHOUT_BLANKS}]|[^\W\d_{_WITHOUT_BLANKS}]+")


def plain_letters(text: str) -> str:
    """The text with lookalikes of ASCII letters and digits replaced by these, and accents dropped."""
    if not text.isascii():
        spread = unicodedata.normalize("NFKD", text.translate(_FRAMED)).translate(_UNSEEN)
        kept = (char for char in spread if unicodedata.category(char) not in ("Mn", "Me", "Cf"))
        digits = (str(unicodedata.decimal(char, char)) for char in kept)
        # Syllables of Hangul are put together again.
        text = unicodedata.normalize("NFC", "".join(digits).translate(_LOOKALIKES))
    return _APOSTROPHE.sub("", text)


def parts(text: str) -> list[str]:
    """The lower-case Latin words and numbers of a text; "lockDoors" has two, like "lock_doors"."""
    return [part.lower() for part in _PARTS.findall(text)]


def tokens(text: str, *, wide: bool = False) -> list[str]:
    """The lower-case words and numbers of a plain text; "lockDoors" has one. `wide` is as in `word_spans`."""
    return [token.lower() for token in (_ANY if wide else _TOKENS).findall(text)]


def word_spans(text: str, *, wide: bool = False) -> list[tuple[int, int]]:
    """The spans of words and numbers in a plain text.

    Only Latin letters count, unless `wide`. Then a run of letters is a word if the script has spaces; in others
    (Chinese, Japanese, Thai, Lao, Khmer, Burmese) each letter is.
    """
    return [match.span() for match in (_ANY if wide else _PARTS).finditer(text)]
