"""The forward pass and its gradient: packed rows are independent, and chunks of logits change nothing."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Lfm2Config, MistralConfig, Qwen2Config

from envs.errors import UserError
from seal_ray.grpo import forward
from seal_ray.grpo.attention import SEGMENTS, choose_attention
from seal_ray.grpo.forward import token_logprobs
from seal_ray.grpo.packing import Segment, collate
from seal_ray.grpo.rows import make_row
from tests.seal_ray.grpo.models import VOCABULARY, alone, random_group, random_rows, tiny_model


@pytest.mark.parametrize("checkpoints", [False, True], ids=["", "checkpoints"])
@pytest.mark.parametrize("implementation", [SEGMENTS, "sdpa", "eager"])
@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_packed_rows_do_not_see_each_other(kind: str, implementation: str, checkpoints: bool) -> None:
    model: Any = tiny_model(kind, attention=implementation).train(checkpoints)
    if checkpoints:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    rows = random_rows(5)
    packed = collate(alone(rows))
    together_M = token_logprobs(model, packed)
    alone_M = torch.cat([token_logprobs(model, collate([[row]])) for row in rows])
    # Eager attention takes its softmax in float32, whatever the model is in.
    tolerance = 1e-4 if implementation == "eager" else 1e-10
    torch.testing.assert_close(together_M, alone_M, rtol=tolerance, atol=tolerance)

    # Were the rows one text to the model, this would show it.
    length = packed.token_ids_1N.shape[1]
    one_text = (Segment(0, length, length, ()),)
    leaking = dataclasses.replace(packed, position_ids_1N=torch.arange(length)[None], segments=one_text)
    differs = (token_logprobs(model, leaking) - alone_M).abs()[rows[0].sampled_tokens :]
    assert (differs > 1e-2).float().mean() > 0.8


def test_rows_of_one_token_are_rows_too() -> None:
    model = tiny_model("qwen2")
    rows = random_rows(6, (5, 6))
    fields = ("token_ids_T", "mask_T", "sampled_logprobs_T")
    single = dataclasses.replace(rows[0], **{name: getattr(rows[0], name)[:1] for name in fields})
    together_M = token_logprobs(model, collate(alone([single, single, rows[0], single, rows[1]])))
    torch.testing.assert_close(together_M, token_logprobs(model, collate(alone(rows))), rtol=1e-10, atol=1e-10)
    assert len(token_logprobs(model, collate([[single]]))) == 0


def test_log_probs_are_at_least_float32_and_normalised_at_the_temperature() -> None:
    packed = collate(alone(random_rows(7)))
    assert token_logprobs(tiny_model("llama").to(torch.bfloat16), packed).dtype == torch.float32
    model: Any = tiny_model("llama", attention="sdpa")
    logits_NV = model(input_ids=packed.token_ids_1N, position_ids=packed.position_ids_1N, use_cache=False).logits[0]
    expected_M = (logits_NV / 0.5).log_softmax(-1)[packed.predicts_M, packed.targets_M]
    torch.testing.assert_close(token_logprobs(model, packed, temperature=0.5), expected_M)


def test_chunks_bound_the_logits_that_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = tiny_model("llama")
    packed = collate(alone(random_rows(8, (40, 40))))
    seen: list[int] = []
    model.get_output_embeddings().register_forward_hook(lambda _module, _inputs, output: seen.append(len(output)))
    monkeypatch.setattr(forward, "LOGITS", 10 * 4 * VOCABULARY)
    saved: list[torch.Size] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        token_logprobs(model, packed)
    assert sum(seen) == len(packed.targets_M) < packed.token_ids_1N.shape[1]
    assert max(seen) == 10
    assert not [shape for shape in saved if shape[-1:] == (100,) and len(shape) == 2 and shape[0] != 32]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_gradient_in_chunks_is_that_of_the_whole_logits(
    temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output layer that does not learn takes another way to it."""
    model: Any = tiny_model("llama", attention="sdpa")
    packed = collate(alone(random_rows(9, (40, 40))))
    weights_M = torch.randn(len(packed.targets_M), dtype=torch.float64)
    monkeypatch.setattr(forward, "LOGITS", 10 * 4 * VOCABULARY)
    output = model.get_output_embeddings()

    def whole() -> Tensor:
        logits_NV = model(input_ids=packed.token_ids_1N, position_ids=packed.position_ids_1N, use_cache=False).logits[0]
        found: Tensor = (logits_NV / temperature).log_softmax(-1)[packed.predicts_M, packed.targets_M]
        return found

    def chunks() -> Tensor:
        return token_logprobs(model, packed, temperature=temperature)

    found = []
    for learns, logprobs in ((True, whole), (True, chunks), (False, chunks)):
        output.weight.requires_grad_(learns)
        logprobs_M = logprobs()
        layers = list(model.get_decoder().layers.parameters())
        learning = [*layers, *([output.weight] if learns else [])]
        found.append([logprobs_M, *torch.autograd.grad((weights_M * logprobs_M).sum(), learning)])
    for values in found[1:]:
        for given, expected in zip(values, found[0], strict=False):
            torch.testing.assert_close(given, expected, rtol=1e-10, atol=1e-12)
    seen: list[int] = []
    output.register_forward_hook(lambda _module, _inputs, _output: seen.append(1))
    token_logprobs(model, packed)
    assert not seen, "it is another way, not the same one"


