"""What ends all trials at once. That one trial fails, or is killed, is tested on whole comparisons and sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray
from ray import tune
from ray.exceptions import OutOfMemoryError

from envs.errors import UserError
from seal_ray.algorithm.config import make_config
from seal_ray.report.files import TRIALS, RunFolder
from tuning.record import mark_ended
from tuning.running import MemoryFault, check_fit, run_trials
from tuning.trial import MAIN, RUN


def test_a_machine_without_memory_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune's own message is the report of Ray's memory monitor, of some forty lines."""

    cause: Exception = OutOfMemoryError("3 worker(s) were killed")

    def fit(_: tune.Tuner) -> None:
        raise RuntimeError("Caught unexpected exception: 3 worker(s) were killed\nMemory on the node") from cause

    monkeypatch.setattr(tune.Tuner, "fit", fit)
    with pytest.raises(MemoryFault, match=r"ran out of memory.* resume with --resume") as caught:
        run_trials(tmp_path, {}, on_event=print, retries=0, checkpoint_every=1)
    assert "\n" not in str(caught.value)

    cause = ValueError("another")
    with pytest.raises(RuntimeError, match="Caught unexpected"):
        run_trials(tmp_path, {}, on_event=print, retries=0, checkpoint_every=1)


def test_trials_that_a_smaller_cluster_can_never_hold_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / TRIALS / "coevolved-seed0")
    folder.write_config({"seed": 0, **make_config(["coevolved"]).to_sections()})
    configs = {"an id": {RUN: str(folder.path), MAIN: 1.0}}
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 4.0})
    check_fit(configs)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    with pytest.raises(UserError, match=r"the trial coevolved-seed0 asks for 2\.2 CPUs and the cluster has 2"):
        check_fit(configs)
    mark_ended(folder.path)
    check_fit(configs)
