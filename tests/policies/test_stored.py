"""Weights in memory that processes share: read elsewhere without a copy, and gone with their owner."""

import gc
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from policies.engine import stored
from policies.engine.stored import StoredWeights, digest, shared_memory, store

WEIGHTS = {
    "a": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "b": torch.ones(5, dtype=torch.bfloat16),
    "c": torch.tensor(2.5),
    "none": torch.empty(0, 3),
}
READ = """
import pickle, sys
from policies.engine.stored import digest
weights = pickle.load(sys.stdin.buffer)
print(weights.is_here(), digest(weights) == weights.digest if weights.is_here() else None)
"""


def read_elsewhere(pickled: bytes) -> str:
    found = subprocess.run([sys.executable, "-c", READ], input=pickled, check=True, capture_output=True)
    return found.stdout.decode().strip()


def test_another_process_reads_what_was_stored_and_none_of_it_travels() -> None:
    large = {"large": torch.randn(300, 1000)}
    weights = store(large)
    pickled = pickle.dumps(weights)
    assert len(pickled) < 1000
    assert read_elsewhere(pickled) == "True True"
    assert weights.digest == digest(large)
    large["large"].zero_()
    assert weights["large"].abs().sum() > 0, "the sender may train on"


def test_all_types_and_shapes_come_back() -> None:
    base = torch.randn(4, 6)
    sharing = {"tied": base, "too": base, "turned": base.T, "part": base[1:3, ::2]}
    weights = store({**WEIGHTS, **sharing})
    assert weights.keys() == {*WEIGHTS, *sharing}
    for name, tensor in (WEIGHTS | sharing).items():
        assert weights[name].dtype == tensor.dtype
        assert torch.equal(weights[name], tensor)
        assert weights.shapes[name] == tensor.shape
    assert store(weights) is weights
    with pytest.raises(KeyError):
        weights["d"]
    assert shared_memory(1 << 60) is None, "where memory has no room it is a temporary file"


def test_nothing_is_left_and_nothing_else_is_taken_for_it() -> None:
    before = os.listdir("/proc/self/fd")
    weights = store(WEIGHTS)
    path, pickled = weights.path, pickle.dumps(weights)
    copy: StoredWeights = pickle.loads(pickled)
    assert copy.is_here()
    del weights
    gc.collect()
    assert not copy.is_here()
    assert len(os.listdir("/proc/self/fd")) == len(before)
    with pytest.raises((OSError, SafetensorError)):
        copy["a"]
    other = store({"a": torch.zeros(3, 4)})
    assert other.path == path, "the system has given the descriptor's number again"
    assert not copy.is_here()
    assert read_elsewhere(pickled) == "False None"


def test_without_descriptors_of_processes_it_is_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stored, "PROCESSES", tmp_path / "none")
    monkeypatch.setattr(stored, "SHARED_MEMORY", str(tmp_path))
    weights = store(WEIGHTS)
    assert read_elsewhere(pickle.dumps(weights)) == "True True"
    (folder,) = tmp_path.iterdir()
    assert Path(weights.path).parent == folder
    del weights
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_the_digest_covers_names_shapes_types_and_bytes() -> None:
    tensors = {"a": torch.arange(6.0), "b": torch.zeros(0)}
    assert digest(tensors) == digest(dict(reversed(tensors.items())))
    others = [
        {"a": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(0)},
        {"a": torch.arange(6.0).double(), "b": torch.zeros(0)},
        {"a": torch.nextafter(torch.arange(6.0), torch.tensor(9.0)), "b": torch.zeros(0)},
        {"c": torch.arange(6.0), "b": torch.zeros(0)},
        {"a": torch.arange(6.0)},
    ]
    assert len({digest(tensors), *map(digest, others)}) == 6


def test_an_engine_actor_imports_neither_pytorch_nor_rllib_before_its_engine() -> None:
    program = (
        "import pickle, sys\n"
        "import seal_ray.rollout.engine_actor\n"
        "weights = pickle.load(sys.stdin.buffer)\n"
        "print(weights.is_here(), *(name for name in ('torch', 'ray.rllib') if name in sys.modules))\n"
        "print(weights['c'], 'torch' in sys.modules)"
    )
    weights = store(WEIGHTS)
    done = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(weights), capture_output=True, check=True)
    assert done.stdout.decode().split("\n")[:2] == ["True", "tensor(2.5000) True"]
