"""The commands of docs/jobs.md, word for word, and `serve deploy`, on a cluster of this machine.

Its user has used Ray before: there is a token in their home, and nothing is said about it but what the page says.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped]
import pytest

from tests.processes import free_port, kill_all, tree, wait_for_answer
from tests.readme import ROOT, example
from tests.watched import SECRETS, has_secret, leaking_commands, leaking_files

pytestmark = pytest.mark.long

BIN = Path(sys.executable).parent
PAGE = (ROOT / "docs" / "jobs.md").read_text("utf-8")
KEY = SECRETS["SEAL_RAY_API_KEY"]


def lines_of(page: str) -> list[str]:
    """The commands of a page, each as it stands there."""
    blocks = re.findall(r"```\n(.*?)```", page, re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.strip() and not line.startswith("#")]


def on_page(*words: str) -> str:
    """The one command of the page that begins with these words."""
    (line,) = [each for each in lines_of(PAGE) if each.split()[: len(words)] == list(words)]
    return line


@dataclass(frozen=True)
class Cluster:
    """A cluster of its own, and a shell in which the page's first commands were run."""

    address: str
    port: int
    environment: dict[str, str]
    folder: Path

    @contextmanager
    def node(self) -> Iterator[subprocess.Popen[bytes]]:
        """Another node on this machine, of which all processes are killed at the end."""
        exports = [line for line in lines_of(PAGE) if line.startswith("export ")]
        start = f"exec ray start --block --address=127.0.0.1:{self.port} --num-cpus=4 --disable-usage-stats"
        start += f" --object-store-memory=200000000 --dashboard-agent-listen-port={free_port()}"
        with TemporaryDirectory(prefix="ray") as own:  # two nodes must not unpack a job's files into one folder
            command = ["bash", "-c", "\n".join([*exports, f"{start} --temp-dir={own}"])]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=self.environment)
            try:
                yield process
            finally:
                kill_all(tree(process.pid))
                process.wait()

    def run(self, command: str, **settings: Any) -> subprocess.CompletedProcess[str]:
        """Runs a command in a new shell of the project's folder, behind what the page says for every shell."""
        exports = [line for line in lines_of(PAGE) if line.startswith("export ")]
        return subprocess.run(
            ["bash", "-c", "\n".join([*exports, command])],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
            env=self.environment,
            **settings,
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    dashboard = free_port()
    home = tmp_path_factory.mktemp("home")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(home),
        **SECRETS,
    }
    (home / ".seal-ray-key").write_text(KEY, "ascii")
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    found = Cluster(f"http://127.0.0.1:{dashboard}", free_port(), environment, folder)
    made = found.run(on_page("ray", "get-auth-token"))
    assert made.returncode == 0, made.stderr
    assert (home / ".ray" / "auth_token").is_file()
    said = tmp_path_factory.mktemp("cluster") / "head.log"
    start = on_page("ray", "start", "--head").partition("#")[0]
    options = [
        *("--block", "--num-cpus=4", f"--port={found.port}", f"--dashboard-port={dashboard}"),
        # A folder of its own: Ray notes the newest cluster of a folder there, for others to join. Its name is
        # short, as those of sockets in it must be.
        *(f"--temp-dir={folder}", "--disable-usage-stats"),
        # The agent that takes jobs does not come up where another cluster's already listens at the usual port.
        f"--dashboard-agent-listen-port={free_port()}",
    ]
    with said.open("w") as log:
        # Not behind the page's export: with a token at hand Ray asks for it by itself.
        process = subprocess.Popen(
            ["bash", "-c", f"exec {start} {' '.join(options)}"],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            wait_for_answer(f"{found.address}/api/version", process)
        except AssertionError as error:
            error.add_note(said.read_text())
            raise
        yield found
        kill_all(tree(process.pid))  # `ray stop` would end other clusters of this machine too
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)


def ray_job(cluster: Cluster, command: str) -> subprocess.CompletedProcess[str]:
    """One of the page's commands for jobs, tried again until the agent that takes jobs is there."""
    command = command.replace("http://127.0.0.1:8265", cluster.address)
    deadline = time.monotonic() + 90
    while True:
        found = cluster.run(command)
        if "No available agent" not in found.stderr or time.monotonic() > deadline:
            return found
        time.sleep(2)


