"""A real language model learns with LoRA: a restored run continues bit for bit, and exports are exact.

The completions are scripted, since SmolLM2 as downloaded solves nothing; learning, storage and export are real.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from envs.dialogue import Message
from policies.engine import BASE, Adapter, GenRequest
from policies.engine.transformers_engine import TransformersEngine, TransformersSettings
from policies.models import open_model
from policies.prompting import ChatFormat
from seal_ray.algorithm.config import SealConfig
from seal_ray.training.weights import export_model, lora_adapter
from tests.seal_ray.algorithm.configs import ROUNDS_IN_RAY, small_config
from tests.seal_ray.algorithm.engines import Half
from tests.seal_ray.algorithm.runs import assert_equal, built

pytestmark = [*ROUNDS_IN_RAY, pytest.mark.long, pytest.mark.only_by(target="long")]

MODEL = "smollm2-135m"
RANK, ALPHA = 4, 8


def real_config() -> SealConfig:
    """Rounds of two groups of three, in mixed precision."""
    config: SealConfig = (
        small_config(Half())
        .solver(model=MODEL, dtype="bfloat16", lora_rank=RANK)
        .training(groups=2, group_size=3, minibatch_groups=1, lr=5e-3, microbatch_tokens=2048)
    )
    return config


@pytest.fixture(scope="module")
def trained(cluster: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two rounds with a checkpoint between them."""
    state = tmp_path_factory.mktemp("real") / "state"
    with built(real_config()) as run:
        run.play(1)
        run.algorithm.save_to_path(str(state))
        between = run.weights
        return {"state": state, "between": between, "second": run.play(1), "weights": run.weights}


def test_a_restored_run_continues_bit_for_bit(trained: dict[str, Any]) -> None:
    assert any(not torch.equal(tensor, trained["between"][name]) for name, tensor in trained["weights"].items())
    with built(real_config()) as run:
        run.algorithm.restore_from_path(str(trained["state"]))
        assert run.play(1) == trained["second"]
        assert_equal(run.weights, trained["weights"])


def test_the_merged_model_says_what_the_adapter_on_its_base_says(trained: dict[str, Any], tmp_path: Path) -> None:
    base, merged = open_model(MODEL), tmp_path / "merged"
    export_model(base, trained["weights"], merged, dtype="float32", rank=RANK, alpha=ALPHA)
    form = ChatFormat.load(base.path, base.dialect)
    prompts = [form.opening([Message("user", text)], []) for text in ("Where is Paris?", "Name three animals.")]
    adapter = lora_adapter(trained["weights"], rank=RANK, alpha=ALPHA)

    async def said(folder: Path, adapters: Mapping[str, Adapter]) -> list[tuple[int, ...]]:
        engine = await TransformersEngine.start(TransformersSettings(folder, context=256))
        for name in adapters:
            await engine.update_adapter(name, adapters[name], version=1)
        (policy,) = adapters or (BASE,)
        results = [
            await engine.generate(GenRequest(ids, max_tokens=24, temperature=0.0, policy=policy)) for ids in prompts
        ]
        await engine.close()
        return [result.token_ids_T for result in results]

    adapted = asyncio.run(said(base.path, {"solver": adapter}))
    assert adapted == asyncio.run(said(merged, {}))
    assert adapted != asyncio.run(said(base.path, {}))
