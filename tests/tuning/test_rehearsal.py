"""`seal-ray rehearse` on two Ray nodes, of which it kills one, with the small model."""

from pathlib import Path

import pytest

from tests.processes import seal_ray

pytestmark = pytest.mark.long


def test_a_run_is_rehearsed_with_a_lost_node(tmp_path: Path) -> None:
    words = ("learners.num_learners=1", "training.groups=4", "training.minibatch_groups=2", "solver.context=768")
    options = ("--preset", "tiny", "--preset", "vanilla", "--nodes", "2", "--name", "it", "--runs", str(tmp_path))
    said = " ".join(seal_ray("rehearse", *options, *words, COLUMNS="300").split())
    assert "env runners: 2, learners: 2, engines: 2; restarts:" in said
    assert "then a node was killed" in said
    assert "learners.num_learners=1, engine.num_engines=1, learners.fsdp=false: rounds 4 to 5" in said
    assert 'get_weather({"celsius": ' in said
    taken = seal_ray("rehearse", *options, code=2)
    assert taken.strip() == f"error: --name: {tmp_path / 'it'} exists; give another name."
