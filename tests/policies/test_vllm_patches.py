"""The patches of vLLM compute the same as vLLM."""

import pytest
import torch

from policies.engine import vllm_patches

DTYPES = [(torch.float32, 1e-6), (torch.bfloat16, 0.01)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what vLLM imports
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("shape", [(1, 64), (7, 64), (5, 3, 64)])
def test_norms_in_one_operation_are_vllms(
    shape: tuple[int, ...], dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.layernorm import RMSNorm

    native = RMSNorm.forward_native
    monkeypatch.setattr(RMSNorm, native.__name__, native)  # to be put back
    vllm_patches.compute_norms_in_one_operation()
    assert RMSNorm.forward_native is not native
    with set_current_vllm_config(VllmConfig()):
        weighted, plain = RMSNorm(64, dtype=dtype), RMSNorm(64, dtype=dtype, has_weight=False)
    drawn = torch.Generator().manual_seed(0)
    weighted.weight.data = (torch.rand(64, generator=drawn) + 0.5).to(dtype)
    x, residual = (3.0 * torch.randn(shape, generator=drawn).to(dtype) for _ in range(2))
    spread = x.repeat_interleave(2, dim=-1)[..., ::2]  # the same values, not side by side
    for norm, given in ((weighted, x), (weighted, spread), (plain, x)):
        alone = norm(given), native(norm, x.clone())
        torch.testing.assert_close(*alone, rtol=tolerance, atol=tolerance)
        copy = given.clone() if given.is_contiguous() else given
        added = norm(copy, residual.clone()), native(norm, x.clone(), residual.clone())
        torch.testing.assert_close(*added, rtol=tolerance, atol=tolerance)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what vLLM imports
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("is_prefill", [True, False])
@pytest.mark.parametrize("adapters", [(1, 1, 1, 1), (2, 0, 1, 2), (0, 2, 2, 0), (0, 0, 0, 0)])
def test_an_adapter_is_added_to_the_rows_that_ask_for_it(
    adapters: tuple[int, ...], is_prefill: bool, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adapter 0 is none; 1 and 2 are in slots of their own. Each has two slices, as queries and values have."""
    from vllm.lora.layers.utils import LoRAMapping
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

    for name in ("update_metadata", "add_lora_linear"):
        monkeypatch.setattr(PunicaWrapperCPU, name, getattr(PunicaWrapperCPU, name))  # to be put back
    vllm_patches.keep_adapters_to_their_own_rows()
    wrapper = PunicaWrapperCPU(16, 16, "cpu")
    mapping = LoRAMapping(index_mapping=adapters, prompt_mapping=adapters, is_prefill=is_prefill)
    wrapper.update_metadata(mapping, [2, None, 1], 3, 100)
    drawn, sizes, rank, slots = torch.Generator().manual_seed(0), (6, 3), 2, {2: 0, 1: 2}
    x, before = torch.randn(4, 8, generator=drawn).to(dtype), torch.randn(4, 9, generator=drawn).to(dtype)
    halves_a = tuple(torch.randn(3, 1, rank, 8, generator=drawn).to(dtype) for _ in sizes)
    halves_b = tuple(torch.randn(3, 1, size, rank, generator=drawn).to(dtype) for size in sizes)
    output = before.clone()
    wrapper.add_lora_linear(output, x, halves_a, halves_b, 0.5, sizes)
    for row, adapter in enumerate(adapters):
        if adapter == 0:
            assert output[row].tolist() == before[row].tolist()
            continue
        pairs = zip(halves_a, halves_b, strict=True)
        products = [b[slots[adapter], 0].double() @ (a[slots[adapter], 0].double() @ x[row].double()) for a, b in pairs]
        expected = before[row].double() + 0.5 * torch.cat(products)
        torch.testing.assert_close(output[row].double(), expected, rtol=tolerance, atol=5 * tolerance)
