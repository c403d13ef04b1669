"""The driver's memory does not grow with the model: learners write checkpoints and models themselves."""

from pathlib import Path

import pytest
from transformers import Qwen2Config, Qwen2ForCausalLM

from envs.roles import SOLVER
from policies.models import open_model
from policies.models.writing import write_model
from tests.seal_ray.training.learners import build_group, learner_config

pytestmark = pytest.mark.only_by(target="long")
MIB = 1 << 20


def peak() -> int:
    """The largest memory of this process since `forget`, bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def forget() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def test_no_weights_come_to_the_driver(model: Path, cluster: str, tmp_path: Path) -> None:
    """Two sharded learners of a model with 250 MiB of weights, and twice that of moments."""
    opened = open_model(str(model))
    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 6, "layer_types": None}
    config = Qwen2Config(**{**opened.config, **sizes})
    large = Qwen2ForCausalLM(config)
    size = 4 * sum(each.numel() for each in large.parameters())
    assert size > 250 * MIB
    write_model(model, config.to_dict(), large.state_dict(), tmp_path / "large", dtype="float32")
    del large
    folder = str(tmp_path / "large")
    learning = learner_config(Path(folder), training={"kl": 0.0}, num_learners=2, fsdp=True)
    group = build_group(learning)
    forget()
    before = peak()
    group.save_to_path(tmp_path / "state")
    group.export(SOLVER, open_model(folder), tmp_path / "model", dtype="float32")
    group.restore_from_path(tmp_path / "state")
    grown = peak() - before
    group.shutdown()  # type: ignore[no-untyped-call]
    written = sum(file.stat().st_size for file in (tmp_path / "state").rglob("*") if file.is_file())
    assert written > 2.9 * size
    assert (tmp_path / "model" / "model.safetensors").stat().st_size > 0.99 * size
    assert grown < 32 * MIB, f"{grown / MIB:.0f} MiB"
