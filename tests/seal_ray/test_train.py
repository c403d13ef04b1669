"""`seal-ray train` as its user meets it: one sentence for a mistake; stopped, killed and resumed, the same run."""

import json
import math
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from envs.errors import SealError, UserError
from seal_ray.algorithm.config import SealConfig, make_config
from seal_ray.algorithm.memory_estimate import Available
from seal_ray.report.files import RunFolder
from seal_ray.run.cluster import ClusterNotStarted, connected
from tests.command_line import Refusal, RunMain
from tests.processes import PROGRAM, read_until, seal_ray
from tests.readme import example
from tests.seal_ray.inspect_reader import read_by_inspect

pytestmark = pytest.mark.long

ROUNDS = 6
SMALL = (
    *("training.groups=3", "training.group_size=4", "training.minibatch_groups=2", f"training.rounds={ROUNDS}"),
    *("training.checkpoint_every=3", "training.warm_up=0", "training.kl=0.0", "engine.concurrent=12"),
    "learners.threads=1",
    *("evaluation.interval=2", "evaluation.tasks=4"),
)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["training.round=3"], "did you mean 'rounds'"),
        (["evaluation.split=train"], "tasks are trained on"),
        (["--config", "/nowhere.yaml"], "cannot be read"),
        (["--resume", "/nowhere"], "is no run"),
        (["--resume", "/nowhere", "training.lr=1.0"], "training.lr is the run's own; only places can change"),
        (["--wandb", "maybe"], "'maybe' is not known"),
        (["solver.temperature=0.005"], "solver.temperature: 0.005"),
        (["evaluation.temperature=0.5"], "evaluation during training is greedy"),
        (["engine.num_engines=400"], "memory: the run needs at least"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_started(
    arguments: list[str], sentence: str, check_refused: Refusal
) -> None:
    check_refused("train", *arguments, sentence=sentence)


def test_a_cluster_that_cannot_be_joined_is_one_sentence_too(tmp_path: Path) -> None:
    said = seal_ray("train", cwd=tmp_path, code=2, RAY_ADDRESS="nonsense")
    assert said.startswith("error: RAY_ADDRESS: the cluster at nonsense cannot be joined")
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [None, "token"])
def test_a_cluster_that_gives_no_answer_may_ask_for_a_token(mode: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: Any) -> None:
        raise ConnectionError("Failed to connect.\nMore.")

    monkeypatch.setattr("ray.init", init)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setenv("RAY_BACKEND_LOG_LEVEL", "fatal")  # which is set, and ends with the test
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    if mode:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    with pytest.raises(UserError) as found, connected():
        pass
    hint = "" if mode else "; if it requires a token, export RAY_AUTH_MODE=token"
    assert str(found.value) == f"RAY_ADDRESS: the cluster at 10.0.0.1:6379 cannot be joined (Failed to connect.){hint}."


