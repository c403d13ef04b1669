"""The tiny base's tokenizer: a small byte-level BPE in which a value has the same tokens wherever it stands.

Blanks are tokens of their own, capitals and digits too. In "Send it to Iris" and in `"name": "Iris"` the name is thus
the same tokens, and copying it needs no knowledge of spelling. What every call is made of is one token each.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SPECIAL = ("<|endoftext|>", "<|end|>", "<|tools|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
"""Padding (by the name that Qwen2 tokenizers give it), the end of a message, and the begin of each kind."""
END = "<|end|>"
_CALL_PARTS = ('<tool_call>\n{"name": "', '", "arguments": {', "}}\n</tool_call>", "<tool_call>", "</tool_call>")
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2 tokenizers cut text. Hugging Face gives any tokenizer of a Qwen2 model this cut in place of its own."""
_WORDS = r"[A-Z]|[a-z_]+|[0-9]| ?[^A-Za-z0-9_\s]+|\s"
"""A capital, a word, a digit, a run of signs with the blank before it, or white space.

Finer than Qwen's cut: no merge is learnt across it, so that the tokens are the same whether or not it is applied.
"""


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Trains the tokenizer on texts; a function of them."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN), behavior="isolated"),
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(_CALL_PARTS),
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # They are text, not control: a decoder must show them, and a parser must find them.
    tokenizer.add_tokens([AddedToken(part, normalized=False, special=False) for part in _CALL_PARTS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=SPECIAL[0],
        eos_token=END,
        additional_special_tokens=list(SPECIAL[2:]),
        chat_template=(Path(__file__).parent / "chat_template.jinja").read_text(encoding="utf-8"),
        clean_up_tokenization_spaces=False,
    )
