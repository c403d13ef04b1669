"""The files of a run: a kill at any moment leaves its files and its checkpoints in step."""

import json
import os
import struct
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import pytest

from envs.dialogue import Protocol
from envs.profile import FailureProfile
from seal_ray.algorithm.config import make_config
from seal_ray.algorithm.report import EvaluationReport, RoundReport
from seal_ray.algorithm.seal import Seal
from seal_ray.proposing.loop import WindowReport
from seal_ray.report.files import RunFolder
from seal_ray.report.inspect_log import read_samples
from seal_ray.rollout.types import GroupPlan
from seal_ray.run import checkpoints
from seal_ray.run.recorder import Recorder, write_checkpoint
from seal_ray.run.round_log import interleaved_members
from tests.seal_ray.report.test_trackers import offline, scalars
from tests.seal_ray.rollout.rounds import ARMS, Solver

ROUNDS = 4


class Rounds:
    """An algorithm whose rounds take no time; a checkpoint of it is its round."""

    def __init__(self, done: int = 0) -> None:
        self.config = make_config(overrides=[f"training.rounds={ROUNDS}", "evaluation.interval=2"])
        self.spec = self.config.spec
        self.round = done
        self.report: RoundReport | None = None
        self.agents: dict[str, object] = {}

    is_saving = False

    def finish_saving(self) -> None:
        self.is_saving = False

    def save_to_path(self, path: str, *, wait: bool) -> None:
        assert not wait
        Path(path).mkdir(parents=True)
        Path(path, "state.json").write_text("{}", "utf-8")

    def train(self) -> None:
        self.round += 1
        self.report = RoundReport(
            round=self.round,
            groups=tuple(Solver(lambda _: 0.5).play([plan(self.round, 2)])),
            arms=ARMS,
            window_rounds=1,
            curator=WindowReport(proposals=[{"rejection": None}], known=[{"id": "plain"}] if self.round % 2 else []),
            task_writer=WindowReport(),
            profile=FailureProfile().to_dict(),
            metrics={"round": self.round, "solver/success": self.round / 10, "solver/success_shown": float("nan")},
        )

    def play_evaluation(self) -> EvaluationReport:
        return EvaluationReport({"plain": {"base": {"a": 1}}}, {"success": self.round / 10}, 0.5)


def plan(number: int, plain: int) -> GroupPlan:
    seeds = tuple(range(10 * number, 10 * number + 4))
    return GroupPlan(number, "a task", "base", ARMS[1], Protocol("seal"), seeds, 1.0, plain_members=plain)


def run(folder: RunFolder, resumed: bool, wandb: str = "off", saved: int = ROUNDS, killed: int = ROUNDS) -> None:
    """Plays all rounds that are left, with checkpoints up to round `saved`; the process dies after round `killed`."""
    found = checkpoints.stored(folder.checkpoints)
    algorithm = Rounds(checkpoints.round_of(found[-1]) if resumed and found else 0)
    recorder = Recorder(cast(Seal, algorithm), folder, resumed=resumed and bool(found), wandb=wandb)
    try:
        if not algorithm.round:
            recorder.write_start()
        while algorithm.round < ROUNDS:
            recorder.play_round(algorithm.train, save=lambda: algorithm.round <= saved)
            if algorithm.round == killed < ROUNDS:
                os._exit(1)
    finally:
        recorder.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    offline(tmp_path, monkeypatch)

    def write(algorithm: Rounds, folder: RunFolder) -> Path:
        part = folder.checkpoints / f"round_{algorithm.round:06d}.part"
        part.mkdir()
        return part

    monkeypatch.setattr("seal_ray.run.recorder.write_checkpoint", write)
    for slow in ("draw_curves", "write_page"):
        monkeypatch.setattr(f"seal_ray.run.recorder.{slow}", lambda *_, **__: None)
    made = RunFolder(tmp_path / "run")
    sections = {"solver": {"model": "tiny"}, "curator": {"kind": "none"}, "training": {"rounds": ROUNDS}}
    made.write_config({"seed": 0, **sections})
    return made


@pytest.mark.parametrize("at", [1, 2, ROUNDS])
@pytest.mark.parametrize("after", [False, True], ids=["before it is one", "after it is one"])
def test_a_kill_around_a_checkpoint_loses_no_row(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, at: int, after: bool
) -> None:
    keep = checkpoints.keep

    def killed(part: Path, *, most: int) -> Path:
        if part.name == f"round_{at:06d}.part":
            if after:
                keep(part, most=most)
            raise KeyboardInterrupt
        return keep(part, most=most)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "keep", killed)
        with pytest.raises(KeyboardInterrupt):
            run(folder, resumed=False)
    for part in folder.checkpoints.glob("*.part"):
        part.rmdir()
    run(folder, resumed=True)
    assert [row["round"] for row in folder.metrics.rows()] == list(range(ROUNDS + 1))
    assert [row["round"] for row in folder.evaluations.rows()] == [0, ROUNDS]
    assert [row["round"] for row in folder.interfaces.rows()] == list(range(1, ROUNDS + 1))
    kept = [checkpoints.round_of(each) for each in checkpoints.stored(folder.checkpoints)]
    assert kept == [ROUNDS - 1, ROUNDS], "training.checkpoints_kept is 2"


