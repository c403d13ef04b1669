"""Mirrors of run folders, in folders and in clouds: changes are pushed, half a push is never pulled."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs  # type: ignore[import-untyped]

from envs.errors import SealError, UserError
from seal_ray.run.storage import LIST, OWN, STATE, Mirror, fetched, mirrored, pull
from tests.command_line import RunMain
from tests.processes import free_port, wait_for_answer
from tests.refusal import refusal


def tree(folder: Path) -> dict[str, str]:
    """Name → text of each file."""
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()}


def make_run(folder: Path) -> Path:
    """A folder of a run with a checkpoint, in `folder`/runs."""
    run = folder / "runs" / "mine"
    (run / "checkpoints" / "round_000001" / "model").mkdir(parents=True)
    (run / "checkpoints" / "round_000001" / "model" / "weights").write_text("one", encoding="utf-8")
    (run / "metrics.jsonl").write_text("{}\n", encoding="utf-8")
    return run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path)


@pytest.mark.parametrize("as_uri", [False, True])
def test_a_mirror_has_what_the_folder_has(as_uri: bool, run: Path, tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    mirror = Mirror(run, f"file://{storage}" if as_uri else str(storage))
    mirror.push()
    copy = storage / "mine"
    stats = {name: (run / name).stat() for name in sorted(tree(run))}
    listed = json.dumps({name: [each.st_size, each.st_mtime_ns] for name, each in stats.items()})
    assert tree(copy) == {**tree(run), LIST: listed, OWN: json.dumps(list(stats))}
    assert list(run.parent.iterdir()) == [run], "no link is left"
    unchanged = (copy / "checkpoints/round_000001/model/weights").stat().st_mtime_ns

    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write("{}\n")
    (run / "checkpoints/round_000002.part").mkdir()
    (run / "checkpoints/round_000002.part/half").write_text("two", encoding="utf-8")
    (run / "curves.png.new").write_text("half", encoding="utf-8")
    mirror.push()
    assert (copy / "checkpoints/round_000001/model/weights").stat().st_mtime_ns == unchanged, "it was not copied again"
    assert (copy / "metrics.jsonl").read_text("utf-8") == "{}\n{}\n"
    assert not [name for name in tree(copy) if "part" in name or "new" in name]

    (run / "checkpoints/round_000001/model/weights").unlink()
    mirror.push()
    assert set(tree(copy)) == {"metrics.jsonl", STATE, LIST, OWN}


def test_what_is_pulled_is_what_was_pushed_and_no_more(run: Path, tmp_path: Path) -> None:
    Mirror(run, str(tmp_path / "storage")).push()
    # A push that died before its end.
    (tmp_path / "storage/mine/checkpoints/round_000002").mkdir()
    (tmp_path / "storage/mine/checkpoints/round_000002/half").write_text("two", encoding="utf-8")
    weights = tmp_path / "storage/mine/checkpoints/round_000001/model/weights"
    weights.rename(weights.with_name("elsewhere"))
    with pytest.raises(UserError, match="has no readable run"):
        pull(f"file://{tmp_path}/storage/mine", tmp_path / "elsewhere")
    weights.with_name("elsewhere").rename(weights)
    folder, storage = fetched(str(tmp_path / "storage" / "mine"), tmp_path / "elsewhere", None)
    assert (folder, storage) == (tmp_path / "elsewhere" / "mine", str(tmp_path / "storage"))
    assert tree(folder.parent) == {f"mine/{name}": text for name, text in tree(run).items()}, "and nothing else"
    with pytest.raises(UserError, match="exists; resume it with --resume"):
        pull(f"{tmp_path}/storage/mine", tmp_path / "elsewhere")
    listed = tmp_path / "storage/mine" / LIST  # of an earlier version, it has names alone
    listed.write_text(json.dumps(list(json.loads(listed.read_text("utf-8")))), encoding="utf-8")
    folder, _ = pull(f"{tmp_path}/storage/mine", tmp_path / "here")
    assert tree(folder) == tree(run)
    Mirror(folder, str(tmp_path / "storage")).push()


LIES = (
    *('{"checkpoints": [6, 0]}', '{"../outside": [6, 0]}', '{"a": 3}', '{"a": [1]}', '{"a": ["x", 1]}'),
    '{"a": [1, 1' + 30 * "0" + "]}",
)


@pytest.mark.parametrize(
    "listed", ['["../outside"]', '["/etc/passwd"]', "[1", "3", '["not_there"]', '{"not_there": [1, 2]}', *LIES]
)
def test_a_storage_that_lies_is_refused_and_writes_nothing_outside(listed: str, tmp_path: Path) -> None:
    (tmp_path / "storage/mine/checkpoints").mkdir(parents=True)
    (tmp_path / "storage/mine/checkpoints/inside").touch()  # on a real storage its name can lead outside
    (tmp_path / "storage/outside").write_text("secret", encoding="utf-8")
    (tmp_path / "storage/mine" / LIST).write_text(listed, encoding="utf-8")
    refusal(pull, f"{tmp_path}/storage/mine", tmp_path / "runs")
    assert tree(tmp_path / "runs") == {}


def test_a_run_is_no_mirror_of_itself(run: Path) -> None:
    before = tree(run)
    inside = run.parent / run.name / run.name  # its mirror would be the folder of all runs
    inside.mkdir()
    assert "overlaps the run folder" in refusal(Mirror, inside, str(run.parent.parent / "runs"))
    inside.rmdir()
    for storage in (str(run.parent), f"file://{run.parent}", str(run)):
        assert "overlaps the run folder" in refusal(Mirror, run, storage)
    assert tree(run) == before


def test_a_file_that_the_storage_has_lost_is_copied_again(run: Path, tmp_path: Path) -> None:
    Mirror(run, str(tmp_path / "storage")).push()
    weights = tmp_path / "storage/mine/checkpoints/round_000001/model/weights"
    for lose in (weights.unlink, lambda: weights.write_text("o", encoding="utf-8")):
        lose()
        Mirror(run, str(tmp_path / "storage")).push()
        assert weights.read_text("utf-8") == "one"


def test_a_file_system_without_hard_links_gets_copies(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")  # as FAT raises it

    monkeypatch.setattr("os.link", link)
    Mirror(run, str(tmp_path / "storage")).push()
    assert set(tree(tmp_path / "storage/mine")) == {*tree(run), LIST, OWN}


@pytest.mark.parametrize("half", ["checkpoints/round_000001/model/weights", LIST])
def test_a_push_that_is_cut_off_leaves_the_files_of_the_one_before(
    half: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Mirror(run, str(tmp_path / "storage")).push()
    before = tree(tmp_path / "storage" / "mine")
    weights = run / "checkpoints/round_000001/model/weights"
    os.utime(weights, ns=(0, 0))  # so that it is copied again
    mirror = Mirror(run, str(tmp_path / "storage"))

    def cut_off(of: Callable[..., None]) -> Callable[..., None]:
        def write(source: Any, target: str) -> None:
            if half in target:
                Path(target).write_bytes(b"half")
                raise KeyboardInterrupt
            of(source, target)

        return write

    monkeypatch.setattr(mirror, "copy_file", cut_off(mirror.copy_file))
    monkeypatch.setattr(mirror, "write_json", cut_off(mirror.write_json))
    with pytest.raises(KeyboardInterrupt):
        mirror.push()
    found = tree(tmp_path / "storage" / "mine")
    assert [name for name, text in before.items() if found[name] != text] in ([], [STATE]), "pushes are counted"
    folder, _ = pull(str(tmp_path / "storage" / "mine"), tmp_path / "here")
    assert {**tree(folder), STATE: ""} == {**tree(run), STATE: ""}
    Mirror(folder, str(tmp_path / "storage"))


def test_a_dry_run_fetches_nothing(run: Path, tmp_path: Path, run_main: RunMain) -> None:
    Mirror(run, str(tmp_path / "storage")).push()
    there = f"{tmp_path}/storage/mine"
    words = ("train", "--dry-run", "--resume", there, "--runs", str(tmp_path / "here"))
    said = run_main(*words, code=2)
    assert "--dry-run: it fetches no run from a storage" in said
    assert not (tmp_path / "here").exists()


def test_a_copy_of_another_run_or_of_a_later_state_is_kept(run: Path, tmp_path: Path) -> None:
    storage = str(tmp_path / "storage")
    Mirror(run, storage).push()
    shutil.copytree(run, tmp_path / "earlier" / "mine")
    Mirror(run, storage).push()
    other = tmp_path / "other" / "mine"
    other.mkdir(parents=True)
    (other / "metrics.jsonl").write_text("theirs\n", encoding="utf-8")
    before = tree(tmp_path)
    for folder in (other, tmp_path / "earlier" / "mine"):
        with (
            pytest.raises(UserError, match=f"mine is a copy of another folder than {folder}, or of a later state"),
            mirrored(folder, storage, print),
        ):
            pass
    assert tree(tmp_path) == before
    pulled, _ = pull(f"{storage}/mine", tmp_path / "elsewhere")
    Mirror(pulled, storage).push()
    with pytest.raises(UserError, match="or of a later state"):
        Mirror(run, storage)
    shutil.rmtree(tmp_path / "storage/mine/checkpoints")  # so that pushes fail
    (tmp_path / "storage/mine/checkpoints").write_text("in the way", encoding="utf-8")
    for _ in range(3):
        with pytest.raises(SealError, match="cannot be written"):
            Mirror(pulled, storage).push()
    with pytest.raises(UserError, match="or of a later state"):
        Mirror(run, storage)
    (tmp_path / "storage/mine" / STATE).write_text("[]", encoding="utf-8")
    with pytest.raises(UserError, match=r"storage.json cannot be read \(it has no pushes"):
        Mirror(pulled, storage)


def test_the_folder_before_is_refused_after_the_first_file_of_another_push(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Mirror(run, str(tmp_path / "storage")).push()
    pulled, storage = pull(str(tmp_path / "storage/mine"), tmp_path / "elsewhere")
    (pulled / "config.yaml").write_text("new", encoding="utf-8")
    copy_file, copied = Mirror.copy_file, list[Path]()

    def cut_off(mirror: Mirror, path: Path, target: str) -> None:
        if copied:
            raise KeyboardInterrupt
        copied.append(path)
        copy_file(mirror, path, target)

    monkeypatch.setattr(Mirror, "copy_file", cut_off)
    with pytest.raises(KeyboardInterrupt):
        Mirror(pulled, storage).push()
    with pytest.raises(UserError, match="or of a later state"):
        Mirror(run, storage)


@pytest.mark.parametrize(
    ("storage", "sentence"),
    [
        *((storage, "names no place") for storage in ("s3://", "gs://", "file:///", "s3://?region=x", "")),
        ("nowhere://a", "--storage: nowhere://a/mine names no storage"),
        (__file__, "cannot be written"),
    ],
)
def test_what_is_no_storage_is_refused(
    storage: str, sentence: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path)
    assert sentence in refusal(Mirror, run, storage)
    assert tree(tmp_path) == before


OPEN = "s3://bucket/runs?scheme=http&endpoint_override=127.0.0.1:1&region=keys"


@pytest.mark.parametrize(
    "storage",
    [
        *("s3://KEY:SECRET@bucket/runs", "s3://SECRET@bucket", "s3://KEY:SECR/ET@bucket", "s3://KEY:/SECRET@bucket"),
        *("gs://anonymous:SECRET@bucket", "abfs://container:SECRET@account.dfs.core.windows.net/runs", "s3://:SECRET@"),
        *(f"{OPEN}&secret_key=SECRET", f"{OPEN}&Access_Token=SECRET", f"{OPEN}&sig=SECRET", f"{OPEN}&other=SECRET"),
        "s3://bucket?secret%5Fkey=SECRET",
    ],
)
def test_a_key_in_a_storage_is_refused_and_not_repeated(storage: str, run: Path, tmp_path: Path) -> None:
    for said in (refusal(Mirror, run, storage), refusal(pull, storage, tmp_path / "here")):
        assert "SECRET" not in said
        assert "KEY:" not in said


def test_what_no_push_has_written_stays(run: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "storage/mine/sub/thesis.tex"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("precious", encoding="utf-8")
    with pytest.raises(UserError, match=r"/mine exists; give another name or place"):
        Mirror(run, str(tmp_path / "storage"), new=True)
    Mirror(run, str(tmp_path / "storage")).push()
    (run / "metrics.jsonl").unlink()
    Mirror(run, str(tmp_path / "storage")).push()
    assert theirs.read_text("utf-8") == "precious"
    assert not (tmp_path / "storage/mine/metrics.jsonl").exists(), "what an earlier process has pushed is known"


@pytest.mark.parametrize("at", ["copy_file", "write_json", "remove_files"])
def test_what_a_push_that_was_killed_has_left_is_removed(
    at: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, weights = tmp_path / "storage", run / "checkpoints/round_000001/model/weights"
    later = run / "checkpoints/round_000002/model/weights"

    def killed(self: Mirror, *arguments: Any) -> None:
        if at == "copy_file":
            Path(arguments[1]).write_text("half", encoding="utf-8")
        raise KeyboardInterrupt

    def push_killed() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Mirror, at, killed)
            with pytest.raises(KeyboardInterrupt):
                Mirror(run, str(storage)).push()

    if at != "remove_files":  # of which a first push has none
        push_killed()
    Mirror(run, str(storage)).push()
    weights.unlink()
    later.parent.mkdir(parents=True)
    later.write_text("two", encoding="utf-8")
    push_killed()
    later.unlink()
    Mirror(run, str(storage)).push()
    assert set(tree(storage / "mine")) == {"metrics.jsonl", STATE, LIST, OWN}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of an S3 server on this machine."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anyone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    port = free_port()
    with server(port, "moto_server", "-p", str(port)):
        endpoint = f"?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"
        system, bucket = fs.FileSystem.from_uri(f"s3://bucket{endpoint}&allow_bucket_creation=true")
        system.create_dir(bucket)
        yield f"s3://bucket/runs{endpoint}"


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The same for Google's storage."""
    port = free_port()
    monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://127.0.0.1:{port}")
    start = ("start", "--port", str(port), "--in-memory", "--default-bucket", "bucket")
    with server(port, "gcp-storage-emulator", *start):
        yield "gs://anonymous@bucket/runs"


