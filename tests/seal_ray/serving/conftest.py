"""One server for all tests of this folder, since it takes a minute to start.

`tests/conftest.py` sends the files that use it to the same process.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from safetensors.torch import load_file

from policies import tiny
from policies.engine import Adapter
from policies.models import open_model
from seal_ray.training.weights import export_adapter, export_model
from tests.policies.models import random_adapter
from tests.readme import example
from tests.seal_ray.serving.servers import CONTEXT, KEY, NAME, RESPONSE, Running, serving
from tests.watched import SECRETS


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that has learnt nothing: its checkpoint is the tiny model, written by the exporter.

    Its generation_config.json asks for sampling that would change greedy answers too, as Qwen2.5's does.
    """
    folder = tmp_path_factory.mktemp("runs") / "trained"
    base = open_model(tiny.NAME)
    state = {f"language_model.{name}": each for name, each in load_file(base.path / "model.safetensors").items()}
    model = folder / "checkpoints" / "round_000001" / "model"
    export_model(base, state, model, dtype="float32")
    asks = {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.3}
    generation = model / "generation_config.json"
    generation.write_text(json.dumps(json.loads(generation.read_text("utf-8")) | asks), encoding="utf-8")
    (folder / "config.yaml").write_text(yaml.safe_dump({"solver": {"model": "tiny"}}), "utf-8")
    return folder


@pytest.fixture(scope="session")
def learnt() -> Adapter:
    """A random adapter of the tiny model, strong enough to change what it says."""
    adapter = random_adapter(open_model(tiny.NAME).path, seed=1)
    return Adapter(adapter.config, {name: 2 * tensor for name, tensor in adapter.tensors.items()})


@pytest.fixture(scope="session")
def adapter(learnt: Adapter, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of that adapter, written by the exporter."""
    folder = tmp_path_factory.mktemp("adapters") / "other"
    tensors = learnt.tensors.items()
    state = {f"language_model.{name.replace('.weight', '.default.weight')}": each for name, each in tensors}
    export_adapter(open_model(tiny.NAME), state, folder, rank=8, alpha=12)
    return folder


@pytest.fixture(scope="session")
def server(run: Path, adapter: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The README's server of that run and that adapter."""
    key = tmp_path_factory.mktemp("keys") / "key"
    key.write_text(f"{KEY}\n", encoding="ascii")
    places = {"runs/NAME": str(run), "~/.seal-ray-key": str(key)}
    command = example("seal-ray", "serve", "runs/NAME", "--api-key-file", "~/.seal-ray-key", but=places)
    options = ("--model-name", NAME, "--adapter", str(adapter), "--context", str(CONTEXT), "--response", str(RESPONSE))
    with serving(tmp_path_factory.mktemp("server"), *command, *options, environment=SECRETS) as running:
        yield running
