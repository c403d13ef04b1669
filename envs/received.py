"""Reads files of unknown origin: as data, within limits, checked before use.

Every reader raises `UserError` with one sentence. Nothing is imported, unpickled, extracted or followed. `key` is the
option or setting that named the file, for messages.
"""

import errno
import json
import lzma
import math
import os
import re
import stat
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ValidationError

from envs.errors import UserError
from envs.task import JSON
from envs.text import depth, map_texts, valid_text, visible

MIB = 1 << 20
MAX_BYTES = 16 * MIB
"""Of a file that is read whole, and of a file in an archive."""
MAX_JSON_BYTES = 4 * MIB
"""Of a JSON document or line: parsed within a second."""
MAX_YAML_BYTES = 1 << 16
"""The same of a YAML document."""
MAX_DEPTH = 32
"""Levels of lists and mappings."""
MAX_DIGITS = 40
"""Of a whole number."""

_MAX_ARCHIVE_BYTES = 64 * MIB
_MAX_MEMBERS = 4096
_MAX_HEADER = 4096
_MAX_LZMA_MEMORY = 128 * MIB

M = TypeVar("M", bound=BaseModel)


def opened(path: Path, key: str = "") -> BinaryIO:
    """A regular file, open for reading. Raises `UserError` for a link, a device or an unreadable file."""
    name = _named(path, key)
    try:
        file = open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115
    except (OSError, ValueError) as error:  # the latter for a path with a null character
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            raise UserError(f"{name} is a link; replace it with a copy of the file.") from None
        raise UserError(f"{name} cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise UserError(f"{name} is not a regular file.")
    return file


def read_bytes(path: Path, key: str = "", limit: int = MAX_BYTES) -> bytes:
    """The content of a regular file. Raises `UserError` as `opened` does, and for more than `limit` bytes."""
    with opened(path, key) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise UserError(f"{_named(path, key)} is larger than {limit:,} bytes.")
    return content


def read_text(path: Path, key: str = "", limit: int = MAX_BYTES) -> str:
    """The content as UTF-8. Raises `UserError` as `read_bytes` does, and for other encodings."""
    try:
        return read_bytes(path, key, limit).decode()
    except UnicodeDecodeError:
        raise UserError(f"{_named(path, key)} cannot be read (it is no text).") from None


def _named(path: Path, key: str) -> str:
    return f"{key}: {path}" if key else str(path)


def followed(path: Path) -> Path:
    """The real path, for a file in a folder that `check_no_links` has passed."""
    return Path(os.path.realpath(path))


def write_new(path: Path, content: bytes) -> None:
    """Writes a new file. Raises `FileExistsError` if the name exists, even as a link."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with open(descriptor, "wb") as file:
        file.write(content)


def check_no_links(folder: Path, *, leave_out: str | None = None) -> None:
    """Raises `UserError` if the folder holds a link, at any depth; the subfolder `leave_out` is not searched.

    In a snapshot of a Hugging Face cache, links to blobs of the same repository are allowed.
    """
    whole = followed(folder)
    blobs = whole.parent.parent / "blobs" if whole.parent.name == "snapshots" else None
    for place, folders, files in os.walk(folder):
        if leave_out in folders and Path(place) == folder and not Path(place, leave_out).is_symlink():
            folders.remove(leave_out)
        for name in (*folders, *files):
            path = Path(place, name)
            if path.is_symlink() and (blobs is None or followed(path).parent != blobs):
                raise UserError(f"{path} is a link; replace it with a copy of what it leads to.")


def parse_json(text: str | bytes) -> JSON:
    """The value of a JSON text. Raises `ValueError` for invalid or deeply nested JSON and for infinite numbers."""
    try:
        value: JSON = json.loads(text, parse_int=_whole_number, parse_float=_finite, parse_constant=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if depth(value) > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    return value


def read_json(path: Path, key: str = "", limit: int = MAX_JSON_BYTES) -> JSON:
    """The value of a JSON file. Raises `UserError` as `read_bytes` and `parse_json` do."""
    content = read_text(path, key, limit)
    try:
        return parse_json(content)
    except ValueError as error:
        raise UserError(f"{_named(path, key)} is not valid JSON ({error}).") from None


def read_json_object(path: Path, key: str = "", limit: int = MAX_JSON_BYTES) -> dict[str, JSON]:
    """The object in a JSON file. Raises `UserError` as `read_json` does, and for other values."""
    value = read_json(path, key, limit)
    if not isinstance(value, dict):
        raise UserError(f"{_named(path, key)} is not a JSON object.")
    return value


def _whole_number(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a whole number has more than {MAX_DIGITS} digits")
    return int(digits)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is no finite number")
    return value


_TAG = "tag:yaml.org,2002:"
_PLAIN = {
    "null": (r"~|null|Null|NULL|", "~nN\0"),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.(inf|Inf)|\.(nan|NaN)",
        "-+.0123456789",
    ),
}
"""YAML 1.2's core schema: kind of a plain scalar → pattern and first characters. PyYAML implements YAML 1.1's."""


class _TextLoader(yaml.BaseLoader):  # type: ignore[misc]
    """Reads every scalar as text. Aliases, which can expand to any size, and deep nesting are errors."""

    _levels = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed; write the value again", mark)
        self._levels += 1
        if self._levels > MAX_DEPTH:
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, f"more than {MAX_DEPTH} levels of nesting", mark)
        node = super().compose_node(parent, index)
        self._levels -= 1
        return node


class _Loader(_TextLoader, yaml.SafeLoader):  # type: ignore[misc]
    """Reads scalars as YAML 1.2 does: 1e-6 is a number, `on` is a word. Repeated keys are errors."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's form
    yaml_constructors: dict[Any, Any] = {}  # noqa: RUF012 - PyYAML's form

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{name!r} is given twice", key.start_mark)
            seen.add(name)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping

    def construct_int(self, node: Any) -> int:
        return _whole_number(str(self.construct_scalar(node)))


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Quotes text that YAML 1.2, but not PyYAML, would read as a number."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML passes it
        return True


for _kind, (_pattern, _first) in _PLAIN.items():
    for _side in (_Loader, _Dumper):
        _side.add_implicit_resolver(
            _TAG + _kind, re.compile(f"(?:{_pattern})$"), ["" if each == "\0" else each for each in _first]
        )
for _kind in ("null", "bool", "float", "str", "seq", "map"):
    _Loader.add_constructor(_TAG + _kind, yaml.SafeLoader.yaml_constructors[_TAG + _kind])
_Loader.add_constructor(_TAG + "int", _Loader.construct_int)
_Loader.add_constructor(None, yaml.SafeLoader.construct_undefined)


def parse_yaml(text: str, *, as_text: bool = False) -> Any:
    """The value of a YAML text; with `as_text` all scalars are text. Raises `yaml.YAMLError`."""
    if len(text) > MAX_YAML_BYTES:
        raise yaml.YAMLError(f"it is longer than {MAX_YAML_BYTES:,} characters")
    try:
        return yaml.load(text, Loader=_TextLoader if as_text else _Loader)  # noqa: S506 - both make plain values alone
    # A tag that does not fit its value, a key that is a list, or a number that is too long.
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise yaml.YAMLError(str(error)) from None


def read_yaml(path: Path, key: str = "", *, as_text: bool = False) -> Any:
    """The value of a YAML file. Raises `UserError` as `read_text` does, and for invalid YAML."""
    try:
        return parse_yaml(read_text(path, key, MAX_YAML_BYTES), as_text=as_text)
    except yaml.YAMLError as error:
        raise UserError(f"{_named(path, key)} is not valid YAML ({problem_of(error)}).") from None


def read_yaml_as_json(path: Path, key: str = "") -> JSON:
    """The value of a YAML file that is valid JSON: finite numbers, encodable texts."""
    try:
        return map_texts(parse_json(json.dumps(read_yaml(path, key))), valid_text)
    except (ValueError, TypeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{_named(path, key)} holds what JSON has not ({error}).") from None


def write_yaml(document: Any) -> str:
    """A JSON value as YAML that any reader reads back."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def problem_of(error: yaml.YAMLError) -> str:
    """The problem and its line, in a few words."""
    mark = getattr(error, "problem_mark", None)
    what = str(getattr(error, "problem", None) or str(error).split("\n")[0])
    return visible(what if mark is None else f"line {mark.line + 1}: {what}")[:300]


def validated(model: type[M], value: JSON, where: str) -> M:
    """The value as a model. Raises `UserError` with `where` and the key that does not fit."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = visible(".".join(map(str, problem["loc"])))[:120]
        raise UserError(f"{where}: {place + ': ' if place else ''}{visible(problem['msg'])[:200]}.") from None


class _PlainMember(tarfile.TarInfo):
    """The header of a regular file or a folder; others, and long extended headers, are refused."""

    @classmethod
    def frombuf(cls, *args: Any, **kwargs: Any) -> Self:
        member = super().frombuf(*args, **kwargs)
        describes = member.type in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME)
        if describes and member.size > _MAX_HEADER:
            raise tarfile.ReadError("a header is too long")
        if not describes and member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE):
            raise tarfile.ReadError("it holds a link or something else than files and folders")
        return member


