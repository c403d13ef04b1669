"""Copies of run folders on a storage: a shared folder, S3 or GCS, by pyarrow."""

import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from queue import Empty, Queue
from threading import Thread

from pyarrow import ArrowException, fs  # type: ignore[import-untyped]

from envs.errors import SealError, UserError
from envs.received import MAX_BYTES, MIB, check_no_links, parse_json
from seal_ray.report.files import replace_file

LIST = "mirror.json"
"""The mirror's files with their `Stats`, written last: other files are of an incomplete push, and are ignored."""

OWN = "pushed.json"
"""The list of all files that pushes have written or begun to write; a push may remove them."""

STATE = "storage.json"
"""The random ids of all pushes so far, in the folder and in its copy; the first file that a push writes."""

_UNFINISHED = (".part", ".new")
"""Endings of unfinished files."""

_OPEN_PLACE = re.compile(r"[\w+.-]+://(anonymous@)?[^/@:]*(:\d+)?(/|$)")
"""A URI without password and user name; Google's storage uses `anonymous` for no user."""

_SECRET = re.compile(r"(^|&)[^=&]*(key|secret|token|pass|sig|credentials|%)[^=&]*=", re.IGNORECASE)
"""An option of pyarrow with a secret, or with an escaped name."""

_FAILURES = (OSError, ValueError, ArrowException)
"""Errors of pyarrow for a storage; `ValueError` for an argument that Google rejects, such as a bucket's name."""

_LATER = " It is repeated later."

Stats = tuple[int, int]
"""Size in bytes and time of change in nanoseconds; a file with the same ones is unchanged."""


