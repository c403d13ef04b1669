"""The estimate of memory against numbers that are known, and what is said where it is not enough."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import ray
import torch
from transformers import AutoModelForCausalLM

from envs.dialects import get_dialect
from policies.engine.requests import checkpoint_shapes
from policies.models import ModelFolder, open_model
from seal_ray.algorithm import checks, memory_estimate
from seal_ray.algorithm.config import make_config
from seal_ray.algorithm.memory_estimate import Available, Place, available, check_parts, gpu_needs, parts
from seal_ray.run.cluster import check_fits
from tests.refusal import refusal
from tests.seal_ray.algorithm.fsdp_memory import config_of

GB, GIB = 10**9, 2**30


def shapes_of(model: str, layers: int) -> tuple[ModelFolder, dict[str, tuple[int, ...]]]:
    """A model of `fsdp_memory.py` with so many layers."""
    config = config_of(model, layers)
    with torch.device("meta"):
        made = AutoModelForCausalLM.from_config(config)
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")
    values = {name: getattr(config, name) for name in (*names, "vocab_size")}
    shapes = {name: tuple(parameter.shape) for name, parameter in made.named_parameters()}
    return ModelFolder(Path(model), get_dialect("qwen"), 32_768, values, model), shapes


QWEN_7B, SHAPES = shapes_of("7b", 28)
PARAMETERS = 7_615_616_512
"""As its model card has it."""
FROZEN = sum(math.prod(shape) * (2 if len(shape) == 2 and "embed" not in name else 4) for name, shape in SHAPES.items())
"""Bytes of matrices in bfloat16, and of embeddings, norms and biases in float32."""
NODE = Available(1024 * GIB, (80 * GIB,) * 4)
"""Four GPUs, as the paper had."""


@pytest.fixture(autouse=True)
def shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shapes of `QWEN_7B`, which has no folder."""
    monkeypatch.setattr(
        memory_estimate, "checkpoint_shapes", lambda path: SHAPES if path == QWEN_7B.path else checkpoint_shapes(path)
    )


FOUR = ("learners.num_learners=4", "engine.num_engines=4", "env_runners.num_env_runners=4")


def needed(*words: str) -> dict[str, tuple[Place, int]]:
    found = parts(make_config(["qwen2.5-7b"], overrides=[*FOUR, *words]).spec, QWEN_7B)
    return {part.name: (part.place, part.size) for part in found}


