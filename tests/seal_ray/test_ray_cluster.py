"""`ray job submit --working-dir . -- seal-ray train …` and `serve deploy` on a cluster of `ray start --head`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml  # type: ignore[import-untyped]

from tests.processes import free_port, kill_all, tree, wait_for_answer
from tests.readme import ROOT, example

pytestmark = pytest.mark.long

BIN = Path(sys.executable).parent
# Ray asks for a token wherever its user has one, and its commands then want to be told to send it.
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{BIN}:{os.environ['PATH']}",
    "RAY_ADDRESS": "",
    "RAY_AUTH_MODE": "disabled",
    "SEAL_RAY_API_KEY": "sesame",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of its own: the address of its dashboard, which takes jobs and applications."""
    dashboard = free_port()
    said = tmp_path_factory.mktemp("cluster") / "head.log"
    log = said.open("w")
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
    try:
        wait_for_answer(f"{address}/api/version", process)
    except AssertionError as error:
        error.add_note(said.read_text())
        raise
    yield address
    kill_all(tree(process.pid))  # `ray stop` would end other clusters of this machine too
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


def test_an_application_is_deployed_and_answers_who_has_the_key(cluster: str, tmp_path: Path) -> None:
    text, port = (ROOT / "docs/examples/serve.yaml").read_text("utf-8"), free_port()
    assert text.count("port: 8000") == 1
    file = tmp_path / "serve.yaml"
    file.write_text(text.replace("port: 8000", f"port: {port}"), "utf-8")
    words = example("serve", "deploy", "docs/examples/serve.yaml", but={"docs/examples/serve.yaml": str(file)})
    done = subprocess.run(
        [BIN / "serve", *words, "--address", cluster], capture_output=True, text=True, check=False, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    deadline = time.monotonic() + 300
    while (answer := ask(port, ENVIRONMENT["SEAL_RAY_API_KEY"])) is None or answer.status_code != 200:
        assert time.monotonic() < deadline, answer and answer.text
        time.sleep(1)
    assert answer.json()["choices"][0]["message"]["role"] == "assistant"
    refused = ask(port, "wrong")
    assert refused is not None
    assert refused.status_code == 401


def ask(port: int, key: str) -> httpx.Response | None:
    """What the deployed solver says to a word; None where nothing listens yet."""
    chat = {"model": "solver", "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 4}
    try:
        return httpx.post(
            f"http://127.0.0.1:{port}/v1/chat/completions",
            json=chat,
            headers={"Authorization": f"Bearer {key}"},
            timeout=60,
        )
    except httpx.TransportError:
        return None


@pytest.mark.parametrize("name", ["cluster-one-node.yaml", "cluster-nodes.yaml"])
def test_the_files_of_clusters_are_valid(name: str) -> None:
    """As `ray up` checks them, before it asks for machines."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(yaml.safe_load((ROOT / "docs" / "examples" / name).read_text("utf-8"))))
