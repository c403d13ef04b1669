"""The tiny base's tokenizer: a small byte-level BPE in which a value has the same tokens everywhere.

Spaces, capitals and digits are separate tokens. So the name in "Send it to Iris" and in `"name": "Iris"` has the same
tokens, and copying it needs no knowledge of spelling. The fixed parts of calls are one token each.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SPECIAL = ("<|endoftext|>", "<|end|>", "<|tools|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
"""Padding (by its name in Qwen2 tokenizers), the end of a message, and the begin of each kind of message."""
END = "<|end|>"
_CALL_PARTS = ('<tool_call>\n{"name": "', '", "arguments": {', "}}\n</tool_call>", "<tool_call>", "</tool_call>")
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The pre-tokenizer of Qwen2. Hugging Face replaces that of any Qwen2 model's tokenizer by it."""
_WORDS = r"[A-Z]|[a-z_]+|[0-9]| ?[^A-Za-z0-9_\s]+|\s"
"""A capital, a word, a digit, a run of signs with the space before it, or white space.

Finer than Qwen's pre-tokenizer, so that the tokens are the same with and without that.
"""


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Trains the tokenizer on texts."""
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
    # They are no control tokens: a decoder must show them to the parser.
    tokenizer.add_tokens([AddedToken(part, normalized=False, special=False) for part in _CALL_PARTS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=SPECIAL[0],
        eos_token=END,
        additional_special_tokens=list(SPECIAL[2:]),
        chat_template=(Path(__file__).parent / "chat_template.jinja").read_text(encoding="utf-8"),
        clean_up_tokenization_spaces=False,
    )