def refused(there: Available, monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setattr(memory_estimate, "available", lambda: there)
    return refusal(checks.check_memory, make_config(["qwen2.5-7b"], overrides=[*FOUR, *words]).spec, QWEN_7B)


def test_full_fine_tuning_of_7b_with_fsdp() -> None:
    found = needed()
    assert found["learner weights"] == (Place.GPU, 4 * PARAMETERS)
    learner = sum(found[name][1] for name in ("learner weights", "learner gradients and moments"))
    assert learner == 16 * PARAMETERS
    assert 121 * GB < learner < 123 * GB
    assert found["reference policy"] == (Place.GPU, FROZEN)
    assert found["engine weights"] == (Place.GPU, 4 * 2 * PARAMETERS)
    # One dialogue of 16,384 tokens takes 0.94 GB in each of four engines; a block is left over, and one is vLLM's own.
    assert found["engine cache"] == (Place.GPU, 4 * (16_384 + 2 * 32) * 2 * 28 * 512 * 2)
    assert found["engine steps and adapters"] == (Place.GPU, 4 * ((2 << 30) + 2 * 3 * 8192 * 18_944))
    # Each learner reads model and reference policy whole before it shards them.
    assert found["loading and delivering weights"] == (Place.HOST, 4 * (4 * PARAMETERS + FROZEN))
    assert found["processes"][0] is Place.HOST
    assert sum(size for place, size in found.values() if place is Place.GPU) < sum(NODE.gpus)


def test_lora_takes_far_less() -> None:
    found = needed("solver.lora_rank=16")
    # PEFT counts 40,370,176 trainable parameters for rank 16 on all linear layers.
    assert found["learner gradients and moments"] == (Place.GPU, 12 * 40_370_176)
    assert found["learner weights"] == (Place.GPU, FROZEN + 4 * 40_370_176)
    assert found["reference policy"][1] == 0, "the base with the adapter off"


def test_what_else_makes_it_more_or_less() -> None:
    base = needed()
    assert needed("training.kl=0.0")["reference policy"][1] == 0
    assert needed("engine.dtype=float32")["engine weights"][1] == 2 * base["engine weights"][1]
    assert needed("engine.num_engines=1")["engine weights"][1] * 4 == base["engine weights"][1]
    name = "learner activations and whole layers"
    assert base[name][1] < needed("solver.gradient_checkpointing=false")[name][1]
    copies, alone = needed("learners.fsdp=false"), needed("learners.fsdp=false", "learners.num_learners=0")
    for name in ("learner weights", "learner gradients and moments", "reference policy"):
        assert copies[name] == (Place.GPU, 4 * base[name][1])
        assert alone[name] == (Place.HOST, base[name][1]), "the main process has no GPU of its own"
    on_cpu = needed("engine.num_gpus_per_engine=0", "learners.num_gpus_per_learner=0")
    assert {place for place, _ in on_cpu.values()} == {Place.HOST}


ONLY_BY_LONG = pytest.mark.only_by(target="long")
MICRO_BATCHES = (
    (133, 134, False),
    pytest.param(3072, 512, False, marks=ONLY_BY_LONG),
    pytest.param(1024, 384, True, marks=ONLY_BY_LONG),
)
"""Tokens of the opening, tokens of each of eight rests, and whether there are checkpoints of activations."""


@pytest.mark.parametrize(("opening", "rest", "checkpoints"), MICRO_BATCHES)
def test_a_micro_batch_takes_what_is_estimated(opening: int, rest: int, checkpoints: bool) -> None:
    # With checkpoints much is freed on the way, which the allocator keeps for longer in some processes than in others.
    command = [sys.executable, "-m", "tests.seal_ray.grpo.peak"]
    command += [f"{opening},{rest}" + ",checkpoints" * checkpoints] * (4 if checkpoints else 1)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    measured = min(map(int, done.stdout.split()))
    tokens = opening + 8 * rest
    words = [f"training.microbatch_tokens={tokens}", f"solver.gradient_checkpointing={str(checkpoints).lower()}"]
    config = make_config(overrides=words)
    estimate = {part.name: part.size for part in parts(config.spec, open_model("tiny"))}["learner activations"]
    assert 0.8 < estimate / measured < 1.2


def test_the_shipped_model_fits_a_small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_estimate, "available", lambda: Available(6 * GIB))
    config = make_config()
    checks.check_memory(config.spec, open_model("tiny"))
    found = {part.name: part for part in parts(config.spec, open_model("tiny"))}
    assert {part.place for part in found.values()} == {Place.HOST}
    assert found["learner weights"].size < GIB // 10


def test_a_cache_can_hold_a_share_of_the_dialogues() -> None:
    whole, share = (
        {part.name: part.size for part in parts(make_config(overrides=words).spec, open_model("tiny"))}
        for words in ([], ["engine.cache_share=0.5"])
    )
    assert share["engine cache"] == whole["engine cache"] / 2
    assert share["engine weights"] == whole["engine weights"]


def test_ranks_share_an_engine_and_each_has_a_head_of_keys_and_values() -> None:
    base, two, eight = (
        needed(f"engine.tensor_parallel={ranks}", f"engine.num_gpus_per_engine={ranks}") for ranks in (1, 2, 8)
    )
    assert base["engine weights"] == two["engine weights"]
    assert base["engine cache"] == two["engine cache"]
    assert eight["engine cache"][1] == 2 * base["engine cache"][1], "the model has four such heads"
    assert eight["engine steps and adapters"][1] == 8 * base["engine steps and adapters"][1]
    assert two["processes"][1] - base["processes"][1] == 4 * 2 * (400 << 20)