@pytest.mark.parametrize(("failures", "starts"), [(0, 1), (2, 3), (3, 3)])
def test_ray_gets_several_attempts_to_start_on_a_busy_machine(
    failures: int, starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[Any] = []

    def init(**settings: Any) -> None:
        attempts.append(settings)
        if len(attempts) <= failures:
            raise Exception("The current node timed out\nduring startup.")  # as Ray raises it

    monkeypatch.setattr("ray.init", init)
    monkeypatch.setattr("ray.shutdown", lambda: None)  # other tests use this process's cluster
    for name in ("RAY_ADDRESS", "RAY_worker_niceness", "RAY_gcs_server_port_wait_time_s"):
        monkeypatch.setenv(name, "")  # which may be set, and end with the test
        monkeypatch.delenv(name)
    failed = pytest.raises(ClusterNotStarted, match=r"in 3 attempts \(The current node timed out during startup.\)")
    with failed if failures == 3 else nullcontext(), connected() as is_own:
        assert is_own
    assert len(attempts) == starts


def test_dry_run_of_a_large_model_needs_neither_its_weights_nor_this_machine(
    monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("no hub is contacted"))
    monkeypatch.setattr("seal_ray.algorithm.memory_estimate.available", lambda: Available(8 << 30))
    said = run_main("train", "--dry-run", "--preset", "qwen2.5-7b", "--preset", "seal")
    assert "reference policy" in said
    assert "not on this machine: memory: the run needs at least" in said


def test_dry_run_shows_config_agents_placement_and_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ("training.lr=2e-4", "environment.split_scheme='runs/x[/y]'")
    said = run_main("train", "--dry-run", "--preset", "llm-frozen", *settings)
    assert "lr: 0.0002" in said
    assert "split_scheme: runs/x[/y]" in said
    assert re.search(r"│ solver +│ tiny +│ none +│ 1 auto +│ 0.0002 +│", said)
    assert re.search(r"│ curator +│ tiny +│ none +│ .* +│ frozen +│", said)
    assert "engine cache" in said
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_from_scratch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    begun: list[tuple[object, ...]] = []

    def train(config: SealConfig, folder: RunFolder, *, resume: Path | None, **_: Any) -> int:
        begun.append((config.seed, folder.path, resume))
        (folder.checkpoints / "round_000001").mkdir(parents=True)
        return 1

    monkeypatch.setattr("seal_ray.run.recorder.train", train)
    monkeypatch.setattr("seal_ray.run.cluster.connected", nullcontext)
    monkeypatch.setattr("seal_ray.run.cluster.wait_until_it_fits", lambda *_: None)
    RunFolder(tmp_path).write_config({"seed": 7, **make_config().to_sections()})
    said = run_main("train", "--resume", str(tmp_path))
    assert "no checkpoint in" in said
    assert "starting from scratch" in said
    assert begun == [(7, tmp_path, None)]


@pytest.mark.parametrize(("faults", "code"), [(1, 0), (2, 1)])
def test_after_a_fault_it_resumes_from_the_newest_checkpoint_by_itself(
    faults: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    begun: list[Path | None] = []

    def train(_: SealConfig, folder: RunFolder, *, resume: Path | None, **__: Any) -> int:
        begun.append(resume)
        checkpoints = [folder.checkpoints / f"round_{number:06d}" for number in range(1, len(begun) + 1)]
        for name in ("algorithm", "model"):
            (checkpoints[-1] / name).mkdir(parents=True)
        if len(begun) <= faults:
            raise SealError("the learner died\nof a lost node")
        return 9

    monkeypatch.setattr("seal_ray.run.recorder.train", train)
    monkeypatch.setattr("seal_ray.run.cluster.connected", nullcontext)
    monkeypatch.setattr("seal_ray.run.cluster.wait_until_it_fits", lambda *_: None)
    said = run_main("train", "--name", "it", "--runs", str(tmp_path), "--max-restarts", "1", code=code)
    assert begun == [None, tmp_path / "it" / "checkpoints" / "round_000001"]
    assert "died of a lost node" in " ".join(said.split())
    assert code or "restarting, 0 more restarts are left" in said


START = (*example("seal-ray", "train", "training.rounds=10"), "--name", "whole", "--seed", "3", *SMALL)
RESUME = example("seal-ray", "train", "--resume", but={"NAME": "whole"})


def start(folder: Path, *arguments: str, cluster: str = "local") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, *arguments, "--wandb", "off"],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "RAY_ADDRESS": cluster},
    )


def done(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=400)
    assert process.returncode == 0, said
    return said


