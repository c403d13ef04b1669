"""What must not change what is learnt does not; what crosses to the engines has their names; checked on one learner."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from envs.errors import SealError
from envs.roles import SOLVER
from policies.engine.requests import check_shapes, checkpoint_shapes
from policies.models import open_model
from policies.models.writing import write_model
from seal_ray.grpo.rows import Minibatch
from seal_ray.training.module import PACKED, LMModule
from seal_ray.training.weights import export_model, full_weights
from tests.policies.models import byte_tokenizer, load, random_llama, random_qwen2
from tests.seal_ray.training.learners import (
    PlainLearner,
    assert_equal,
    build_group,
    distance,
    disturb,
    learner_config,
    moments_of,
    set_weights,
    state_of,
)

LORA = {"lora_rank": 4}
ALPHA = 8
KINDS: dict[str, dict[str, Any]] = {"full": {}, "lora": LORA}


class Learnt:
    """The result of one round of so many steps under these settings, from the same weights and rows."""

    def __init__(
        self,
        model: Path,
        kind: str,
        *,
        solver: Mapping[str, Any] | None = None,
        training: Mapping[str, Any] | None = None,
        steps: int | None = None,
    ) -> None:
        plain_config = learner_config(model, solver=KINDS[kind])
        first = build_group(plain_config)
        disturb(first)
        weights = first.module_weights(SOLVER)
        rows = PlainLearner(plain_config, model, weights).minibatches()[:steps]
        minibatches = [Minibatch.of([each]) for each in rows]
        self.group = build_group(learner_config(model, solver={**KINDS[kind], **(solver or {})}, training=training))
        set_weights(self.group, weights)
        self.counted = self.group.learn(SOLVER, minibatches)
        self.gradient = moments_of(self.group, "exp_avg")

    @property
    def module(self) -> LMModule:
        found = self.group.local.module[SOLVER]
        assert isinstance(found, LMModule)
        return found


def assert_alike(found: Learnt, expected: Learnt, tolerance: float) -> None:
    assert found.counted == pytest.approx(expected.counted, rel=tolerance, abs=tolerance / 10)
    assert distance(found.gradient, expected.gradient) < tolerance


@pytest.mark.parametrize("kind", KINDS)
def test_micro_batches_and_gradient_checkpoints_change_nothing(model: Path, kind: str) -> None:
    expected = Learnt(model, kind)
    for tokens in (1, 10_000):
        assert_alike(Learnt(model, kind, training={"microbatch_tokens": tokens}), expected, 1e-4)
    checkpoints = Learnt(model, kind, solver={"gradient_checkpointing": True})
    assert checkpoints.module.language_model.is_gradient_checkpointing
    assert_alike(checkpoints, expected, 1e-4)


def test_a_step_that_runs_out_of_memory_is_repeated_in_smaller_parts(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = Learnt(model, "full", training={"microbatch_tokens": 10_000})
    forward = LMModule.forward_rows
    full: list[Any] = []

    def limited(self: LMModule, batch: Mapping[str, Any]) -> Any:
        if batch[PACKED].token_ids_1N.numel() > 60 and torch.is_grad_enabled():
            full.append(batch)
            raise torch.OutOfMemoryError
        return forward(self, batch)

    monkeypatch.setattr(LMModule, "forward_rows", limited)
    found = Learnt(model, "full", training={"microbatch_tokens": 100})
    assert len(full) == found.counted.pop("out_of_memory") == 1
    assert expected.counted.pop("out_of_memory") == 0
    assert_alike(found, expected, 1e-4)
    assert "micro-batches now have 50 tokens" in caplog.text


def test_where_a_cpu_has_no_products_in_bfloat16_float32_is_computed(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    expected, found = Learnt(model, "lora"), Learnt(model, "lora", solver={"dtype": "bfloat16"})
    assert_equal(found.gradient, expected.gradient)


@pytest.mark.parametrize("kind", KINDS)
def test_without_clips_a_gradient_in_bfloat16_is_that_in_float32(
    model: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    open_wide = {"clip_low": 0.99, "clip_high": 50.0, "grad_clip": 1e6}
    both = [
        Learnt(model, kind, solver={"dtype": dtype}, training=open_wide, steps=1) for dtype in ("float32", "bfloat16")
    ]
    assert {tensor.dtype for tensor in state_of(both[1].group).values()} == {torch.float32}
    wanted, found = (torch.cat([each.double().flatten() for each in learnt.gradient.values()]) for learnt in both)
    assert 1e-3 * wanted.norm() < (found - wanted).norm() < 0.2 * wanted.norm()
    assert float(found.norm()) == pytest.approx(float(wanted.norm()), rel=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_kl_there_is_no_reference(model: Path, kind: str) -> None:
    found = Learnt(model, kind, training={"kl": 0.0})
    assert found.module.reference is None
    assert found.counted["kl"] == 0
    assert (Learnt(model, kind).module.reference is None) == (kind == "lora")


def test_the_state_of_another_adapter_is_refused(model: Path) -> None:
    weights = build_group(learner_config(model, solver=LORA)).module_weights(SOLVER)
    for solver in ({}, {"lora_rank": 2}):
        group = build_group(learner_config(model, solver=solver))
        before = state_of(group)
        with pytest.raises(SealError, match=r"of another solver\.model or solver\.lora_rank"):
            set_weights(group, weights)
        assert_equal(state_of(group), before)


@pytest.mark.parametrize("kind", ["tied", "untied", "llama", "tied, saved twice"])
def test_full_weights_are_those_of_the_folder(tmp_path: Path, kind: str) -> None:
    folder = (
        random_llama(tmp_path, seed=2) if kind == "llama" else random_qwen2(tmp_path, seed=2, tied="un" not in kind)
    )
    byte_tokenizer(folder)
    shapes = checkpoint_shapes(folder)
    assert ("lm_head.weight" in shapes) == (kind in ("untied", "llama"))
    if kind == "tied, saved twice":
        shapes["lm_head.weight"] = shapes["model.embed_tokens.weight"]
    group = build_group(learner_config(folder))
    expected = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    found = full_weights(group.module_weights(SOLVER), shapes, "float32")
    check_shapes({name: tuple(tensor.shape) for name, tensor in found.items()}, shapes)
    assert_equal(found, {name: expected[name] for name in shapes})
    write_model(folder, {}, found, tmp_path / "written", dtype="float32")
    assert_equal(load_file(tmp_path / "written" / "model.safetensors"), found)
    halves = full_weights(group.module_weights(SOLVER), shapes, "bfloat16")
    assert {tensor.dtype for tensor in halves.values()} == {torch.bfloat16}


@pytest.mark.parametrize("kind", KINDS)
def test_an_exported_model_is_what_was_learnt(kind: str, model: Path, tmp_path: Path) -> None:
    group = build_group(learner_config(model, solver=KINDS[kind]))
    disturb(group)
    base, state = open_model(str(model)), group.module_weights(SOLVER)
    export_model(base, state, tmp_path / "out", dtype="float32", rank=KINDS[kind].get("lora_rank", 0), alpha=ALPHA)
    exported = open_model(str(tmp_path / "out"))
    check_shapes(checkpoint_shapes(exported.path), checkpoint_shapes(base.path))
    tokens = torch.tensor([[5, 6, 7, 8, 9]])
    learnt = group.local.module[SOLVER].unwrapped().language_model.eval()
    (learnt.get_base_model() if kind == "lora" else learnt).set_attn_implementation("sdpa")
    with torch.no_grad():
        found, wanted = (each(tokens).logits for each in (load(exported.path), learnt))
        before = load(model)(tokens).logits
    assert torch.allclose(found, wanted, atol=1e-4)
    assert not torch.allclose(found, before, atol=1e-2)


_PROGRAM = """
import sys, psutil, torch
from seal_ray.training.heap import release_memory
torch.zeros(24 << 20, dtype=torch.uint8)  # freed: glibc takes smaller blocks from its heap from here on
blocks = [torch.ones(4 << 20, dtype=torch.uint8) for _ in range(64)]
full = psutil.Process().memory_info().rss
del blocks[:-1]
if sys.argv[1] == "given back":
    release_memory()
print((full - psutil.Process().memory_info().rss) >> 20)
"""


def _given_back(how: str) -> int:
    """MiB of 252 freed, below one block that stays."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM, how], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's call")
def test_memory_is_given_back_under_a_block_that_stays() -> None:
    assert _given_back("given back") > 240
    assert _given_back("as it is") < 20, "glibc gives them back by itself: this is not needed"
