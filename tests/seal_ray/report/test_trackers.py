"""The writers: TensorBoard's events are read back, and wandb can fail in any way without harm. No network."""

import json
import logging
import os
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import wandb

from envs.dialogue import Protocol
from envs.errors import UserError
from envs.trace import Step, Trace
from policies.trajectory import Trajectory
from seal_ray.report import trackers
from seal_ray.report.files import RunFolder
from seal_ray.report.trackers import Trackers
from seal_ray.rollout.types import PLAIN_ARM, GroupPlan
from tests.processes import tree
from tests.seal_ray.rollout.rounds import Solver


def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wandb finds neither a key nor settings of a user."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    offline(tmp_path, monkeypatch)
    return RunFolder(tmp_path / "a_run")


def events(folder: RunFolder) -> Iterator[Any]:
    """All of TensorBoard's events, file by file, in the order written."""
    from tensorboardX.proto.event_pb2 import Event  # type: ignore[import-untyped]

    for path in sorted(folder.tensorboard.iterdir(), key=lambda path: path.stat().st_mtime_ns):
        content, place = path.read_bytes(), 0
        while place < len(content):
            # A record: the length in 8 bytes, its checksum in 4, the event, its checksum in 4.
            (length,) = struct.unpack("<Q", content[place : place + 8])
            yield Event.FromString(content[place + 12 : place + 12 + length])
            place += 16 + length


def scalars(folder: RunFolder) -> list[tuple[int, str, float]]:
    return [
        (event.step, value.tag, round(value.simple_value, 6))
        for event in events(folder)
        for value in event.summary.value
    ]


