"""A small BERT with random weights, in a folder, for tests of vectors of texts."""

import string
from pathlib import Path

import torch
from transformers import BertConfig, BertModel
from transformers.models.bert.tokenization_bert import BertTokenizer

WORDS = ("seattle", "coffee", "the", "customer", "lives", "in", "name", "is", "michael", "fact", "about")


def make_encoder(folder: Path, *, layers: int = 2) -> Path:
    """The folder, with model and tokenizer: a word piece a word above, else a letter or digit. 64 tokens at most."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    pieces += [mark + each for mark in ("", "##") for each in string.ascii_lowercase + string.digits]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    tokenizer = BertTokenizer(str(folder / "vocab.txt"), model_max_length=64)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.5,
    )
    BertModel(config).save_pretrained(folder)
    return folder
