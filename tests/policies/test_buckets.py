"""Weights in buckets: how a checkpoint is divided, the checksum, and the buffer of a CPU."""

import pytest
import torch

from policies.engine.buckets import SharedBuffer, bucket_names, checksum, loaded_module, open_buffer

SHAPES = {
    "model.embed_tokens.weight": (10, 4),
    "model.layers.10.mlp.up_proj.weight": (4, 4),
    "model.layers.1.mlp.up_proj.weight": (4, 4),
    "model.norm.weight": (4,),
    "model.layers.10.mlp.gate_proj.weight": (4, 4),
    "lm_head.weight": (10, 4),
}
CPU = torch.device("cpu")


def test_layers_are_not_divided_and_buckets_hold_no_more_than_their_limit() -> None:
    for limit in (1, 100, 160, 244, 10_000):
        buckets = bucket_names(SHAPES, bytes_per_value=2, limit=limit)
        assert sorted(name for names in buckets for name in names) == sorted(SHAPES)
        for names in buckets:
            size = sum(2 * torch.Size(SHAPES[name]).numel() for name in names)
            assert size <= limit or len({loaded_module(name) for name in names}) == 1
    assert len(bucket_names(SHAPES, bytes_per_value=2, limit=10_000)) == 1
    assert [loaded_module(name) for name in SHAPES] == [
        *("model.embed_tokens", "model.layers.10", "model.layers.1", "model.norm", "model.layers.10", "lm_head")
    ]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_an_opened_buffer_has_the_tensors_and_a_changed_one_is_refused(dtype: torch.dtype) -> None:
    tensors = {name: torch.randn(shape).to(dtype) for name, shape in SHAPES.items()}
    shared = SharedBuffer(tensors)
    kind = str(dtype).removeprefix("torch.")
    opened = open_buffer(shared.handle, SHAPES, kind, shared.checksum, CPU)
    assert opened.keys() == tensors.keys()
    assert all(torch.equal(opened[name], tensor) for name, tensor in tensors.items())
    other = SharedBuffer({**tensors, "model.norm.weight": tensors["model.norm.weight"].flip(0)})
    shorter = SharedBuffer({name: tensor for name, tensor in tensors.items() if name != "lm_head.weight"})
    for handle, expected in ((other.handle, shared.checksum), (shorter.handle, shorter.checksum)):
        with pytest.raises(RuntimeError, match="does not hold the weights that were sent"):
            open_buffer(handle, SHAPES, kind, expected, CPU)


def test_a_checksum_has_each_value_and_its_place() -> None:
    tensor = torch.randn(1000).bfloat16()
    whole = checksum(tensor)
    assert checksum(tensor, chunk=64) == whole
    for changed in (tensor.flip(0), torch.cat([tensor[500:], tensor[:500]]), torch.nextafter(tensor, tensor + 1)):
        assert checksum(changed) != whole
