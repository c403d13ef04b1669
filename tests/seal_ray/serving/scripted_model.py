"""A real model that says given texts: each token leads to the next one of its text, whatever came before."""

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

_WIDTH = 512
_TEMPLATE = (
    "{% for message in messages %}<|{{ 'a' if message.role == 'assistant' else 'u' }}|>{{ message.content }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}{{ messages[-1].content }}{% endif %}"
)


def request_for(index: int) -> str:
    """The last message that makes the model say the text of that index."""
    return f"@{index}@"


def scripted_model(folder: Path, texts: Sequence[str]) -> Path:
    """Saves a model that answers `request_for(index)` with `texts[index]`, in tokens of one to five characters."""
    rng = random.Random(0)
    words = ["<unknown>", "<|end|>", "<|a|>", "<|u|>"]
    following: dict[int, int] = {}
    for index, text in enumerate(texts):
        words.append(request_for(index))
        begin, number = 0, 0
        while begin < len(text):
            size = rng.choice([1, 1, 2, 3, 5])
            following[len(words) - 1] = len(words)
            words.append(f"\u27e6{index}.{number}\u27e7{text[begin : begin + size]}")
            begin, number = begin + size, number + 1
        following[len(words) - 1] = 1
    _save_tokenizer(folder, words)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=_WIDTH,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=8,
        max_position_embeddings=2048,
        bos_token_id=None,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        layer = model.model.layers[0]
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
        embeddings = torch.nn.functional.normalize(torch.randn(len(words), _WIDTH), dim=1)
        last = [token for token, successor in following.items() if successor == 1]
        embeddings[last] = embeddings[1].clone()
        model.model.embed_tokens.weight.copy_(embeddings)
        model.lm_head.weight.zero_()
        for token, successor in following.items():
            model.lm_head.weight[successor] = embeddings[token]
    model.save_pretrained(folder)
    return folder


def _save_tokenizer(folder: Path, words: Sequence[str]) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=words[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("@[0-9]+@"), "isolated")
    # Tokens of equal text differ in a number, which is not shown.
    tokenizer.decoder = decoders.Sequence([decoders.Replace(Regex("\u27e6[0-9.]+\u27e7"), ""), decoders.Fuse()])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=words[0],
        eos_token=words[1],
        additional_special_tokens=words[2:4],
        chat_template=_TEMPLATE,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
