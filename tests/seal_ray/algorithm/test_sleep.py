"""Engines that leave a GPU's memory to the learner: when they sleep, what a GPU then holds, and where they cannot."""

from pathlib import Path

import pytest

from seal_ray.algorithm.checks import check_model, check_run
from seal_ray.algorithm.config import make_config
from seal_ray.algorithm.memory_estimate import gpu_needs, parts
from tests.refusal import refusal
from tests.seal_ray.algorithm.configs import ROUNDS_IN_RAY, small_config
from tests.seal_ray.algorithm.engines import Logged
from tests.seal_ray.algorithm.runs import built

pytestmark = [*ROUNDS_IN_RAY, pytest.mark.long]


def test_engines_sleep_from_the_last_rollout_to_the_next_delivery(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    config = small_config(Logged(file=str(log))).engine(sleep=True)
    config.engine_factory = Logged(file=str(log))
    with built(config) as run:
        run.play(2)
        run.algorithm.run.deliver()
    calls = log.read_text("utf-8").split()
    changes = [call for call, before in zip(calls, ["", *calls], strict=False) if call != before]
    assert changes == ["update_weights", *["generate", "sleep", "update_weights"] * 2]


def test_a_gpu_holds_the_larger_of_what_computes() -> None:
    def on_a_gpu(*words: str) -> dict[str, int]:
        spec = make_config(["one-gpu-80gb", "seal"], overrides=["solver.model=Qwen/Qwen2.5-7B-Instruct", *words]).spec
        return gpu_needs(parts(spec, check_model(spec.solver, weights=False)), spec, 80 << 30)

    awake, playing = on_a_gpu(), on_a_gpu("engine.sleep=true")
    assert playing.keys() == {"a learner that delivers", "an engine", "contexts"}
    assert (
        sum(awake.values()) - sum(playing.values()) == awake["a learner"] - playing["a learner that delivers"] > 4 << 30
    )
    learning = on_a_gpu("engine.sleep=true", "engine.gpu_memory_share=0.05")
    assert learning.keys() == {"a learner", "an engine asleep", "contexts"}
    assert learning["a learner"] == awake["a learner"]


@pytest.mark.parametrize("words", [(), ("engine.num_gpus_per_engine=0.5", "engine.kind=transformers")])
@pytest.mark.parametrize("name", ["sleep", "batch_invariant"])
def test_only_vllm_on_gpus_can_sleep_or_be_batch_invariant(name: str, words: tuple[str, ...]) -> None:
    spec = make_config(["tiny", "vanilla"], overrides=[f"engine.{name}=true", *words]).spec
    assert refusal(check_run, spec).startswith(f"engine.{name}: it needs vLLM on GPUs")


def test_engines_that_play_while_learners_learn_cannot_sleep() -> None:
    words = ("engine.sleep=true", "training.staleness=1", "training.importance_cap=2.0")
    spec = make_config(["tiny", "vanilla"], overrides=words).spec
    assert "leave one out" in refusal(check_run, spec)