def processes() -> set[str]:
    """The command lines of the processes that this one has started, at any depth."""
    commands = set()
    for pid in tree(os.getpid())[1:]:
        with suppress(OSError):
            commands.add(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return {command for command in commands if "wandb" in command}


def test_tensorboard_gets_every_round_while_the_run_goes_on(folder: RunFolder) -> None:
    each = Trackers(folder, config={})
    each.write(1, {"solver/success": 0.25, "solver/kl": float("nan"), "evaluation/success/base": 0.5})
    until = time.monotonic() + 20
    while len(scalars(folder)) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert scalars(folder) == [(1, "solver/success", 0.25), (1, "evaluation/success/base", 0.5)]
    each.write(2, {"solver/success": 0.5})
    each.close()
    each.close()
    assert scalars(folder)[2:] == [(2, "solver/success", 0.5)]
    assert not (folder.path / "wandb").exists()
    assert not folder.wandb_id.exists()


def test_a_metric_that_was_not_finite_is_left_out_when_a_run_resumes(folder: RunFolder) -> None:
    folder.metrics.append({"round": 1, "solver/success": 0.5, "evaluation/suite/mine": float("nan")})
    Trackers(folder, config={}).close()
    assert [name for _, name, _ in scalars(folder)] == ["round", "solver/success"]


def test_an_unknown_mode_is_refused_before_anything_is_written(folder: RunFolder) -> None:
    with pytest.raises(UserError, match="wandb: 'onlin' is not known; did you mean 'online'"):
        Trackers(folder, config={}, wandb="onlin")
    assert not folder.tensorboard.exists()


def test_wandb_runs_offline_without_a_key_and_goes_on_under_its_id(folder: RunFolder) -> None:
    each = Trackers(folder, config={"lr": 1e-6, "path": folder.path}, wandb="auto")
    each.write(1, {"solver/success": 0.25})
    assert processes(), "no process of wandb is seen; then its end cannot be seen either"
    assert not folder.wandb_id.exists(), "after a kill, another run gets all rounds"
    each.close()
    name = folder.wandb_id.read_text()
    assert processes() == set()
    time.sleep(1.1)  # wandb names its folders by the second
    again = Trackers(folder, config={}, wandb="offline")
    again.write(2, {"solver/success": 0.375, "solver/kl": float("inf")})
    again.close()
    assert folder.wandb_id.read_text() == name
    assert processes() == set()
    stored = sorted((folder.path / "wandb").glob("offline-run-*/*.wandb"))
    assert {path.name for path in stored} == {f"run-{name}.wandb"}
    content = b"".join(path.read_bytes() for path in stored)
    for text in (b"solver/success", b"0.25", b"0.375"):
        assert text in content
    assert b"solver/kl" not in content


def test_what_the_process_was_started_with_is_not_recorded(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["seal-ray", "train", "--storage", "s3://planted-argument@bucket"])
    for name in ("WANDB_API_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, "planted-variable".ljust(40, "x"))
    each = Trackers(folder, config={"lr": 1e-6}, wandb="offline")
    each.write(1, {"solver/success": 0.25})
    each.close()
    written = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    assert any(path.suffix == ".wandb" for path in written)
    here = Path(__file__).parents[3]
    revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, check=False).stdout.strip()
    for text in (b"planted-argument", b"planted-variable", str(Path.cwd()).encode(), *filter(None, [revision])):
        assert not [path for path, content in written.items() if text in content], text


def test_a_run_that_the_user_has_open_is_left_alone(folder: RunFolder, tmp_path: Path) -> None:
    own = wandb.init(mode="offline", dir=str(tmp_path), settings=wandb.Settings(silent=True, console="off"))
    try:
        each = Trackers(folder, config={}, wandb="offline")
        each.write(1, {"solver/success": 0.25})
        each.close()
        assert wandb.run is own
        assert own.id != folder.wandb_id.read_text()
        own.log({"mine": 1})
    finally:
        own.finish()
        wandb.teardown()


def dialogues() -> list[Trajectory]:
    plans = [GroupPlan(0, "a task", "base", PLAIN_ARM, Protocol("seal"), tuple(range(30)), 1.0)]
    steps = (Step(0, "first"), Step(0, "last \x1b[31m" + "x" * 10_000))
    played = Solver(lambda _: 0.5).play(plans)[0].trajectories
    return [replace(each, trace=Trace(each.task, (steps,))) for each in played]


def test_wandb_gets_dialogues_pictures_and_the_report_page(folder: RunFolder, tmp_path: Path) -> None:
    each = Trackers(folder, config={}, wandb="offline")
    each.write_dialogues(1, dialogues())
    for name in ("curves.png", "report.html", "notes.txt"):
        (folder.path / name).write_text(f"content of {name}")
    each.close()
    (path,) = (folder.path / "wandb").glob("offline-run-*/files/media/table/*.table.json")
    table = json.loads(path.read_text())
    assert table["columns"] == ["task", "arm", "reward", "label", "last text"]
    assert len(table["data"]) == 16, "a sample"
    for task, arm, reward, label, text in table["data"]:
        assert (task, arm, label) == ("a task", "plain", "pass" if reward else "state_mismatch")
        assert text.startswith("last \\x1b[31mxxx")
        assert len(text) < 2100
    (log,) = (folder.path / "wandb").glob("offline-run-*/*.wandb")
    staged = {path.read_text() for path in (tmp_path / "data").rglob("*") if path.is_file()}
    for name in ("curves.png", "report.html"):
        assert name.encode() in log.read_bytes()
        assert f"content of {name}" in staged
    assert b"notes.txt" not in log.read_bytes()


def wandb_run(fails: str = "") -> Mock:
    """A wandb run in which this call fails."""
    run = Mock(id="an-id")
    call = {"log": run.log, "artifact": run.log_artifact, "finish": run.finish}.get(fails, Mock())
    call.side_effect = RuntimeError("no room")
    return run


@pytest.mark.parametrize("fails", ["start", "log", "artifact", "finish"])
def test_a_failure_of_wandb_is_said_once_and_harms_nothing(
    fails: str, folder: RunFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started = RuntimeError("no key") if fails == "start" else [wandb_run(fails)]
    monkeypatch.setattr(wandb, "init", Mock(side_effect=started))
    with caplog.at_level(logging.WARNING, logger=trackers.__name__):
        each = Trackers(folder, config={}, wandb="offline")
        each.write(1, {"solver/success": 0.25})
        each.write(2, {"solver/success": 0.5})
        folder.curves.write_bytes(b"a picture")
        each.close()
    assert scalars(folder) == [(1, "solver/success", 0.25), (2, "solver/success", 0.5)]
    (message,) = caplog.messages
    assert message.startswith(f"wandb: {fails} failed (RuntimeError: no ")


@pytest.mark.parametrize(
    ("environment", "lines", "mode"),
    [
        ({}, "", "offline"),
        ({"WANDB_API_KEY": "a" * 40}, "", "online"),
        ({}, "machine {host} login user password " + "a" * 40, "online"),
        ({}, "machine elsewhere.example login user password secret", "offline"),
        ({"WANDB_BASE_URL": "https://wandb.example:8443"}, "machine wandb.example login u password p", "online"),
    ],
)
def test_auto_is_online_where_a_key_is_found(
    environment: dict[str, str], lines: str, mode: str, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = wandb.Settings().base_url.removeprefix("https://")
    Path(os.environ["NETRC"]).write_text(lines.format(host=host) + "\n" if lines else "")
    Path(os.environ["NETRC"]).chmod(0o600)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    init = Mock(return_value=wandb_run())
    monkeypatch.setattr(wandb, "init", init)
    Trackers(folder, config={"lr": float("nan"), "path": Path("a")}, wandb="auto").close()
    options = init.call_args.kwargs
    assert (options["mode"], options["project"], options["name"]) == (mode, "seal-ray", "a_run")
    assert (options["id"], options["dir"]) == (folder.wandb_id.read_text(), str(folder.path))
    assert options["config"] == {"lr": None, "path": "a"}
