"""A cluster that a command starts is closed to other machines and other users, and its commands leak no secret."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.processes import PROGRAM, read_until, tree
from tests.watched import SECRETS, has_secret, open_addresses, watch

pytestmark = pytest.mark.long

CLUSTER = """
import sys, ray
from seal_ray.run.cluster import connected

with connected():
    worker = ray.remote(type("Worker", (), {"ready": lambda self: True})).remote()
    assert ray.get(worker.ready.remote())
    print("ready", flush=True)
    if sys.stdin.readline() == "fail":
        raise SystemError
"""
ONLY_BY_SECRETS = pytest.mark.only_by(target="secrets")

SMALL = (
    *("training.rounds=1", "training.groups=2", "training.group_size=2", "training.minibatch_groups=1"),
    *("evaluation.interval=0", "engine.kind=transformers", "learners.num_learners=2", "learners.threads=1"),
    *("engine.num_cpus_per_engine=0", "env_runners.num_cpus_per_env_runner=0"),
)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A temporary folder with a short name, as the paths of sockets must be."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        yield Path(folder)


def start(program: str, *arguments: str, temporary: Path, **variables: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**environment, "TMPDIR": str(temporary), **variables},
    )


@pytest.mark.parametrize("fails", [False, pytest.param(True, marks=ONLY_BY_SECRETS)])
def test_only_this_user_on_this_machine_reaches_it(fails: bool, temporary: Path) -> None:
    process = start(CLUSTER, temporary=temporary)
    read_until(process, "ready")
    pids = tree(process.pid)
    assert not open_addresses(pids)
    assert len(pids) > 5

    (folder,) = temporary.glob("ray-*")
    token = Path(psutil.Process(pids[-1]).environ()["RAY_AUTH_TOKEN_PATH"])
    assert token.parent == folder
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, token)] == [0o700, 0o600]
    sockets = {each.laddr for pid in pids for each in psutil.Process(pid).net_connections("unix") if each.laddr}
    assert {str(folder) in str(each) for each in sockets if "ray" in str(each)} == {True}, sockets

    process.communicate("fail" if fails else "")
    assert folder.exists() == fails, "a fault keeps Ray's logs"


@ONLY_BY_SECRETS
def test_a_long_temporary_folder_is_no_obstacle(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 60)
    long.mkdir()
    process = start(CLUSTER, temporary=long)
    said, _ = process.communicate("")
    assert (process.returncode, said.endswith("ready\n")) == (0, True), said


TRAIN = ("train", *SMALL, "--name", "run", "--wandb", "offline", "--runs", "RUNS", "--storage", "RUNS/storage")
EXAM = (
    *("exam", "tiny", "--suite", "bfcl-v3-single-turn", "--limit", "2"),
    *("--engine", "transformers", "--out", "RUNS/exam"),
)
SWEEP = (
    *("sweep", *SMALL, "learners.num_learners=1", "curator.kind=none", "evaluation.interval=1", "evaluation.tasks=2"),
    *("--trials", "1", "--scheduler", "none", "--name", "sweep", "--runs", "RUNS"),
)


@pytest.mark.parametrize(
    "words",
    [pytest.param(TRAIN, marks=ONLY_BY_SECRETS), EXAM, pytest.param(SWEEP, marks=ONLY_BY_SECRETS)],
    ids=["train", "exam", "sweep"],
)
def test_a_command_leaks_no_secret_and_is_closed(words: Sequence[str], temporary: Path, tmp_path: Path) -> None:
    process = start(
        PROGRAM[2], *(each.replace("RUNS", str(tmp_path)) for each in words), temporary=temporary, **SECRETS
    )
    assert watch(process, temporary, tmp_path) == (set(), set())
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert not has_secret(said)
    assert (words is not TRAIN) or list((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