def test_too_little_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(Available(64 * GIB, NODE.gpus), monkeypatch) == (
        "memory: the run needs at least 181.3 GiB of host memory, most for loading and delivering weights (174.3 GiB), "
        "and this machine has 64.0 GiB; take a smaller solver.model, fewer engines or learners, or solver.lora_rank."
    )


def test_too_little_gpu_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    said = refused(Available(1024 * GIB, (64 * GIB,) * 4), monkeypatch)
    assert said.startswith("memory: a GPU needs at least 65.4 GiB (41.9 GiB for a learner")
    assert "22.4 GiB for an engine, 1.2 GiB for contexts), and one here has 64.0 GiB; take more learners" in said
    assert said.endswith("solver.lora_rank or solver.gradient_checkpointing.")


@pytest.mark.parametrize(
    ("preset", "name", "layers", "gib"),
    [
        ("qwen2.5-7b", "7b", 28, 79.1),
        ("toolace-2-8b", "8b", 32, 79.1),
        ("one-gpu-80gb", "8b", 32, 79.1),
        ("one-gpu-24gb", "3b", 36, 23.5),
    ],
)
def test_presets_fit_the_gpus_that_they_are_for(
    preset: str, name: str, layers: int, gib: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, shapes = shapes_of(name, layers)
    monkeypatch.setattr(memory_estimate, "checkpoint_shapes", lambda _: shapes)
    spec = make_config([preset]).spec
    gpus = (int(gib * GIB),) * max(1, spec.learners.num_learners)
    check_parts(parts(spec, model), Available(2048 * GIB, gpus), spec=spec)
    assert sum(gpu_needs(parts(spec, model), spec, gpus[0]).values()) < gpus[0] - GIB, "fragments of memory"


def test_what_each_gpu_holds() -> None:
    def on_a_gpu(*words: str) -> dict[str, int]:
        spec = make_config(["qwen2.5-7b"], overrides=words).spec
        return gpu_needs(parts(spec, QWEN_7B), spec, 80 * GIB)

    together, more = on_a_gpu(*FOUR), on_a_gpu()
    assert together.keys() == {"a learner", "an engine", "contexts"}
    assert together["an engine"] == int(0.35 * 80 * GIB)
    assert 0.55 < more["a learner"] / together["a learner"] < 0.75, "shards halve, whole layers do not"
    apart = on_a_gpu(*FOUR, "learners.num_gpus_per_learner=1", "engine.num_gpus_per_engine=1")
    assert apart.keys() == {"a learner", "contexts"}, "the larger of the two"


def test_too_small_a_share_of_each_of_two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = ("engine.tensor_parallel=2", "engine.num_gpus_per_engine=2")
    assert "one dialogue, 10.4 GiB; raise it" in refused(NODE, monkeypatch, *ranks, "engine.gpu_memory_share=0.1")


def test_too_small_a_share_for_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(NODE, monkeypatch, "engine.gpu_memory_share=0.1") == (
        "engine.gpu_memory_share: 0.1 of a GPU's 80.0 GiB does not hold an engine's weights, what its steps "
        "work with and one dialogue, 17.9 GiB; raise it, or lower solver.context."
    )


@pytest.mark.parametrize("there", [NODE, Available(1024 * GIB)])
def test_enough_memory_and_gpus_elsewhere(there: Available, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_estimate, "available", lambda: there)
    checks.check_memory(make_config(["qwen2.5-7b"]).spec, QWEN_7B)


def test_engines_on_gpus_that_ray_is_not_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("engine.num_gpus_per_engine=0", "engine.num_engines=1")
    assert refused(NODE, monkeypatch, *words).startswith("engine.num_gpus_per_engine: 0 sets no GPU aside")
    monkeypatch.setattr(memory_estimate, "available", lambda: NODE)
    checks.check_memory(make_config(["qwen2.5-7b"], overrides=[*words, "engine.kind=transformers"]).spec, QWEN_7B)


def test_a_cluster_may_hold_what_this_machine_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_estimate, "available", lambda: Available(GIB))
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    checks.check_memory(make_config(["qwen2.5-7b"]).spec, QWEN_7B)


