"""The hand-put heads copy before any training: on random tokens, what stood behind a repeated token is likeliest."""

import random

import torch

from policies.tiny.tokenizer import train_tokenizer
from policies.tiny.training import Recipe, model_for


def copies_right(recipe: Recipe) -> float:
    """Share of positions in a repeated random text at which the untrained model proposes the repetition."""
    tokenizer = train_tokenizer(["a b c"], recipe.vocabulary)
    model = model_for(recipe, tokenizer).eval()
    rng = random.Random(0)
    right = 0
    for _ in range(8):
        text = rng.sample(range(10, recipe.vocabulary), 60)
        middle = rng.sample(range(10, recipe.vocabulary), 150)
        tokens = [*text, *middle, *text]
        with torch.no_grad():
            proposed = model(torch.tensor([tokens])).logits[0].argmax(-1).tolist()
        right += sum(proposed[place] == tokens[place + 1] for place in range(212, 269))
    return right / (8 * 57)


def test_an_untrained_model_copies() -> None:
    assert copies_right(Recipe()) > 0.3


def test_without_the_heads_it_does_not(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    import policies.tiny.training as training

    monkeypatch.setattr(training, "put_copying_heads", lambda model, rope_theta: None)
    assert copies_right(Recipe()) < 0.05
