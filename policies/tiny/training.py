"""Supervised training of the tiny base on demonstrations; the weights depend on the recipe alone."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from policies import tiny
from policies.engine.choice import choose_dtype
from policies.prompting import ChatFormat
from policies.tiny.behaviours import CURATOR_WORDINGS, FIRST_WORDINGS, RARE_BEHAVIOURS, SOLVER_WORDINGS
from policies.tiny.demonstrations import Demonstration, demonstrations
from policies.tiny.encoding import (
    Example,
    encode,
    encode_bare_specifications,
    encode_proposal,
    encode_specifications,
    predicting_places,
    shared_prompt_inputs,
)
from policies.tiny.hidden import hidden_demonstrations, hidden_proposals
from policies.tiny.proposals import proposal_demonstrations
from policies.tiny.specifications import specification_demonstrations
from policies.tiny.start import put_copying_heads
from policies.tiny.tokenizer import END, train_tokenizer
from policies.tiny.world import compact_signature

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

BUFFER = 512
"""Demonstrations that are sorted by length together, so that a batch has little padding."""
SAVE_EVERY = 50
"""Steps between two saved states."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of training with its own schedule. `tokens` count padding too.

    `short` shows dialogues with few turns, which have more of the decisions that are hard to learn. `proposals` is the
    share of a curator's demonstrations, `specifications` that of a task writer's; both have so many `answers` to a
    prompt, and `bare` specifications have none. `decision_weight` is the weight of the loss at decisions
    (`Example.decided`). A `rounded` phase starts from weights rounded to bfloat16, like those of a finished model. With
    `held_out` the solver sees none of the wordings that the curator proposes.
    """

    tokens: int
    learning_rate: float
    short: bool = False
    proposals: float = 0.0
    decision_weight: float = 20.0
    rounded: bool = False
    specifications: float = 0.0
    answers: int = 1
    bare: bool = False
    held_out: bool = False


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that the tiny base depends on. `batch_tokens` count padding too.

    `start` names a shipped model for its initial tokenizer, weights and sizes. `rare` behaviours are never right in
    demonstrations without their cue (`behaviours.py`). `context_weight` is the weight of the loss on other tokens than
    the solver's: it teaches to copy, and the form of results. `sharpness` multiplies the finished model's logits, so
    that temperature 1 samples as one over it.
    """

    vocabulary: int = 1536
    hidden: int = 256
    intermediate: int = 768
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    context: int = 32_768
    rope_theta: float = 1e6
    tokenizer_demonstrations: int = 4_000
    phases: tuple[Phase, ...] = (
        Phase(6_500_000, 1.5e-3),
        Phase(7_500_000, 8e-4, short=True, proposals=0.08),
        # The decisions are learnt by now: this phase is for copying values.
        Phase(4_000_000, 7e-4, proposals=0.05, decision_weight=5.0, rounded=True),
    )
    batch_tokens: int = 2_048
    warm_up: float = 0.05
    weight_decay: float = 0.05
    context_weight: float = 0.1
    seed: int = 0
    sharpness: float = 1.0
    start: str | None = None
    rare: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """The tokens of all phases."""
        return sum(phase.tokens for phase in self.phases)


@dataclass(frozen=True, slots=True)
class HiddenPhase(Phase):
    """A part of the training of `tiny-hidden`, with proposals of a `mixture`."""

    mixture: str = "reading"


RARE_RECIPE = Recipe(
    start=tiny.NAME,
    rare=RARE_BEHAVIOURS,
    phases=(Phase(3_000_000, 4e-4, proposals=0.15, answers=4, rounded=True, held_out=True),),
)
"""The recipe of `tiny-rare`: the tiny base, trained on demonstrations in which two behaviours need their cue."""

WRITER_RECIPE = Recipe(
    start=tiny.NAME,
    phases=(
        # The form of a specification needs no prompt.
        Phase(1_200_000, 1.5e-3, specifications=1.0, answers=16, bare=True, decision_weight=1.0),
        Phase(1_200_000, 1e-3, specifications=1.0, answers=12, decision_weight=1.0, rounded=True),
    ),
    batch_tokens=4_096,
    context_weight=0.0,
    # A specification has some 73 tokens, and one wrong token spoils it.
    sharpness=1.5,
)
"""The recipe of `tiny-writer`: the tiny base, trained on task specifications alone. It cannot play dialogues."""