def tokens_of(run: Path, number: int) -> list[Sequence[int]]:
    with ZipFile(run / "logs" / f"round_{number:06d}.eval") as log:
        return [json.loads(log.read(name))["token_ids"] for name in log.namelist() if name.startswith("tokens/")]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a whole small run on vLLM, and its log."""
    folder = tmp_path_factory.mktemp("train")
    (folder / "log.txt").write_text(done(start(folder, *START)), "utf-8")
    return folder / "runs" / "whole"


def test_a_run_shows_its_progress_and_leaves_everything_behind(undisturbed: Path) -> None:
    said = (undisturbed.parent.parent / "log.txt").read_text("utf-8")
    for words in ("round 1/6: success", "tokens/s", "left", "evaluation, plain interface", "report: runs/whole"):
        assert words in said
    rows = RunFolder(undisturbed).metrics.rows()
    assert [row["round"] for row in rows] == list(range(ROUNDS + 1))
    assert [row["round"] for row in rows if "evaluation/success" in row] == [0, 2, 4, 6]
    for row in rows[1:]:
        assert row["solver/rollouts"] == 12
        if "solver/steps" in row:
            assert row["solver/ratio_first"] == pytest.approx(1.0, abs=1e-4)
            assert row["solver/ratio_first_error"] < 1e-4
    assert (undisturbed / "curves.png").stat().st_size > 10_000
    left = {path.name for path in undisturbed.iterdir()}
    assert left >= {"config.yaml", *(f"{name}.jsonl" for name in ("evaluations", "interfaces", "profiles"))}
    assert left >= {"tensorboard", "logs"}
    logs = read_by_inspect(undisturbed / "logs")
    assert {name: log["samples"] for name, log in logs.items()} == {
        **{f"round {number}": 12 for number in range(1, ROUNDS + 1)},
        **{f"evaluation {row['round']}": row["evaluation/dialogues"] for row in rows if "evaluation/success" in row},
    }
    assert logs["evaluation 6"]["accuracy"] == pytest.approx(rows[-1]["evaluation/success"])
    assert [path.name for path in sorted((undisturbed / "checkpoints").iterdir())] == ["round_000003", "round_000006"]
    states = [path.parent.name for path in undisturbed.glob("checkpoints/*/algorithm")]
    assert states == ["round_000006"], "older ones have a model only"


@pytest.mark.only_by(target="long")
def test_killed_and_stopped_it_goes_on_as_if_undisturbed(undisturbed: Path, cluster: str, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "whole"
    process = start(tmp_path, *START, cluster=cluster)
    read_until(process, "round 3/6: success")
    process.kill()
    process.communicate()
    process = start(tmp_path, *RESUME, "env_runners.num_env_runners=2", cluster=cluster)  # elsewhere
    read_until(process, "round 4/6: success")
    process.send_signal(signal.SIGTERM)  # as a stopped job gets
    said = done(process)
    stopped = re.search(r"stopped after round ([45]); resume with: seal-ray train --resume runs/whole", said)
    assert stopped, said
    last = int(stopped[1])
    assert (run / "checkpoints" / f"round_{last:06d}").is_dir(), "of no interval, but of the stop"
    left, right = RunFolder(run).metrics.rows(), RunFolder(undisturbed).metrics.rows()
    assert [row["round"] for row in left] == list(range(last + 1))
    for one, other in zip(left, right, strict=False):
        for name in one:
            if not name.startswith("perf/"):
                assert same(one[name], other[name]), (one["round"], name, one[name], other[name])
    for number in range(1, last + 1):
        assert tokens_of(run, number) == tokens_of(undisturbed, number)


def same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6)


def test_a_run_can_be_evaluated(undisturbed: Path) -> None:
    """On the other engine, with the result of the run's own evaluation on vLLM."""
    folder = undisturbed.parent.parent
    command = example("seal-ray", "evaluate", "runs/NAME", but={"NAME": "whole"})
    options = ("--limit", "4", "--context", "3072", "--response", "192", "--engine", "transformers")
    assert "whole on toolworld dev" in seal_ray(*command, *options, cwd=folder)
    summary = json.loads((folder / "runs/evaluations/whole-toolworld-dev/summary.json").read_text("utf-8"))
    last = RunFolder(undisturbed).metrics.rows()[-1]
    assert summary["results"]["all"]["success"] == pytest.approx(last["evaluation/success"])


def test_a_run_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain) -> None:
    monkeypatch.chdir(tmp_path)
    RunFolder(tmp_path / "runs" / "whole").write_config({"seed": 7, **make_config().to_sections()})
    assert "is a run; resume it" in run_main("train", "--name", "whole", code=2)


@pytest.mark.parametrize(
    "files", [("comparison.yaml", "trials/a/config.yaml"), ("config.yaml", "trials/a/config.yaml")]
)
def test_a_folder_of_another_command_is_left_alone(
    files: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in files:
        path = tmp_path / "runs" / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}", encoding="utf-8")
    for words, sentence in (("--name mine", "has other content than a run"), ("--resume runs/mine", "is no run")):
        assert sentence in run_main("train", *words.split(), code=2)
    found = {str(path.relative_to(tmp_path / "runs/mine")) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == set(files)