class Fixed(torch.nn.Module):
    """A language model whose hidden states are given."""

    config = SimpleNamespace(vocab_size=50, _attn_implementation="sdpa")

    def __init__(self, output: torch.nn.Linear, hidden_1NH: torch.Tensor) -> None:
        super().__init__()
        self.output, self.hidden_1NH = output, hidden_1NH

    def get_output_embeddings(self) -> torch.nn.Linear:
        return self.output

    def get_decoder(self) -> Any:
        return lambda **_: SimpleNamespace(last_hidden_state=self.hidden_1NH)


def test_of_a_likely_token_the_gradient_is_right_in_half_precision() -> None:
    """Its derivative is the small difference of two large terms."""
    torch.manual_seed(0)
    output = torch.nn.Linear(16, 50, bias=False)
    direction_H = output.weight[7].detach()
    hidden_1NH = (16.0 * direction_H / direction_H.norm() ** 2).expand(1, 2, 16).clone().requires_grad_()
    model, packed = Fixed(output, hidden_1NH), collate([[make_row([0, 7], [False, True], [0.0, 0.0], 1.0)]])
    logprob_M = token_logprobs(model, packed)
    assert 0.99 < logprob_M.exp() < 0.9999
    (expected,) = torch.autograd.grad(logprob_M.sum(), hidden_1NH)
    output.requires_grad_(False)
    with torch.autocast("cpu", torch.bfloat16):
        (gradient,) = torch.autograd.grad(token_logprobs(model, packed).sum(), hidden_1NH)
    assert float((gradient - expected).norm() / expected.norm()) < 0.1


def test_transformers_own_attention_is_left_for_what_the_kernels_cannot_do() -> None:
    config, windowed = Qwen2Config(), Qwen2Config(use_sliding_window=True, sliding_window=64, max_window_layers=1)
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert {choose_attention(config, cpu, half=half) for half in (False, True)} == {SEGMENTS}
    assert choose_attention(config, cuda, half=True) == SEGMENTS
    assert choose_attention(config, cuda, half=False) == "sdpa"
    assert choose_attention(windowed, cpu, half=False) == "sdpa"
    assert choose_attention(MistralConfig(sliding_window=64), cpu, half=False) == "sdpa", "it lists no layers"
    assert choose_attention(MistralConfig(sliding_window=None), cpu, half=False) == SEGMENTS
    with pytest.raises(UserError, match="lfm2 has layers of conv; such models cannot learn here"):
        choose_attention(Lfm2Config(full_attn_idxs=[2]), cpu, half=False)


def test_it_does_not_take_rows_that_share_tokens() -> None:
    with pytest.raises(ValueError, match="share"):
        token_logprobs(tiny_model("llama", attention="sdpa"), collate([random_group(0, 4, opening=3)]))