HIDDEN_RECIPE = Recipe(
    start=tiny.NAME,
    phases=(
        HiddenPhase(1_200_000, 1e-3, proposals=0.1, answers=4),
        HiddenPhase(1_200_000, 8e-4, proposals=0.1, answers=4, rounded=True),
        HiddenPhase(600_000, 8e-4, proposals=0.6, answers=8, decision_weight=5.0, rounded=True),
        HiddenPhase(400_000, 4e-4, proposals=0.5, answers=8, decision_weight=5.0, rounded=True, mixture="rare"),
    ),
    batch_tokens=1_024,
)
"""The recipe of `tiny-hidden`: the tiny base, trained on tools with hidden conventions and on proposals for them."""

Progress = Callable[[int, float], None]
"""Called with the tokens seen so far and the last batch's loss on the solver's tokens, in nats a token."""


def tokenizer_for(recipe: Recipe) -> PreTrainedTokenizerFast:
    """The tokenizer: that of the model to start from, or one trained on other demonstrations."""
    if recipe.start is not None:
        from transformers import PreTrainedTokenizerFast

        tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(tiny.SHIPPED[recipe.start])
        return tokenizer
    seed, number = recipe.seed + 1, recipe.tokenizer_demonstrations
    shown = itertools.islice(demonstrations(seed, wordings=FIRST_WORDINGS), number)
    proposed = itertools.islice(proposal_demonstrations(seed, wordings=FIRST_WORDINGS), number // 20)
    texts = itertools.chain(
        (text for each in shown for text in _texts(each)),
        (text for each in proposed for text in (*(message.content for message in each.messages), *each.answers)),
    )
    return train_tokenizer(texts, recipe.vocabulary)


def model_for(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """The model before its training."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    if recipe.start is not None:
        return Qwen2ForCausalLM.from_pretrained(tiny.SHIPPED[recipe.start], dtype=torch.float32)

    end = tokenizer.convert_tokens_to_ids(END)
    assert isinstance(end, int)
    torch.manual_seed(recipe.seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=recipe.vocabulary,
            hidden_size=recipe.hidden,
            intermediate_size=recipe.intermediate,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.kv_heads,
            max_position_embeddings=recipe.context,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=end,
            pad_token_id=tokenizer.pad_token_id,
            rope_parameters={"rope_type": "default", "rope_theta": recipe.rope_theta},
        )
    )
    put_copying_heads(model, rope_theta=recipe.rope_theta)
    return model


def train(
    model: Qwen2ForCausalLM, form: ChatFormat, recipe: Recipe, *, progress: Progress, state: Path | None = None
) -> None:
    """Trains in place, in bfloat16 (if the CPU has it) with weights in float32. Resumes from the file `state`."""
    saved = _load(state, recipe)
    seen = 0
    model.train()
    for number, phase in enumerate(recipe.phases):
        steps = phase.tokens // recipe.batch_tokens
        if saved is not None and number < saved["phase"]:
            seen += steps * recipe.batch_tokens
            continue
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=recipe.weight_decay)
        done = 0
        if saved is not None and number == saved["phase"]:
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            done = saved["step"]
        if phase.rounded and not done:
            _round(model)
        for step, batch in enumerate(itertools.islice(_batches(form, recipe, number), steps)):
            seen += recipe.batch_tokens
            if step < done:
                continue
            for group in optimizer.param_groups:
                group["lr"] = phase.learning_rate * _schedule(step / steps, recipe.warm_up)
            loss, said_loss = _loss(model, batch, phase.decision_weight, recipe.context_weight)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            progress(seen, said_loss)
            if state is not None and (step + 1) % SAVE_EVERY == 0:
                kept = {"recipe": asdict(recipe), "phase": number, "step": step + 1, "model": model.state_dict()}
                torch.save({**kept, "optimizer": optimizer.state_dict()}, part := state.with_suffix(".part"))
                part.replace(state)
    model.eval()


def _texts(demonstration: Demonstration) -> Iterator[str]:
    yield from map(compact_signature, demonstration.tools)
    yield from demonstration.completions
    for message in itertools.chain(demonstration.opening, *demonstration.answers):
        yield from map(compact_signature, message.tools) if message.tools else (message.content,)


def _batches(form: ChatFormat, recipe: Recipe, number: int) -> Iterator[list[Example]]:
    """Endless batches of a phase. No two phases have the same demonstrations."""
    seed = recipe.seed + 100 * number
    phase = recipe.phases[number]
    if isinstance(phase, HiddenPhase):
        shown, proposals = hidden_demonstrations(seed), hidden_proposals(seed, phase.mixture, answers=phase.answers)
    else:
        wordings = SOLVER_WORDINGS if phase.held_out else FIRST_WORDINGS
        shown = demonstrations(seed, short=phase.short, rare=recipe.rare, wordings=wordings)
        written = CURATOR_WORDINGS if phase.held_out else FIRST_WORDINGS
        proposals = proposal_demonstrations(seed, wordings=written, answers=phase.answers)
    source: Iterator[Example] = (encode(each, form) for each in shown)
    if phase.proposals or phase.specifications:
        proposed = (encode_proposal(each, form) for each in proposals)
        source = _mixed(source, proposed, _specified(form, phase, seed), phase, seed)
    rng = random.Random(seed)
    buffer = BUFFER if phase.bare else max(1, BUFFER // phase.answers)
    while True:
        examples = sorted(itertools.islice(source, buffer), key=lambda each: len(each.token_ids_T))
        batches: list[list[Example]] = [[]]
        for example in examples:
            if batches[-1] and len(example.token_ids_T) * (len(batches[-1]) + 1) > recipe.batch_tokens:
                batches.append([])
            batches[-1].append(example)
        rng.shuffle(batches)
        yield from batches


def _specified(form: ChatFormat, phase: Phase, seed: int) -> Iterator[Example]:
    for demonstration in specification_demonstrations(seed, answers=phase.answers):
        if phase.bare:
            yield from encode_bare_specifications(demonstration, form)
        else:
            yield encode_specifications(demonstration, form)


def _mixed(
    solver: Iterator[Example], curator: Iterator[Example], writer: Iterator[Example], phase: Phase, seed: int
) -> Iterator[Example]:
    rng = random.Random(f"mixed {seed}")
    while True:
        drawn = rng.random()
        if drawn < phase.proposals:
            yield next(curator)
        elif drawn < phase.proposals + phase.specifications:
            yield next(writer)
        else:
            yield next(solver)


@torch.no_grad()
def _round(model: Qwen2ForCausalLM) -> None:
    for parameter in model.parameters():
        parameter.copy_(parameter.to(torch.bfloat16))


def _loss(
    model: Qwen2ForCausalLM, batch: Sequence[Example], decision_weight: float, context_weight: float
) -> tuple[torch.Tensor, float]:
    tokens_BT = pad_sequence([torch.tensor(example.token_ids_T) for example in batch], batch_first=True)
    said_BT = pad_sequence([torch.tensor(example.said_T) for example in batch], batch_first=True)
    real_BT = pad_sequence([torch.ones(len(example.said_T), dtype=torch.bool) for example in batch], batch_first=True)
    decided_BT = torch.zeros_like(real_BT)
    for row, example in enumerate(batch):
        decided_BT[row, list(example.decided)] = True
    length = tokens_BT.shape[1] - 1
    shared = shared_prompt_inputs(batch, length)
    targets, said, real, decided = (each[:, 1:].flatten() for each in (tokens_BT, said_BT, real_BT, decided_BT))
    weights = torch.where(decided, decision_weight, torch.where(said, 1.0, context_weight)) * real
    # Padding is behind the text, which causal attention ignores.
    with torch.autocast("cpu", torch.bfloat16, enabled=choose_dtype("bfloat16", on_gpu=False) == "bfloat16"):
        hidden = model.model(input_ids=tokens_BT[:, :-1], **shared).last_hidden_state.flatten(0, 1)
        if shared:
            counts = weights > 0
            hidden = hidden[predicting_places(batch, length).flatten()[counts]]
            targets, said, weights = targets[counts], said[counts], weights[counts]
        logits = functional.linear(hidden, model.lm_head.weight)
    losses = functional.cross_entropy(logits.float(), targets, reduction="none")
    return (losses * weights).sum() / weights.sum(), float(losses[said].detach().mean())


def _schedule(share: float, warm_up: float) -> float:
    if share < warm_up:
        return (share + 1e-3) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (share - warm_up) / (1 - warm_up)))


def _load(path: Path | None, recipe: Recipe) -> dict[str, Any] | None:
    """The saved state, if it belongs to this recipe."""
    if path is None or not path.exists():
        return None
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state if state["recipe"] == asdict(recipe) else None
