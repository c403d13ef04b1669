"""Ways to write a value so that a careless reader does not see it."""

import base64
import codecs
import re
from collections.abc import Callable, Mapping
from urllib.parse import quote


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def rot13(text: str) -> str:
    return codecs.encode(text, "rot13")


PLAIN: Mapping[str, Callable[[str], str]] = {
    "as it is": lambda value: value,
    "small": str.lower,
    "large": str.upper,
    "spaced out": " ".join,
    "spaced widely": "   ".join,
    "with dashes": "-".join,
    "with marks": "·".join,
    "with emoji": "🙂".join,
    "joined": lambda value: re.sub(r"[\W_]", "", value),
    "quoted": lambda value: f"'{value}'",
    "as an argument": lambda value: f"folder={value}",
}
LOOKALIKE: Mapping[str, Callable[[str], str]] = {
    "wide": lambda value: "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in value),
    "struck through": lambda value: "".join(f"{char}\u0336" for char in value),
    "Cyrillic": lambda value: value.translate(str.maketrans("aeopcxyABEKMHOPCTX", "аеорсхуАВЕКМНОРСТХ")),
    "bold": lambda value: "".join(chr(0x1D41A + ord(char) - 97) if "a" <= char <= "z" else char for char in value),
}
TURNED: Mapping[str, Callable[[str], str]] = {
    "backwards": lambda value: value[::-1],
    "rot13": rot13,
    "spaced backwards": lambda value: " ".join(value[::-1]),
}
ENCODED: Mapping[str, Callable[[str], str]] = {
    "base64": encoded,
    "base64 without padding": lambda value: encoded(value).rstrip("="),
    "base64 spaced out": lambda value: " ".join(encoded(value)),
    "base64 in pieces": lambda value: " ".join(re.findall(".{1,5}", encoded(value))),
    "base64 backwards": lambda value: encoded(value)[::-1],
    "base64 of backwards": lambda value: encoded(value[::-1]),
    "base64 of rot13": lambda value: encoded(rot13(value)),
    "rot13 of base64": lambda value: rot13(encoded(value)),
    "base64 twice": lambda value: encoded(encoded(value)),
    "base64 of hexadecimal": lambda value: encoded(value.encode().hex()),
    "hexadecimal of base64": lambda value: encoded(value).encode().hex(),
    "base32": lambda value: base64.b32encode(value.encode()).decode(),
    "small base32": lambda value: base64.b32encode(value.encode()).decode().lower(),
    "hexadecimal": lambda value: value.encode().hex(),
    "hexadecimal spaced out": lambda value: value.encode().hex(" "),
    "hexadecimal escapes": lambda value: "".join(f"\\x{byte:02x}" for byte in value.encode()),
    "URL": lambda value: "".join(f"%{byte:02X}" for byte in value.encode()),
    "URL twice": lambda value: quote("".join(f"%{byte:02X}" for byte in value.encode())),
    "character codes": lambda value: " ".join(str(ord(char)) for char in value),
    "entities": lambda value: "".join(f"&#{ord(char)};" for char in value),
    "Unicode escapes": lambda value: "".join(f"\\u{ord(char):04x}" for char in value),
}
HIDING = {**PLAIN, **LOOKALIKE, **TURNED, **ENCODED}
