"""The proof of delivery on modules made for it; on whole engines it is tested in `test_vllm_engine`."""

import torch
from torch import nn

from policies.engine.delivery import stale_modules


class Fused(nn.Module):
    """A model whose one layer is stored in two parts, and its norm as it is."""

    packed_modules_mapping = {"both": ["left", "right"]}  # noqa: RUF012 - as vLLM's models declare it

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(4, 6, bias=False)
        self.norm = nn.LayerNorm(4)

    def checkpoint(self) -> dict[str, torch.Tensor]:
        weight = self.both.weight.detach().clone()
        norm = {f"norm.{name}": value.detach().clone() for name, value in self.norm.named_parameters()}
        return {".left.weight": weight[:2], ".right.weight": weight[2:], **norm}


def test_tensors_are_compared_to_the_last_bit_and_one_that_no_module_uses_is_not_proven() -> None:
    model = Fused()
    assert stale_modules(model, model.checkpoint()) == []
    for name, module in ((".left.weight", "both"), (".right.weight", "both"), ("norm.bias", "norm")):
        changed = model.checkpoint()
        changed[name] = torch.nextafter(changed[name], torch.tensor(9.0))
        assert stale_modules(model, changed) == [module]
    assert stale_modules(model, {**model.checkpoint(), "elsewhere.weight": torch.ones(2)}) == ["elsewhere.weight"]
