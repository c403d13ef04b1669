"""An engine of two tensor-parallel ranks: exact tokens and log-probs, delivery to each rank, and the end of all."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from policies.engine import BASE, DeliveryError, EngineDead, GenRequest
from policies.engine.adapters import lora_tensor_names
from policies.engine.vllm_engine import VllmEngine, VllmSettings
from tests.policies.contract import PROMPT
from tests.policies.models import greedy, load, load_adapted, logprobs_of, random_adapter, random_qwen2
from tests.policies.served import VllmServed, update_in_buckets

SHAPE = {"vocab_size": 500, "num_key_value_heads": 1}
"""Both ranks have the one head of keys and values, and the second has fewer rows of the embeddings."""
LAYER = "model.layers.1"


class Divided(VllmServed):
    """An engine of two ranks for one adapter."""

    def check(self, model: Any, policy: str) -> None:
        """Greedy tokens and log-probs equal the ones of Hugging Face's model, which has one rank."""
        for temperature in (0.0, 1.0):
            result = self.one(GenRequest(PROMPT, 24, temperature, policy=policy))
            if not temperature:
                assert list(result.token_ids_T) == greedy(model, PROMPT, 24)
            expected = logprobs_of(model, PROMPT, result.token_ids_T)
            assert result.sampled_logprobs_T == pytest.approx(expected, abs=1e-4)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Divided]:
    folder = random_qwen2(tmp_path_factory.mktemp("model"), seed=0, tied=True, **SHAPE)
    settings = VllmSettings(
        folder,
        context=256,
        kv_cache_bytes=64 << 20,
        max_adapters=1,
        tensor_parallel=2,
        worker_extension="tests.policies.sabotage.SpoilsOneRank",
    )
    served = Divided(folder, VllmEngine.start(settings))
    yield served
    served.close()


def test_two_ranks_compute_what_one_does(served: Divided) -> None:
    adapter = random_adapter(served.folder, seed=1)
    served.adapt("solver", adapter, 1)
    served.check(load(served.folder), BASE)
    served.check(load_adapted(served.folder, adapter), "solver")


def test_a_tensor_that_is_stale_on_one_rank_is_a_delivery_error(served: Divided, tmp_path: Path) -> None:
    new, adapter = random_qwen2(tmp_path / "new", seed=2, tied=True, **SHAPE), random_adapter(served.folder, seed=3)
    for name in (
        *("model.embed_tokens.weight", "model.norm.weight", f"{LAYER}.self_attn.q_proj.bias"),
        *(f"{LAYER}.{module}.weight" for module in ("self_attn.k_proj", "self_attn.o_proj", "mlp.up_proj")),
    ):
        served.call_workers("spoil", name)
        with pytest.raises(DeliveryError, match="does not compute with version 2 in: "):
            served.update(new, 2)
        with pytest.raises(DeliveryError, match="does not compute with version 2 in: "):
            update_in_buckets(served, new, 2)
    served.call_workers("spoil", "")
    update_in_buckets(served, new, 2)
    served.check(load(new), BASE)
    served.update(new, 2)  # what a restart brings back
    for module in ("self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj"):
        for half in lora_tensor_names(f"{LAYER}.{module}"):
            served.call_workers("spoil", half)
            with pytest.raises(DeliveryError, match="does not compute with version 3 of 'solver' in: "):
                served.adapt("solver", adapter, 3)
    served.call_workers("spoil", "")
    served.adapt("solver", adapter, 3)
    served.check(load(new), BASE)
    served.check(load_adapted(new, adapter), "solver")


@pytest.mark.only_by(target="long")
def test_no_rank_outlives_the_others_or_the_core(served: Divided) -> None:
    """Neither one that waits for another rank, as it does for a stopped one, nor their memory."""
    assert served.call_workers("shared_files") == [[], []]
    served.adapt("solver", random_adapter(served.folder, seed=1), 4)
    before = served.one(GenRequest(PROMPT, 8, policy="solver"))
    first, second = served.call_workers("process_id")

    async def kill_core_at_work() -> None:
        os.kill(second, signal.SIGSTOP)
        at_work = asyncio.create_task(served.engine.generate(GenRequest(PROMPT, 8)))
        await asyncio.sleep(0.5)
        for process in served.engine.processes():
            os.kill(process, signal.SIGKILL)
        with pytest.raises(EngineDead):
            await at_work

    served.runner.run(kill_core_at_work())
    assert has_ended(first)
    os.kill(second, signal.SIGCONT)
    assert has_ended(second)
    served.runner.run(served.engine.restart())
    after = served.one(GenRequest(PROMPT, 8, policy="solver"))
    assert (after.token_ids_T, after.versions_T) == (before.token_ids_T, before.versions_T)
    first, second = served.call_workers("process_id")
    os.kill(second, signal.SIGKILL)
    with pytest.raises(EngineDead):
        served.one(GenRequest(PROMPT, 8))
    assert has_ended(first)


def has_ended(process: int) -> bool:
    """Whether a process ends within 10 seconds; one that its parent has not yet waited for has ended."""
    for _ in range(100):
        with suppress(FileNotFoundError):
            if "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text("utf-8"):
                time.sleep(0.1)
                continue
        return True
    return False
