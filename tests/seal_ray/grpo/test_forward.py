"""The forward pass and its gradient: packed rows are independent, and equal the plain reference."""

import contextlib
import copy
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import Lfm2Config, MistralConfig, Qwen2Config

from envs.errors import UserError
from seal_ray.grpo import forward
from seal_ray.grpo.attention import SEGMENTS, choose_attention
from seal_ray.grpo.forward import token_logprobs
from seal_ray.grpo.losses import GRPOLoss, LossSums, global_mean
from seal_ray.grpo.packing import Segment, collate
from seal_ray.grpo.rows import Row, make_row
from tests.seal_ray.grpo.models import VOCABULARY, alone, random_group, random_rows, tiny_model, with_adapter
from tests.seal_ray.grpo.reference import batch_loss, scores


@pytest.mark.parametrize("checkpoints", [False, True], ids=["", "checkpoints"])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("implementation", [SEGMENTS, "sdpa", "eager"])
@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_packed_rows_do_not_see_each_other(kind: str, implementation: str, training: bool, checkpoints: bool) -> None:
    model: Any = tiny_model(kind, attention=implementation).train(training)
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
def test_under_an_output_layer_that_does_not_learn_the_gradient_is_the_same(
    temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = tiny_model("llama")
    packed = collate(alone(random_rows(9, (40, 40))))
    weights_M = torch.randn(len(packed.targets_M), dtype=torch.float64)
    monkeypatch.setattr(forward, "LOGITS", 10 * 4 * VOCABULARY)
    output = model.get_output_embeddings()
    found = []
    for learns in (True, False):
        output.weight.requires_grad_(learns)
        learning = [each for each in model.get_decoder().layers.parameters() if each.requires_grad]
        logprobs_M = token_logprobs(model, packed, temperature=temperature)
        found.append([logprobs_M, *torch.autograd.grad((weights_M * logprobs_M).sum(), learning)])
    for expected, given in zip(*found, strict=True):
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


TEMPERATURE = 0.7
SETTINGS = {
    "recipe": GRPOLoss.Settings(kl=0.05),
    "dual clip": GRPOLoss.Settings(kl=0.05, dual_clip=1.5, clip_low=0.3),
    "importance": GRPOLoss.Settings(kl=0.05, importance_cap=1.3),
    "bare": GRPOLoss.Settings(kl=0.0, dual_clip=None),
}
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}