def submit(cluster: Cluster, name: str, runs: Path, storage: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    """The page's job, with the small model, and with folders and a name of the test's."""
    command = on_page("ray", "job", "submit", "--address", "http://127.0.0.1:8265", "--submission-id")
    places = {
        "s3://BUCKET/runs": f"file://{storage}",
        "/shared/runs": str(runs),
        "qwen2.5-7b": "tiny",
        "--submission-id first": f"--submission-id {name}",
        "--name first": f"--name {name}",
    }
    for stand_in, other in places.items():
        assert stand_in in command, stand_in
        command = command.replace(stand_in, other)
    return ray_job(cluster, " ".join([command, "--wandb off", *settings]))


@pytest.mark.only_by(target="rehearse")
def test_a_submitted_job_trains_and_leaves_its_artefacts_on_a_storage(cluster: Cluster, tmp_path: Path) -> None:
    small = (
        "training.rounds=1 training.groups=2 training.group_size=2 training.minibatch_groups=1 evaluation.interval=0 "
        "engine.kind=transformers"
    )
    runs, storage = tmp_path / "runs", tmp_path / "storage"
    found = submit(cluster, "one", runs, storage, *small.split())
    assert found.returncode == 0, found.stdout + found.stderr
    assert "round 1/1: success" in found.stdout
    logs = ray_job(cluster, on_page("ray", "job", "logs").partition("#")[0].replace("first", "one"))
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
    assert_no_key_is_left(cluster, "/api/jobs/")


@pytest.mark.only_by(target="rehearse")
def test_a_job_outlives_a_node_that_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    """The run needs both nodes: an engine takes 3 of 4 CPUs. No rollout is lost or counts twice."""
    rounds, rollouts = 6, 8
    settings = (
        f"training.rounds={rounds} training.groups=4 training.group_size=2 training.minibatch_groups=2 "
        "evaluation.interval=0 engine.kind=transformers engine.num_engines=2 engine.num_cpus_per_engine=3 "
        "env_runners.num_env_runners=1 env_runners.num_cpus_per_env_runner=0.5"
    )
    metrics = tmp_path / "runs" / "split" / "metrics.jsonl"

    def played() -> list[dict[str, Any]]:
        return [json.loads(line) for line in metrics.read_text("utf-8").splitlines()] if metrics.is_file() else []

    with ThreadPoolExecutor(1) as threads:
        with cluster.node():
            job = threads.submit(submit, cluster, "split", tmp_path / "runs", tmp_path / "storage", *settings.split())
            while len(played()) < 2:
                assert not job.done(), job.result().stdout + job.result().stderr
                time.sleep(0.5)
            before = len(played())
        with cluster.node():
            found = job.result(timeout=400)
    assert found.returncode == 0, found.stdout + found.stderr
    rows = played()
    assert before < rounds
    assert [row["round"] for row in rows] == list(range(1, rounds + 1))
    assert [row["solver/rollouts"] for row in rows] == [rollouts] * rounds
    assert [row["diagnosis/faults"] for row in rows] == [0] * rounds
    assert rows[-1]["perf/engine_restarts"] == 1


@pytest.mark.only_by(target="rehearse")
def test_an_application_is_deployed_and_answers_who_has_the_key(cluster: Cluster, tmp_path: Path) -> None:
    text, port = (ROOT / "docs/examples/serve.yaml").read_text("utf-8"), free_port()
    assert text.count("port: 8000") == 1
    file = tmp_path / "serve.yaml"
    file.write_text(text.replace("port: 8000", f"port: {port}"), "utf-8")
    words = example("serve", "deploy", "docs/examples/serve.yaml", but={"docs/examples/serve.yaml": str(file)})
    done = cluster.run(shlex.join(["serve", *words, "--address", cluster.address]))
    assert done.returncode == 0, done.stdout + done.stderr
    deadline = time.monotonic() + 300
    while (answer := ask(port, KEY)) is None or answer.status_code != 200:
        assert time.monotonic() < deadline, answer and answer.text
        time.sleep(1)
    assert answer.json()["choices"][0]["message"]["role"] == "assistant"
    refused = ask(port, "wrong")
    assert refused is not None
    assert refused.status_code == 401
    assert_no_key_is_left(cluster, "/api/serve/applications/")


def assert_no_key_is_left(cluster: Cluster, path: str) -> None:
    """In logs, command lines, or what the server of jobs says of this."""
    token = Path(cluster.environment["HOME"], ".ray", "auth_token").read_text("ascii")
    answer = httpx.get(f"{cluster.address}{path}", headers={"Authorization": f"Bearer {token}"}, timeout=60)
    assert answer.status_code == 200
    assert "seal" in answer.text
    assert not has_secret(answer.text)
    assert not leaking_files(cluster.folder)
    assert not leaking_commands(psutil.pids())


def ask(port: int, key: str) -> httpx.Response | None:
    """The deployed solver's answer to a word; None if nothing listens yet."""
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
