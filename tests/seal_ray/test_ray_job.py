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
import yaml  # type: ignore[import-untyped]

from tests.processes import tree
from tests.readme import ROOT, example

pytestmark = pytest.mark.long

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


def submit(cluster: str, name: str, runs: Path, storage: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    """The README's job, with the small model, this cluster and folders of this machine."""
    places = {"s3://BUCKET/runs": f"file://{storage}", "qwen2.5-7b": "tiny", "first": name, "…": "none"}
    _, submitted, *words = example("ray", "job", "submit", but=places)
    variables = words.index("--runtime-env-json") + 1
    words[variables] = json.dumps({"env_vars": json.loads(words[variables])["env_vars"] | {"SEAL_RAY_RUNS": str(runs)}})
    return ray_job(submitted, "--address", cluster, "--submission-id", name, *words, "--wandb", "off", *settings)


def test_a_submitted_job_trains_and_leaves_its_artefacts_on_a_storage(cluster: str, tmp_path: Path) -> None:
    small = (
        "training.rounds=1 training.groups=2 training.group_size=2 training.minibatch_groups=1 evaluation.interval=0"
    )
    runs, storage = tmp_path / "runs", tmp_path / "storage"
    found = submit(cluster, "one", runs, storage, *small.split())
    assert found.returncode == 0, found.stdout + found.stderr
    assert "round 1/1: success" in found.stdout
    logs = ray_job("logs", "--address", cluster, "one")
    assert "round 1/1: success" in logs.stdout
    for folder in (runs / "one", storage / "one"):
        (row,) = map(json.loads, (folder / "metrics.jsonl").read_text("utf-8").splitlines())
        assert row["solver/rollouts"] == 4
        assert (folder / "checkpoints/round_000001/model/model.safetensors").stat().st_size > 1_000_000
        assert (folder / "curves.png").stat().st_size > 10_000

    mistaken = submit(cluster, "other", runs, storage, "training.round=1")
    assert mistaken.returncode != 0
    assert "did you mean 'rounds'" in mistaken.stdout
    assert not (runs / "other").exists()


@pytest.mark.parametrize("name", ["cluster-one-node.yaml", "cluster-nodes.yaml"])
def test_the_files_of_clusters_are_valid(name: str) -> None:
    """As `ray up` checks them, before it asks for machines."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(yaml.safe_load((ROOT / "docs" / "examples" / name).read_text("utf-8"))))
