"""Mirrors of run folders in the clouds' storages, as servers on this machine play them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow import fs  # type: ignore[import-untyped]

from envs.errors import UserError
from seal_ray.run.storage import STATE, Mirror, pull
from tests.processes import free_port, wait_for_answer
from tests.seal_ray.test_storage import run, tree

__all__ = ["run"]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of a server on this machine that speaks S3."""
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
