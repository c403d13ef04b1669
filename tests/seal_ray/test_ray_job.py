"""`ray job submit --working-dir . -- seal-ray train …` on a cluster that was started with `ray start --head`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.processes import tree

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent
# Ray asks for a token wherever its user has one, and its commands then want to be told to send it.
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{BIN}:{os.environ['PATH']}",
    "RAY_ADDRESS": "",
    "RAY_AUTH_MODE": "disabled",
}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A cluster of its own: the address of its job server."""
    dashboard = free_port()
    log = (tmp_path / "head.log").open("w")
    folder = tempfile.mkdtemp(prefix="ray")
    process = subprocess.Popen(
        [
            *(BIN / "ray", "start", "--head", "--block", "--num-cpus=4", f"--port={free_port()}"),
            # A folder of its own: Ray notes the newest cluster of a folder there, for others to join. Its name is
            # short, as those of sockets in it must be.
            *(f"--dashboard-port={dashboard}", f"--temp-dir={folder}", "--disable-usage-stats"),
            # The agent that takes jobs does not come up where another cluster's already listens at the usual port.
            f"--dashboard-agent-listen-port={free_port()}",
        ],
        stdout=log,
        stderr=subprocess.STDOUT,
        env=ENVIRONMENT,
    )
    address = f"http://127.0.0.1:{dashboard}"
    deadline = time.monotonic() + 90
    while True:
        try:
            urllib.request.urlopen(f"{address}/api/version", timeout=2)
            break
        except OSError:
            assert process.poll() is None, (tmp_path / "head.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.5)
    yield address
    for pid in tree(process.pid):  # `ray stop` would end other clusters of this machine too
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    log.close()
    shutil.rmtree(folder, ignore_errors=True)


def ray_job(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`ray job …` in the project's folder, tried again until the agent that takes jobs is there."""
    deadline = time.monotonic() + 90
    while True:
        found = subprocess.run(
            [str(BIN / "ray"), "job", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
            env=ENVIRONMENT,
        )
        if "No available agent" not in found.stderr or time.monotonic() > deadline:
            return found
        time.sleep(2)


def submit(cluster: str, name: str, *settings: str) -> subprocess.CompletedProcess[str]:
    """A job that trains, on a runtime environment with variables of its own."""
    return ray_job(
        *("submit", "--address", cluster, "--submission-id", name, "--working-dir", "."),
        *("--runtime-env-json", json.dumps({"env_vars": {"SEAL_RAY_RUNS": settings[0]}}), "--"),
        *("seal-ray", "train", "--wandb", "off", *settings[1:]),
    )


def test_a_submitted_job_trains_and_leaves_its_artefacts_on_a_storage(cluster: str, tmp_path: Path) -> None:
    small = (
        "training.rounds=1 training.groups=2 training.group_size=2 training.minibatch_groups=1 evaluation.interval=0"
    )
    runs, storage = tmp_path / "runs", tmp_path / "storage"
    found = submit(cluster, "first", str(runs), "--name", "job", "--storage", f"file://{storage}", *small.split())
    assert found.returncode == 0, found.stdout + found.stderr
    assert "round 1/1: success" in found.stdout
    logs = ray_job("logs", "--address", cluster, "first")
    assert "round 1/1: success" in logs.stdout
    for folder in (runs / "job", storage / "job"):
        (row,) = map(json.loads, (folder / "metrics.jsonl").read_text("utf-8").splitlines())
        assert row["solver/rollouts"] == 4
        assert (folder / "checkpoints/round_000001/model/model.safetensors").stat().st_size > 1_000_000
        assert (folder / "curves.png").stat().st_size > 10_000

    mistaken = submit(cluster, "second", str(runs), "--name", "other", "training.round=1")
    assert mistaken.returncode != 0
    assert "did you mean 'rounds'" in mistaken.stdout
    assert not (runs / "other").exists()
