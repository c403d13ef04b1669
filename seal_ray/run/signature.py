"""A user's signature of import names and pickles, which commands then load without asking for trust.

It is an HMAC-SHA256 with a key that only this user can read: in the user's config folder, or in the file of the
environment variable `SEAL_RAY_KEY_FILE`, for instance a job's secret.
"""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from envs.errors import UserError
from envs.received import read_bytes, read_json, validated
from envs.task import JSON
from envs.trusting import allow, config_folder, file_of, import_names, trust_names
from seal_ray.report.files import replace_file

FILE = "signature.json"
"""The file in the folder of a run, a comparison or a sweep."""
KEY_VARIABLE = "SEAL_RAY_KEY_FILE"

_KEY_BYTES = 32
_KEPT = 4
"""Number of signed contents of a file: a kill can leave any of the last ones."""


class _Signed(BaseModel):
    """Import name → its code, and file → the codes of its last contents."""

    model_config = ConfigDict(extra="forbid", strict=True)
    imports: dict[str, str] = Field(default_factory=dict)
    files: dict[str, list[str]] = Field(default_factory=dict)


class Signature:
    """The signature of a folder. Codes of other users are invalid; the user's own hold wherever a folder is copied."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._signed = validated(_Signed, read_json(self._path), str(self._path)) if self._path.exists() else _Signed()
        self._key = _read_key()

    def sign(self, *, imports: Iterable[str] = (), files: Mapping[str, bytes] | None = None) -> None:
        """Signs import names with the files of their modules, and contents of files by their paths in the folder.

        A key is made if there is none; without arguments nothing is written.
        """
        names = list(imports)
        if not names and not files:
            return
        self._key = self._key or _make_key()
        self._signed.imports.update({name: self._import_code(name) for name in names})
        for path, content in (files or {}).items():
            code = self._file_code(path, content)
            before = [old for old in self._signed.files.get(path, []) if old != code]
            self._signed.files[path] = [*before, code][-_KEPT:]
        replace_file(self._path, self._signed.model_dump_json().encode())

    def holds_import(self, name: str) -> bool:
        """Whether the name was signed, and its module is still the same file."""
        return self._key is not None and _equal(self._signed.imports.get(name, ""), self._import_code(name))

    def holds_file(self, path: str, content: bytes) -> bool:
        """Whether this content was signed for the path."""
        codes = self._signed.files.get(path, [])
        return self._key is not None and any(_equal(code, self._file_code(path, content)) for code in codes)

    def _import_code(self, name: str) -> str:
        return self._code("import", name, str(file_of(name)))

    def _file_code(self, path: str, content: bytes) -> str:
        return self._code("file", path, hashlib.sha256(content).hexdigest())

    def _code(self, *parts: str) -> str:
        assert self._key is not None, "there is a key where something is signed or checked"
        return hmac.new(self._key, json.dumps(["seal_ray", *parts]).encode(), hashlib.sha256).hexdigest()


def trust_signed_names(sections: JSON, where: Path, *, run: Path) -> None:
    """Allows the import names of a run's settings: signed ones, and others with the user's consent.

    Raises `UserError` as `trust_names` does.
    """
    signature = Signature(run)
    allow(name for name in import_names(sections) if signature.holds_import(name))
    trust_names(sections, where, run=run)


def _equal(code: str, other: str) -> bool:
    return hmac.compare_digest(code.encode("utf-8", "replace"), other.encode())


def _key_path() -> Path:
    given = os.environ.get(KEY_VARIABLE)
    return Path(given) if given else config_folder() / "key"


def _read_key() -> bytes | None:
    """The user's key; None if there is none yet. Raises `UserError` for a key that is too short."""
    path = _key_path()
    if not path.is_file():
        if KEY_VARIABLE in os.environ:
            raise UserError(f"{KEY_VARIABLE}: {path} is not a file; it must be the file with the key.")
        return None
    key = read_bytes(path.resolve(), limit=4096).strip()
    if len(key) < _KEY_BYTES:
        raise UserError(f"{path} is no key of at least {_KEY_BYTES} bytes; remove it, and the next run makes another.")
    return key


def _make_key() -> bytes:
    path = _key_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(secrets.token_hex(_KEY_BYTES).encode())
    except FileExistsError:  # another command has made it
        pass
    key = _read_key()
    assert key is not None, "it exists now"
    return key
