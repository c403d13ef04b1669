"""The estimate of a round's seconds: the formulas, and the FLOPs that they assume."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, Qwen2Config

from seal_ray.algorithm.checks import check_model
from seal_ray.algorithm.config import make_config
from seal_ray.algorithm.time_estimate import FLOPS, round_phases


def seconds(*words: str, presets: tuple[str, ...] = ("qwen2.5-7b", "seal")) -> dict[str, float]:
    spec = make_config(presets, overrides=words).spec
    return {phase.name: phase.seconds for phase in round_phases(spec, check_model(spec.solver, weights=False))}


def test_phases_scale_with_what_they_depend_on() -> None:
    one, half = seconds(), seconds("engine.num_engines=16", "learners.num_learners=16")
    assert one["all"] == pytest.approx(sum(one.values()) - one["all"])
    assert half["learning"] == pytest.approx(one["learning"] / 2)
    assert half["reading prompts"] == pytest.approx(one["reading prompts"] / 2)
    assert one["sampling"] / 2 < half["sampling"] < one["sampling"], "weights are read for fewer dialogues too"
    stale = seconds("training.staleness=1")
    assert stale["delivery"] == pytest.approx(2 * one["delivery"]), "weights are copied to the host too"
    assert stale["all"] == pytest.approx(one["all"] + one["delivery"]), "they share GPUs"
    apart = seconds("training.staleness=1", "engine.num_gpus_per_engine=1")
    saved = min(one["learning"], one["reading prompts"] + one["sampling"])
    assert apart["all"] == pytest.approx(stale["all"] - saved)
    lora = seconds("solver.lora_rank=16")
    assert lora["delivery"] < one["delivery"] / 5, "by a file, but small"
    assert lora["learning"] == pytest.approx(one["learning"] * 8 / 10)
    assert seconds(presets=("tiny", "vanilla")) == {}, "no GPU"


def test_a_forward_pass_takes_two_operations_a_weight_and_token() -> None:
    shape = {"hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18_944}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(Qwen2Config(vocab_size=152_064, num_hidden_layers=28, **shape))
        tokens_BT = torch.zeros((1, 3000), dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(tokens_BT)
    expected = seconds()["learning"] * 8 * FLOPS * 0.35 / (10 / 2) / (32 * 5000 + 256 * 12 * 140)
    assert counter.get_total_flops() / 3000 == pytest.approx(expected, rel=0.1)
