"""`seal-ray rehearse` with the small model, on one Ray node and on two, of which it kills one."""

import re
from pathlib import Path

import pytest

from tests.processes import seal_ray

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("nodes", "actors", "end", "half"),
    [
        (1, "env runners: 1, learners: 1, engines: 1", "interrupted", "rounds [45] to 5"),
        pytest.param(
            *(2, "env runners: 2, learners: 2, engines: 2", "a node was killed", "learners.fsdp=false: rounds 4 to 5"),
            marks=pytest.mark.only_by(target="rehearse"),
        ),
    ],
)
def test_a_run_is_rehearsed_to_its_end(tmp_path: Path, nodes: int, actors: str, end: str, half: str) -> None:
    words = ("learners.num_learners=1", "training.groups=4", "training.minibatch_groups=2", "engine.kind=transformers")
    options = ("--preset", "tiny", "--preset", "vanilla", "--name", "it", "--runs", str(tmp_path))
    said = " ".join(seal_ray("rehearse", *options, "--nodes", str(nodes), *words, COLUMNS="300").split())
    assert f"{actors}; restarts: engine 1, runner 1, run 1; then {end}" in said
    assert re.search(half, said)
    assert 'get_weather({"celsius": ' in said
    taken = seal_ray("rehearse", *options, code=2)
    assert taken.strip() == f"error: --name: {tmp_path / 'it'} exists; give another name."