@pytest.mark.parametrize("gpus", [3, 7])
def test_shares_that_add_up_to_all_there_is_fit(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.2 and 0.8 of each GPU are 3.0000000000000004 of three."""
    engines = [f"engine.num_engines={gpus}", "engine.num_gpus_per_engine=0.2"]
    learners = [f"learners.num_learners={gpus}", "learners.num_gpus_per_learner=0.8"]
    spec = make_config(overrides=[*engines, *learners]).spec
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 99.0, "GPU": float(gpus)})
    check_fits(spec)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 99.0, "GPU": gpus - 0.1})
    assert "GPUs and the cluster has" in refusal(check_fits, spec)


def test_the_gpus_of_an_engine_are_on_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make_config(overrides=["engine.tensor_parallel=4", "engine.num_gpus_per_engine=4"]).spec
    nodes = [{"Alive": True, "Resources": {"CPU": 99.0, "GPU": 2.0}}, {"Alive": True, "Resources": {"CPU": 99.0}}] * 2
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 396.0, "GPU": 4.0})
    monkeypatch.setattr(ray, "nodes", lambda: [*nodes, {"Alive": False, "Resources": {"GPU": 8.0}}])
    assert refusal(check_fits, spec) == (
        "engine.tensor_parallel: 4 takes GPUs of one machine, and the largest here has 2; lower it."
    )
    monkeypatch.setattr(ray, "nodes", lambda: [*nodes, {"Alive": True, "Resources": {"GPU": 4.0}}])
    check_fits(spec)


def test_what_this_machine_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limit, none = tmp_path / "limit", tmp_path / "none"
    limit.write_text("123456789\n")
    none.write_text("max\n")
    monkeypatch.setattr(memory_estimate, "CGROUP_LIMITS", (str(none), str(tmp_path / "missing")))
    whole = available().host
    assert whole > GIB
    monkeypatch.setattr(memory_estimate, "CGROUP_LIMITS", (str(limit),))
    assert available().host == 123_456_789


LAYERS = {"3b": 36, "7b": 28, "8b": 32}
SHARDED = [
    *(("3b", 4, 4096, True, 0), ("7b", 8, 4096, True, 0), ("8b", 8, 4096, False, 0), ("7b", 4, 16_384, True, 0)),
    *(("7b", 16, 16_384, True, 0), ("8b", 16, 4096, True, 0), ("3b", 16, 4096, False, 0)),
    *(("3b", 4, 4096, True, 16), ("7b", 16, 16_384, True, 16), ("8b", 8, 4096, False, 16)),
]


@ONLY_BY_LONG
def test_a_sharded_learner_takes_what_pytorch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """On fake tensors of the true shapes."""
    # Sixteen learners are on two machines, and weights are sharded over the eight of each.
    words = [f"{name},{LAYERS[name]},{min(n, 8)},{tokens},{int(each)},{r}" for name, n, tokens, each, r in SHARDED]
    command = [sys.executable, "-m", "tests.seal_ray.algorithm.fsdp_memory", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    for case, line in zip(SHARDED, done.stdout.split(), strict=True):
        name, learners, tokens, checkpoints, rank = case
        model, shapes = shapes_of(name, LAYERS[name])
        monkeypatch.setattr(memory_estimate, "checkpoint_shapes", lambda _, shapes=shapes: shapes)
        overrides = [
            f"learners.num_learners={learners}",
            f"training.microbatch_tokens={tokens}",
            f"solver.gradient_checkpointing={str(checkpoints).lower()}",
            f"solver.lora_rank={rank}",
        ]
        found = {part.name: part.size for part in parts(make_config(["qwen2.5-7b"], overrides=overrides).spec, model)}
        gradients = found["learner gradients and moments"] // 3
        kept = ("learner weights", "reference policy", "learner activations and whole layers")
        estimate = (sum(found[each] for each in kept) + gradients) / learners
        moments = 2 * gradients / learners
        assert (estimate + moments) / (int(line) + moments) == pytest.approx(1.0, abs=0.05), case
