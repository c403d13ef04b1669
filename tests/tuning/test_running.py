"""What ends all trials at once. That one trial fails, or is killed, is tested on whole comparisons and sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest
from ray import tune
from ray.exceptions import OutOfMemoryError

from tuning.running import MemoryFault, run_trials


def test_a_machine_without_memory_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune's own message is the report of Ray's memory monitor, of some forty lines."""

    cause: Exception = OutOfMemoryError("3 worker(s) were killed")

    def fit(_: tune.Tuner) -> None:
        raise RuntimeError("Caught unexpected exception: 3 worker(s) were killed\nMemory on the node") from cause

    monkeypatch.setattr(tune.Tuner, "fit", fit)
    with pytest.raises(MemoryFault, match=r"ran out of memory.* go on with --resume") as caught:
        run_trials(tmp_path, {}, tell=print, retries=0, checkpoint_every=1)
    assert "\n" not in str(caught.value)

    cause = ValueError("another")
    with pytest.raises(RuntimeError, match="Caught unexpected"):
        run_trials(tmp_path, {}, tell=print, retries=0, checkpoint_every=1)
