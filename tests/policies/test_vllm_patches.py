"""What is mended in vLLM computes what vLLM computes."""

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
    vllm_patches._compute_norms_in_one_operation()
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