@contextmanager
def server(port: int, command: str, *arguments: str) -> Iterator[None]:
    """A server that a command of this environment starts, once it answers."""
    program = [str(Path(sys.executable).with_name(command)), *arguments]
    process = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_answer(f"http://127.0.0.1:{port}/", process)
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("kind", ["s3", "gcs"])
def test_clouds_are_as_folders(kind: str, run: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    storage: str = request.getfixturevalue(kind)
    mirror = Mirror(run, storage, new=True)
    mirror.push()
    (run / "checkpoints/round_000001/model/weights").unlink()
    (run / "metrics.jsonl").write_text("{}\n{}\n", encoding="utf-8")
    mirror.push()
    folder, found = pull(mirror.uri, tmp_path / "elsewhere")
    assert found == storage
    assert folder == tmp_path / "elsewhere" / "mine"
    assert tree(folder) == tree(run)
    assert set(tree(run)) == {"metrics.jsonl", STATE}
    with pytest.raises(UserError, match="exists; resume it with --resume"):
        Mirror(run, storage, new=True)
    with pytest.raises(UserError, match="cannot be written") as error:
        Mirror(run, storage.replace("bucket/", "other-bucket/")).push()
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="has no readable run"):
        pull(mirror.uri.replace("mine", "theirs"), tmp_path / "elsewhere")
