"""FSDP2: how weights are sharded over learners and machines."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from seal_ray.training.module import LMModule


def mesh_shape(machines: Sequence[str]) -> tuple[int, ...]:
    """(machines, learners on each) of learners on these machines; (learners,) if they are not spread evenly.

    Weights are sharded over the last dimension and copied over the first, so that only gradients cross the network.
    """
    sizes = Counter(machines)
    each = len(machines) // len(sizes)
    is_even = each > 1 and all(len(set(machines[at : at + each])) == 1 for at in range(0, len(machines), each))
    return (len(sizes), each) if is_even and len(sizes) > 1 else (len(machines),)


def shard_module(module: LMModule, mesh: DeviceMesh) -> None:
    """Shards each layer over the learners, then the rest (FSDP2), and moves them to the mesh's devices.

    Embeddings are whole only while they are used, unless they are the output layer too. That is whole for a whole step,
    since it is called in chunks; the reference policy's until the end of its forward pass.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if module.half else MixedPrecisionPolicy()
    for part in list(module.modules()):
        if isinstance(part, nn.ModuleList):
            for layer in part:
                fully_shard(layer, mesh=mesh, mp_policy=policy)
    models: tuple[Any, ...] = (module.language_model, module.reference)
    for model in models:
        if model is not None:
            embedding, output = model.get_input_embeddings(), model.get_output_embeddings()
            is_tied = embedding.weight is output.weight
            if not is_tied:
                fully_shard(embedding, mesh=mesh, mp_policy=policy)
            is_reference = model is module.reference
            if is_reference:
                if is_tied:
                    model.set_output_embeddings(_TiedOutput(embedding))
                last = model.get_decoder() if is_tied else output
                fully_shard(last, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
                module.reshard_reference = last.reshard
    fully_shard(module, mesh=mesh, mp_policy=policy)


class _TiedOutput(nn.Module):
    """An output layer with an embedding's weights, that FSDP does not know.

    FSDP expects each module of a group to be called once in a forward pass. An output layer is called for each chunk of
    tokens, and the learners, which must gather weights together, can have different numbers of them.
    """

    def __init__(self, embedding: nn.Module) -> None:
        super().__init__()
        self._embedding = (embedding,)  # not as a submodule

    def forward(self, hidden_MH: Tensor) -> Tensor:
        (embedding,) = self._embedding
        return nn.functional.linear(hidden_MH, embedding.weight)  # type: ignore[arg-type]