class _Unpacked:
    """The bytes of an xz file as a stream, with bounded size and memory."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_LZMA_MEMORY)
        self._left = _MAX_ARCHIVE_BYTES

    def read(self, size: int) -> bytes:
        content = b""
        while not content and not self._decompressor.eof:
            packed = self._packed.read(1 << 16) if self._decompressor.needs_input else b""
            if self._decompressor.needs_input and not packed:
                raise EOFError("it is cut short")
            content = self._decompressor.decompress(packed, max_length=size)
        self._left -= len(content)
        if self._left < 0:
            raise tarfile.ReadError(f"it unpacks to more than {_MAX_ARCHIVE_BYTES:,} bytes")
        return content


def read_archive(path: Path, is_known: Callable[[str], object]) -> Mapping[str, bytes]:
    """Name → content of the files with known names in a .tar.xz file; nothing is written.

    Raises `UserError` for links, devices, repeated names, and too many or too large files.
    """
    contents: dict[str, bytes] = {}
    try:
        with opened(path) as packed:
            stream: Any = _Unpacked(packed)
            with tarfile.open(fileobj=stream, mode="r|", tarinfo=_PlainMember) as archive:
                for number, member in enumerate(archive):
                    if number >= _MAX_MEMBERS:
                        raise tarfile.ReadError(f"it holds more than {_MAX_MEMBERS} files and folders")
                    if member.isreg() and is_known(member.name):
                        if member.name in contents or member.issparse() or not 0 <= member.size <= MAX_BYTES:
                            raise tarfile.ReadError(f"{visible(member.name)[:80]} is there twice, sparse or too large")
                        file = archive.extractfile(member)
                        assert file is not None, "it is a regular file"
                        contents[member.name] = file.read()
    except UserError:
        raise
    except (OSError, tarfile.TarError, lzma.LZMAError, EOFError, ValueError, IndexError, RecursionError) as error:
        raise UserError(f"{path} cannot be unpacked ({visible(str(error))[:200]}).") from None
    return contents