def snapshots_of(folder: Path) -> Path:
    """The folder of a folder's snapshots, next to it, on the same disk."""
    return folder.with_name(f".{folder.name}.push")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of a folder at one moment: `stats` by name, and in `links` hard links to changed files.

    The folder's files can be replaced and removed while the links are copied.
    """

    links: Path
    stats: dict[str, Stats]

    def remove(self) -> None:
        shutil.rmtree(self.links, ignore_errors=True)


def _pushes(text: bytes) -> list[str]:
    """The ids of the pushes of a folder or its copy. Raises `ValueError` if there are none."""
    value = parse_json(text)
    if not isinstance(value, dict) or not isinstance(value.get("pushes"), list) or not value["pushes"]:
        raise ValueError("it has no pushes")
    return list(map(str, value["pushes"]))


class Mirror:
    """A copy of a folder at `uri`/NAME. A push copies changed files, removes deleted ones, and keeps files of others.

    Raises:
        UserError: The storage cannot be written, folder and copy overlap, a copy exists although the folder is `new`,
            or the existing copy is of another folder or of a later state.
    """

    def __init__(self, folder: Path, uri: str, *, new: bool = False) -> None:
        self.folder = folder
        place, query = _split(uri)
        self.uri = f"{place}/{folder.name}{query}"
        self._system, self._path = _open(self.uri)
        if isinstance(self._system, fs.LocalFileSystem):
            here, there = folder.resolve(), Path(self._path).resolve()
            if there.is_relative_to(here) or here.is_relative_to(there):
                raise UserError(f"--storage: {uri} overlaps the run folder; give another place.")
            if there.is_dir():
                check_no_links(there)
        self._pushed: dict[str, Stats] = {}
        try:
            self._system.create_dir(self._path, recursive=True)
            stored = self._system.get_file_info(fs.FileSelector(self._path, recursive=True))
        except _FAILURES as error:
            raise UserError(f"--storage: {uri} cannot be written ({_reason(error)}).") from None
        self._own = set[str]()
        if not stored:
            return
        sizes = {info.path.removeprefix(f"{self._path}/"): info.size for info in stored}
        listed, claimed = LIST in sizes, OWN in sizes
        if new:
            remedy = (
                f"resume it with --resume {self.uri}, or give another name" if listed else "give another name or place"
            )
            raise UserError(f"--storage: {self.uri} exists; {remedy}.")
        for name in (LIST,) * listed + (OWN,) * claimed:
            try:
                files = _listed(self._system, f"{self._path}/{name}")
            except (*_FAILURES, TypeError) as error:
                raise UserError(f"--storage: {self.uri}/{name} cannot be read ({_reason(error)}).") from None
            self._own.update(files)
            self._pushed |= {name: stats for name, stats in files.items() if stats and stats[0] == sizes.get(name)}
        if STATE in sizes:  # not in an incomplete first push
            self._check_state()

    def _check_state(self) -> None:
        """Raises `UserError` unless the copy is of this folder, now or earlier."""
        try:
            with self._system.open_input_stream(f"{self._path}/{STATE}") as stream:
                *_, last = _pushes(stream.read())
        except _FAILURES as error:
            raise UserError(f"--storage: {self.uri}/{STATE} cannot be read ({_reason(error)}).") from None
        if last not in self._before():
            raise UserError(
                f"--storage: {self.uri} is a copy of another folder than {self.folder}, or of a later state of it; "
                f"resume it with --resume {self.uri} and other --runs, or give another place."
            )

    def _before(self) -> list[str]:
        """The pushes of the folder so far."""
        path = self.folder / STATE
        try:
            return _pushes(path.read_bytes()) if path.is_file() else []
        except ValueError as error:
            raise UserError(f"--storage: {path} cannot be read ({error}); remove it, and give another place.") from None

    def push(self) -> None:
        """Copies the changes since the last push. Raises `SealError` if the storage fails."""
        try:
            self.copy(self.snapshot())
        finally:
            shutil.rmtree(snapshots_of(self.folder), ignore_errors=True)

    def snapshot(self) -> Snapshot:
        """The present files. Raises `SealError` if they cannot be linked."""
        push = uuid.uuid4().hex
        snapshot = Snapshot(snapshots_of(self.folder) / push, {})
        if not self.folder.is_dir():
            return snapshot
        with self._failures(snapshot):
            state = {"pushes": [*self._before(), push]}
            replace_file(self.folder / STATE, json.dumps(state).encode("utf-8"))
            for path in self._files():
                name = path.relative_to(self.folder).as_posix()
                with suppress(FileNotFoundError):  # a trial has removed it
                    info = path.stat()
                    stats = (info.st_size, info.st_mtime_ns)
                    if self._pushed.get(name) != stats:
                        _link(path, snapshot.links / name)
                    snapshot.stats[name] = stats
        return snapshot

    def copy(self, snapshot: Snapshot) -> None:
        """Copies the changes since the last push to the storage, and removes the snapshot.

        Raises `SealError` if the storage fails.
        """
        files = snapshot.stats
        if not files:
            return
        with self._failures(snapshot):
            self._claim(files.keys())
            # Its ids come first, so that no earlier state of the folder takes later files for its own.
            for name in sorted(files, key=lambda name: (name != STATE, name)):
                if self._pushed.get(name) != files[name]:
                    self._pushed.pop(name, None)
                    target = f"{self._path}/{name}"
                    self._system.create_dir(str(PurePosixPath(target).parent), recursive=True)
                    self._replace(target, partial(self.copy_file, snapshot.links / name))
                    self._pushed[name] = files[name]
            self._replace(f"{self._path}/{LIST}", partial(self.write_json, files))
            self.remove_files(self._own - files.keys())
        snapshot.remove()

    @contextmanager
    def _failures(self, snapshot: Snapshot) -> Iterator[None]:
        """Removes the snapshot after an error, and raises the storage's errors as `SealError`."""
        try:
            yield
        except BaseException as error:
            snapshot.remove()
            if isinstance(error, _FAILURES) and not isinstance(error, SealError):
                raise SealError(f"storage: {self.uri} cannot be written ({_reason(error)}).") from None
            raise

    def _claim(self, names: Iterable[str]) -> None:
        """Lists our files before they are written, so that a later push can remove them after a kill."""
        claimed = self._own.union(names)
        if claimed != self._own:
            self._system.create_dir(self._path, recursive=True)
            self._replace(f"{self._path}/{OWN}", partial(self.write_json, sorted(claimed)))
            self._own = claimed

    def _replace(self, target: str, write: Callable[[str], None]) -> None:
        """Writes a file atomically; writes to S3 and GCS are atomic already."""
        if not isinstance(self._system, fs.LocalFileSystem):
            write(target)
            return
        part = f"{target}{_UNFINISHED[0]}"
        Path(part).unlink(missing_ok=True)  # a link would be followed
        write(part)
        self._system.move(part, target)

    def copy_file(self, path: Path, target: str) -> None:
        fs.copy_files(str(path), target, fs.LocalFileSystem(), self._system)

    def write_json(self, value: object, target: str) -> None:
        with self._system.open_output_stream(target) as stream:
            stream.write(json.dumps(value).encode("utf-8"))

    def _files(self) -> list[Path]:
        """All finished files; `os.walk` skips folders that are removed meanwhile."""
        paths: list[Path] = []
        for folder, inside, names in os.walk(self.folder):
            inside[:] = [name for name in inside if not name.endswith(_UNFINISHED)]
            paths += [Path(folder, name) for name in names if not name.endswith(_UNFINISHED)]
        return sorted(path for path in paths if path.is_file() and not path.is_symlink())

    def remove_files(self, names: set[str]) -> None:
        """Removes these files, and parts of ours that an incomplete push has left."""
        gone = names | {f"{name}{_UNFINISHED[0]}" for name in self._own}
        for info in self._system.get_file_info(fs.FileSelector(self._path, recursive=True)):
            if info.type == fs.FileType.File and info.path.removeprefix(f"{self._path}/") in gone:
                self._system.delete_file(info.path)
        self._own -= names


