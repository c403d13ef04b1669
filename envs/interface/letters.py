"""Letters and words of any script: lookalikes of ASCII letters, and where a word begins and ends."""

from __future__ import annotations

import re
import unicodedata

_LOOKALIKES = str.maketrans(
    "АВЕКМНОРСТУХІЅЈԌаеорсухіѕјһԁԛԝкмтвнԍгΑΒΕΖΗΙΚΜΝΟΡΤΥΧαεορτυνικηχβγωμɑɡıøØłŁđĐᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ",
    "ABEKMHOPCTYXISJGaeopcyxisjhdqwkmtbhgrABEZHIKMNOPTYXaeoptuvikhxbywuagioOlLdDABCDEFGHIJKLMNOPRSTUVWYZ",
)
_FRAMED = {start + i: chr(65 + i) for start in (0x1F150, 0x1F170, 0x1F1E6) for i in range(26)}
"""Letters in dark circles, in dark squares and of flags, which Unicode does not call compatible with plain ones."""
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
    """The text with ASCII letters and digits where it has letters and digits that look like them, accents dropped."""
    if not text.isascii():
        spread = unicodedata.normalize("NFKD", text.translate(_FRAMED)).translate(_UNSEEN)
        kept = (char for char in spread if unicodedata.category(char) not in ("Mn", "Me", "Cf"))
        digits = (str(unicodedata.decimal(char, char)) for char in kept)
        # Syllables of Hangul are put together again.
        text = unicodedata.normalize("NFC", "".join(digits).translate(_LOOKALIKES))
    return _APOSTROPHE.sub("", text)


def parts(text: str) -> list[str]:
    """The words and numbers of Latin letters in a text, small; "lockDoors" has two, as "lock_doors" has."""
    return [part.lower() for part in _PARTS.findall(text)]


def tokens(text: str, *, wide: bool = False) -> list[str]:
    """The words and numbers of a text in plain letters, small; "lockDoors" has one. `wide` is as for `word_spans`."""
    return [token.lower() for token in (_ANY if wide else _TOKENS).findall(text)]


def word_spans(text: str, *, wide: bool = False) -> list[tuple[int, int]]:
    """Where the words and numbers of a text in plain letters begin and end.

    Letters that are not Latin stand between words, as all that is no letter does. If `wide` they are of words: a run of
    letters is one where a script has blanks, and else (Chinese, Japanese, Thai, Lao, Khmer, Burmese) each letter.
    """
    return [match.span() for match in (_ANY if wide else _PARTS).finditer(text)]
