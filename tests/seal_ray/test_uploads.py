"""Uploads of a run's folder in a thread: rounds continue, a kill leaves a whole state, and a failure is repeated."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Lock, Semaphore, Timer

import pytest

from envs.errors import SealError, UserError
from seal_ray.run import checkpoints
from seal_ray.run.storage import LIST, OWN, STATE, Mirror, mirrored, pull
from tests.seal_ray.test_storage import make_run, tree


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path)


class SlowStorage:
    """Copies of files block until they are released; `copied` has the names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.copied: list[str] = []
        self.started = Event()
        self._released, self._unused = Semaphore(0), Lock()
        copy_file = Mirror.copy_file

        def slow(mirror: Mirror, path: Path, target: str) -> None:
            assert self._unused.acquire(blocking=False), "two pushes at a time"
            self.started.set()
            assert self._released.acquire(timeout=20)
            self.copied.append(target.partition("/storage/mine/")[2].removesuffix(".part"))
            copy_file(mirror, path, target)
            self._unused.release()

        monkeypatch.setattr(Mirror, "copy_file", slow)

    def release(self, copies: int = 1000) -> None:
        for _ in range(copies):
            self._released.release()


def checkpoint(run: Path, number: int) -> None:
    """Adds a row and a checkpoint, as a run does after a round."""
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(f"{number}\n")
    part = run / "checkpoints" / f"round_{number:06d}.part"
    for name in ("algorithm/state.json", "model/weights"):
        (part / name).parent.mkdir(parents=True)
        (part / name).write_text(f"{number}", encoding="utf-8")
    checkpoints.keep(part, most=2)


def test_rounds_continue_during_a_push_of_what_they_replace(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowStorage(monkeypatch)
    checkpoint(run, 2)
    before, copy = tree(run), tmp_path / "storage" / "mine"
    with mirrored(run, str(tmp_path / "storage"), print) as push:
        push()
        assert slow.started.wait(20)
        for number in (3, 4, 5):  # the run removes all that the push copies
            checkpoint(run, number)
            push()
        assert not slow.copied
        slow.release(len({*before, STATE}))
        wait_until((copy / LIST).is_file)
        whole, _ = pull(str(copy), tmp_path / "here")
        found = tree(whole)
        assert found.pop("metrics.jsonl") == "{}\n2\n3\n4\n5\n", "of the run's newest moment"
        assert found.pop(STATE)
        assert found == {name: text for name, text in before.items() if name != "metrics.jsonl"}
        Timer(0.3, slow.release).start()
    assert {name: slow.copied.count(name) for name in slow.copied if "checkpoints" in name} == {
        **{name: 1 for name in before if "checkpoints" in name},
        **{name: 1 for name in tree(run) if "checkpoints" in name},
    }, "one push more, with the files of the last request"
    assert set(tree(copy)) == {*tree(run), LIST, OWN}
    assert tree(copy)["metrics.jsonl"] == tree(run)["metrics.jsonl"]
    assert list(run.parent.iterdir()) == [run], "no link is left"


def test_an_interrupt_at_the_end_does_not_wait_for_the_storage(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowStorage(monkeypatch)

    def block() -> None:
        with mirrored(run, str(tmp_path / "storage"), print) as push:
            push()
            assert slow.started.wait(20)
            Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()

    with pytest.raises(KeyboardInterrupt):
        block()
    assert not slow.copied
    slow.release()


@pytest.mark.parametrize("copies", range(3))
def test_a_kill_during_a_push_leaves_the_state_before_and_a_resumed_run_copies_changes(
    copies: int, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = str(tmp_path / "storage")
    checkpoint(run, 2)
    Mirror(run, storage).push()
    before = {name: text for name, text in tree(run).items() if "checkpoints" in name}
    with monkeypatch.context() as patched:
        slow = SlowStorage(patched)

        def train() -> None:
            with mirrored(run, storage, print) as push:
                checkpoint(run, 3)
                slow.release(copies)
                push()
                assert slow.started.wait(20)
                wait_until(lambda: len(slow.copied) == copies)
                os._exit(7)

        child = get_context("fork").Process(target=train)
        child.start()
        child.join(60)
        assert child.exitcode == 7
    folder, _ = pull(f"{storage}/mine", tmp_path / "here")
    assert {name: text for name, text in tree(folder).items() if "checkpoints" in name} == before
    slow = SlowStorage(monkeypatch)
    slow.release()
    new = {"checkpoints/round_000003/algorithm/state.json", "checkpoints/round_000003/model/weights"}
    for resumed, changed in ((run, {STATE, "metrics.jsonl", *new}), (folder, {STATE})):
        if resumed == folder:
            shutil.rmtree(folder)
            pull(f"{storage}/mine", tmp_path / "here")
        with mirrored(resumed, storage, print):
            pass
        assert set(slow.copied) == changed
        slow.copied.clear()
        assert set(tree(tmp_path / "storage/mine")) == {*tree(resumed), LIST, OWN}
    assert os.listdir(run.parent) == ["mine"], "no link is left"


def test_a_push_that_fails_is_tried_again_and_at_the_end_raised(run: Path, tmp_path: Path) -> None:
    storage, said = tmp_path / "storage", list[str]()
    with mirrored(run, str(storage), said.append) as push:
        (storage / "mine").rmdir()
        (storage / "mine").write_text("in the way", encoding="utf-8")
        push()
        wait_until(lambda: bool(said))
        assert "cannot be written" in said[0]
        assert said[0].endswith("It is repeated later.")
        (storage / "mine").unlink()
        push()
        wait_until((storage / "mine" / LIST).is_file)
        assert len(said) == 1
        (run / "late").write_text("late", encoding="utf-8")
    assert (storage / "mine" / "late").is_file(), "the end is pushed too"


@pytest.mark.parametrize("ended_by", [None, UserError("resources: the run asks for 9 CPUs.")])
def test_an_end_that_cannot_be_pushed_is_a_fault_and_hides_no_other(
    ended_by: UserError | None, run: Path, tmp_path: Path
) -> None:
    said = list[str]()

    def block() -> None:
        with mirrored(run, str(tmp_path / "other"), said.append):
            (tmp_path / "other/mine").rmdir()
            (tmp_path / "other/mine").write_text("in the way", encoding="utf-8")
            if ended_by:
                raise ended_by

    with pytest.raises(SealError, match="the run asks for 9 CPUs" if ended_by else "cannot be written"):
        block()
    assert ["cannot be written" in each and "later" not in each for each in said] == [True] * bool(ended_by)


def test_without_a_storage_nothing_is_pushed_and_links_of_a_killed_process_are_removed(
    run: Path, tmp_path: Path
) -> None:
    Mirror(run, str(tmp_path / "storage")).snapshot()  # and the process dies
    before = tree(run)
    assert len(tree(run.parent)) == 2 * len(before)
    with mirrored(run, None, print) as push:
        push()
    assert tree(run.parent) == {f"mine/{name}": text for name, text in before.items()}
    assert tree(tmp_path / "storage") == {}


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