def test_a_checkpoint_that_learners_still_write_is_one_after_the_next_round(folder: RunFolder) -> None:
    algorithm, kept = Rounds(), list[list[int]]()
    recorder = Recorder(cast(Seal, algorithm), folder, resumed=False)
    for _ in range(ROUNDS):
        algorithm.is_saving = True
        metrics = recorder.play_round(algorithm.train, save=lambda: algorithm.round in (1, ROUNDS))
        kept.append([checkpoints.round_of(each) for each in checkpoints.stored(folder.checkpoints)])
        assert ("perf/checkpoint_seconds" in metrics) == (algorithm.round in (1, 2, ROUNDS))
    recorder.close()
    assert kept == [[], *[[1]] * (ROUNDS - 2), [1, ROUNDS]]


def test_only_the_newest_checkpoint_has_a_state_while_the_next_is_written(folder: RunFolder) -> None:
    algorithm, states = Rounds(), list[list[str]]()
    for algorithm.round in (1, 2, 3, 4):
        part = write_checkpoint(cast(Seal, algorithm), folder)
        states.append(sorted(path.parent.name for path in folder.checkpoints.glob("*/algorithm")))
        checkpoints.keep(part, most=3)
    assert states == [
        ["round_000001.part"],
        ["round_000001", "round_000002.part"],
        ["round_000002", "round_000003.part"],
        ["round_000003", "round_000004.part"],
    ]
    Recorder(cast(Seal, algorithm), folder, resumed=True).close()
    assert [path.name for path in checkpoints.stored(folder.checkpoints)] == [f"round_{n:06d}" for n in (2, 3, 4)]
    assert [path.parent.name for path in folder.checkpoints.glob("*/algorithm")] == ["round_000004"]


def test_a_picture_that_fails_costs_no_checkpoint(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("seal_ray.run.recorder.draw_curves", full)
    with pytest.raises(OSError, match="no space left"):
        run(folder, resumed=False)
    last = folder.metrics.rows()[-1]["round"]
    assert last > 0
    assert checkpoints.round_of(checkpoints.stored(folder.checkpoints)[-1]) == last


def shown(folder: RunFolder) -> dict[str, dict[int, float]]:
    """Name → round → value of TensorBoard's events."""
    by_name: dict[str, dict[int, float]] = {}
    for number, name, value in scalars(folder):
        assert number not in by_name.setdefault(name, {}), "twice"
        by_name[name][number] = value
    return by_name


def logged_by_wandb(folder: RunFolder) -> dict[str, dict[int, float]]:
    """Name → round → value in the files of the run that wandb has by the id in the folder, in LevelDB's log format."""
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined] # made at import

    by_name: dict[str, dict[int, float]] = {}
    for path in folder.path.glob(f"wandb/offline-run-*/run-{folder.wandb_id.read_text()}.wandb"):
        content, place, part = path.read_bytes(), 7, b""
        while place + 7 <= len(content):
            length, kind = struct.unpack_from("<HB", content, place + 4)
            part += content[place + 7 : place + 7 + length]
            place += 7 + length
            place += -place % 32768 if -place % 32768 < 7 else 0
            if kind in (1, 4):  # whole, or its last part
                history, part = Record.FromString(part).history, b""
                for item in history.item:
                    name = "/".join(item.nested_key) or item.key
                    if not name.startswith(("_", "dialogues")):
                        assert history.step.num not in by_name.setdefault(name, {}), "twice"
                        by_name[name][history.step.num] = json.loads(item.value_json)
    return by_name


@pytest.mark.parametrize("saved", [0, 1, 3])
def test_trackers_equal_the_metrics_of_a_run_that_was_killed(folder: RunFolder, saved: int) -> None:
    for resumed, killed in ((False, 2), (True, 3)):
        child = get_context("fork").Process(target=run, args=[folder, resumed, "offline", saved, killed])
        child.start()
        child.join()
        assert child.exitcode == 1
    run(folder, resumed=True, wandb="offline")
    expected: dict[str, dict[int, Any]] = {}
    for row in folder.metrics.rows():
        for name, value in row.items():
            expected.setdefault(name, {})[row["round"]] = pytest.approx(value, abs=1e-6)
    assert shown(folder) == expected
    assert logged_by_wandb(folder) == expected


def test_a_report_is_written_to_the_files_of_the_run(folder: RunFolder) -> None:
    run(folder, resumed=False)
    first = folder.metrics.rows()[1]
    assert (first["round"], first["solver/success"]) == (1, 0.1)
    assert "solver/success_shown" not in first, "nan is left out"
    assert [row["evaluation/success"] for row in folder.metrics.rows() if "evaluation/success" in row] == [0.0, 0.4]
    assert [row["proposals"] for row in folder.proposals.rows()] == [[{"rejection": None}]] * ROUNDS
    assert [row["round"] for row in folder.arms.rows()] == [1, 3], "a window's arms, at its end"
    assert folder.drafts.rows() == folder.pool.rows() == []
    assert [len(row["interfaces"]) for row in folder.interfaces.rows()] == [2] * ROUNDS
    assert len(list(read_samples(folder.log_of("round", 1)))) == 4


def test_dialogues_are_kept_of_all_groups_and_of_both_arms_of_a_pair() -> None:
    groups = Solver(lambda _: 0.5).play([plan(0, 4), plan(1, 2), plan(2, 0)])
    kept = [member.trajectory.seed for _, member in interleaved_members(groups)]
    assert kept[:6] == [0, 12, 20, 1, 10, 21]
    assert sorted(kept) == sorted(seed for group in groups for seed in group.plan.seeds)