@contextmanager
def mirrored(
    folder: Path, uri: str | None, say: Callable[[str], None], *, new: bool = False
) -> Iterator[Callable[[], None]]:
    """Pushes the folder at each call in a thread, and at the end, after success or failure; without a storage never.

    The call returns at once. If a push is running, one more follows it, with the folder's state at the newest call.
    A failing push is reported to `say` and repeated at the next call; at the end it raises `SealError`, unless another
    error ended the block. Raises `UserError` as `Mirror`.
    """
    shutil.rmtree(snapshots_of(folder), ignore_errors=True)  # of a process that was killed
    if uri is None:
        yield lambda: None
        return
    mirror = Mirror(folder, uri, new=new)
    waiting = Queue[Snapshot | None](1)

    def put(snapshot: Snapshot | None) -> None:
        with suppress(Empty):
            if before := waiting.get_nowait():
                before.remove()
        waiting.put(snapshot)

    def attempt(push: Callable[[], None], more: str = "") -> None:
        try:
            push()
        except SealError as error:
            say(f"{error}{more}")

    def copy() -> None:
        while snapshot := waiting.get():
            attempt(partial(mirror.copy, snapshot), _LATER)

    def end() -> None:
        put(None)
        thread.join()

    thread = Thread(target=copy, daemon=True)  # an interrupt at the end does not wait for it
    thread.start()
    try:
        yield lambda: attempt(lambda: put(mirror.snapshot()), _LATER)
    except BaseException:  # keep the error that ended the block
        end()
        attempt(mirror.push)
        raise
    end()
    mirror.push()