class Case:
    """A model, its reference, and rows whose sampling log-probs differ from the model's by enough to clip."""

    def __init__(self, kind: str, *, lora: bool, seed: int = 3) -> None:
        base = tiny_model(kind, attention="sdpa")
        self.model: nn.Module = with_adapter(base) if lora else base
        self.frozen = tiny_model(kind, attention="sdpa", seed=int(not lora))
        numbers = np.random.default_rng(seed)
        self.rows: list[Row] = []
        self.proximal: list[list[float]] = []
        with torch.no_grad():
            for row in random_rows(seed):
                current = np.array([float(score) for score in scores(self.model, row, TEMPERATURE)])
                sampled_logprobs_T = row.sampled_logprobs_T.copy()
                sampled_logprobs_T[row.mask_T] = current + numbers.normal(0, 0.7, len(current))
                self.rows.append(replace(row, sampled_logprobs_T=sampled_logprobs_T))
                self.proximal.append(list(current + numbers.normal(0, 0.3, len(current))))
            self.reference = [[float(s) for s in scores(self.frozen, row, TEMPERATURE)] for row in self.rows]

    def expected(self, settings: GRPOLoss.Settings) -> tuple[float, dict[str, Tensor]]:
        """Loss and gradients by the reference, in float64."""
        model = copy.deepcopy(self.model)
        loss = batch_loss(model, self.rows, settings, TEMPERATURE, self.reference, self.proximal)
        return loss.item(), gradients(model, loss)

    def found(
        self,
        settings: GRPOLoss.Settings,
        bins: Sequence[Sequence[int]],
        dtype: torch.dtype,
        *,
        checkpoints: bool = False,
    ) -> tuple[float, dict[str, Tensor], LossSums]:
        """Loss and gradients over bins of rows, one micro-batch each."""
        model: Any = copy.deepcopy(self.model).to(dtype)
        if checkpoints:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        frozen = copy.deepcopy(self.frozen).to(dtype)
        for each in (model, frozen):
            with_segments(each)
        tokens = sum(row.sampled_tokens for row in self.rows)
        losses, sums = [], LossSums()
        for each in bins:
            packed = collate([[self.rows[index]] for index in each])
            with torch.no_grad(), adapter_off(model):
                reference_M = token_logprobs(
                    model if isinstance(model, PeftModel) else frozen, packed, temperature=TEMPERATURE
                )
            logprobs_M = token_logprobs(model, packed, temperature=TEMPERATURE)
            assert logprobs_M.dtype == dtype
            losses_M = GRPOLoss(settings)(
                logprobs_M,
                packed.sampled_logprobs_M,
                packed.advantages_M,
                reference_logprobs_M=reference_M,
                proximal_logprobs_M=torch.tensor([value for index in each for value in self.proximal[index]]),
            )
            losses.append(global_mean(losses_M.loss_sum, tokens))
            sums += losses_M.sums
        loss = torch.stack(losses).sum()
        assert sums.tokens == tokens
        assert sums.loss / tokens == pytest.approx(loss.item(), rel=1e-5)
        return loss.item(), gradients(model, loss), sums


def with_segments(model: Any) -> None:
    """Has a model, or what an adapter is on, use the attention over segments."""
    base: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    base.set_attn_implementation(SEGMENTS)


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    loss.backward()  # type: ignore[no-untyped-call]
    return {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}


@contextlib.contextmanager
def adapter_off(model: Any) -> Iterator[None]:
    with model.disable_adapter() if isinstance(model, PeftModel) else contextlib.nullcontext():
        yield


def assert_equal(
    found: tuple[float, dict[str, Tensor]], expected: tuple[float, dict[str, Tensor]], tolerance: float
) -> None:
    assert found[0] == pytest.approx(expected[0], rel=tolerance)
    assert found[1].keys() == expected[1].keys()
    whole = torch.stack([gradient.norm() for gradient in expected[1].values()]).norm()
    assert whole > 1e-3
    for name, gradient in expected[1].items():
        # A tensor whose gradient is next to nothing is compared with a thousandth of the whole.
        assert (found[1][name] - gradient).norm() <= tolerance * (gradient.norm() + 1e-3 * whole), name


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_packed_and_unpacked_equal_the_reference(kind: str, lora: bool, name: str) -> None:
    case, settings = Case(kind, lora=lora), SETTINGS[name]
    expected = case.expected(settings)
    everything = range(len(case.rows))
    for dtype, tolerance in TOLERANCE.items():
        for bins in ([list(everything)], [[index] for index in everything], [[3, 0], [4, 2, 1]]):
            loss, gradient, sums = case.found(settings, bins, dtype)
            assert_equal((loss, gradient), expected, tolerance)
            assert sums.clipped_low
            assert sums.clipped_high
            assert (sums.clipped_dual > 0) == (name == "dual clip")
            assert 0 < sums.capped < sums.tokens if name == "importance" else sums.capped == 0


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_checkpoints_and_chunks_change_nothing(kind: str, lora: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case, settings = Case(kind, lora=lora), SETTINGS["recipe"]
    monkeypatch.setattr(forward, "LOGITS", 4 * 4 * VOCABULARY)
    loss, gradient, _ = case.found(settings, [[0, 1, 2, 3, 4]], torch.float64, checkpoints=True)
    assert_equal((loss, gradient), case.expected(settings), 1e-8)