def pull(uri: str, runs: Path) -> tuple[Path, str]:
    """Copies the folder that was mirrored to `uri` into `runs`, atomically.

    Returns the copy, and the storage to mirror it to. Raises `UserError` if there is none, or the folder exists.
    """
    place, query = _split(uri, "--resume")
    parent, _, name = place.rpartition("/")
    parent += query
    folder = runs / name
    if folder.exists():
        raise UserError(f"--resume: {folder} exists; resume it with --resume {folder} --storage {parent}.")
    part = folder.with_name(f"{name}.part")
    shutil.rmtree(part, ignore_errors=True)
    system, path = _open(place + query)
    try:
        if isinstance(system, fs.LocalFileSystem):
            check_no_links(Path(path))
        for file, stats in _listed(system, f"{path}/{LIST}").items():
            inside = PurePosixPath(file)
            if inside.is_absolute() or ".." in inside.parts or not file.isprintable():
                raise UserError(f"--resume: {uri} names {file!r:.80}, which lies outside of it.")
            target = part / file
            target.parent.mkdir(parents=True, exist_ok=True)
            # Not `copy_files`, which copies a folder of that name with whatever names are below it.
            with system.open_input_stream(f"{path}/{file}", compression=None) as stream, target.open("wb") as copy:
                shutil.copyfileobj(stream, copy, MIB)
            if stats and stats[0] == target.stat().st_size:  # else a later push has written it
                os.utime(target, ns=(stats[1], stats[1]))  # so that a push does not copy it again
        part.replace(folder)
    except UserError:
        raise
    except (*_FAILURES, TypeError) as error:
        raise UserError(f"--resume: {uri} has no readable run ({_reason(error)}).") from None
    return folder, parent


def fetched(resume: str, runs: Path, storage: str | None) -> tuple[Path, str | None]:
    """The folder to resume, copied into `runs` if it is on a storage, and its storage from now on."""
    if not is_stored(resume):
        return Path(resume), storage
    if not is_uri(resume):
        resume = str(Path(resume).resolve())
    folder, source = pull(resume, runs)
    return folder, storage or source


def is_stored(resume: str) -> bool:
    """Whether this is a run on a storage: a URI, or a folder that `Mirror` has written."""
    return is_uri(resume) or Path(resume, LIST).is_file()


def is_uri(name: object) -> bool:
    """Whether a name is the URI of a storage, and not a folder."""
    return "://" in str(name)


def _split(uri: str, option: str = "--storage") -> tuple[str, str]:
    """A storage's place without a final slash, and its query: pyarrow's options, such as an endpoint."""
    place, mark, query = uri.partition("?") if is_uri(uri) else (uri, "", "")
    if is_uri(uri) and not (_OPEN_PLACE.match(place) and not _SECRET.search(query)):
        raise UserError(
            f"{option}: the URI has a user name, a password or a key; remove it, since others can read arguments. "
            "Storages read credentials from the environment or from their own files, such as ~/.aws/credentials."
        )
    if not place.rpartition("://")[2].strip("/"):
        raise UserError(f"{option}: {uri!r} names no place.")
    return place.rstrip("/"), mark + query


def _open(uri: str) -> tuple[fs.FileSystem, str]:
    try:
        system, path = fs.FileSystem.from_uri(uri if is_uri(uri) else str(Path(uri).resolve()))
    except _FAILURES as error:
        raise UserError(f"--storage: {uri.partition('?')[0]} names no storage ({_reason(error)}).") from None
    return system, path


def _listed(system: fs.FileSystem, path: str) -> Mapping[str, Stats | None]:
    """The files in a list of a mirror. Raises `OSError`, `ValueError` or `TypeError` if it cannot be read."""
    with system.open_input_stream(path) as stream:
        value = parse_json(stream.read(MAX_BYTES))
    if not isinstance(value, dict):  # `OWN`, or of an earlier version
        return dict.fromkeys(map(str, value))
    files = {name: (int(size), int(time)) for name, (size, time) in value.items()}
    if any(abs(time) >= 1 << 63 for _, time in files.values()):
        raise ValueError("a time is out of range")
    return files


def _link(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, target)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links
        shutil.copyfile(path, target)


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
