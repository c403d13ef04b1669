"""Tokenizers and tiny random models with the real chat templates of Qwen and Llama 3.1."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from envs.dialects import DIALECTS
from policies.models import open_model, stand_in
from policies.models.smollm2 import NAME as SMOLLM2
from policies.models.stand_in import BACKBONES, quoted_template, save_narrow
from policies.prompting import ChatFormat

_QWEN_SPECIAL = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>"),
    *("<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>"),
]
_QWEN_PLAIN = [
    *("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
    *("<|repo_name|>", "<|file_sep|>"),
]
_LLAMA_SPECIAL = [
    *("<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>"),
    *("<|finetune_right_pad_id|>", "<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
    *(f"<|reserved_special_token_{number}|>" for number in range(3, 248)),
]
_SMOLLM2_SPECIAL = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>", "<file_sep>", "<filename>"),
    *("<gh_stars>", "<issue_start>", "<issue_comment>", "<issue_closed>", "<jupyter_start>", "<jupyter_text>"),
    *("<jupyter_code>", "<jupyter_output>", "<jupyter_script>", "<empty_output>"),
]


@dataclass(frozen=True)
class Family:
    """The added vocabulary of a published tokenizer. `listed` are the special ones that its files name as such."""

    dialect: str
    special: Sequence[str]
    plain: Sequence[str]
    listed: Sequence[str]
    eos: str

    @property
    def control(self) -> Sequence[str]:
        """Every text that must never come out of content as a token."""
        return (*self.special, *self.plain)


FAMILIES: Mapping[str, Family] = {
    "Qwen2.5": Family("qwen", _QWEN_SPECIAL, _QWEN_PLAIN, _QWEN_SPECIAL[1:], "<|im_end|>"),
    "Qwen3": Family(
        "qwen",
        _QWEN_SPECIAL,
        [*_QWEN_PLAIN, "<tool_response>", "</tool_response>", "<think>", "</think>"],
        _QWEN_SPECIAL[1:],
        "<|im_end|>",
    ),
    # Llama's files list none of them but begin and end of text.
    "Llama 3.1": Family("llama3_json", _LLAMA_SPECIAL, [], [], "<|eot_id|>"),
    "ToolACE-2": Family("toolace", _LLAMA_SPECIAL, [], [], "<|eot_id|>"),
    # The real one, whole.
    SMOLLM2: Family("qwen", _SMOLLM2_SPECIAL, [], [], "<|im_end|>"),
}


def bytes_tokenizer() -> Tokenizer:
    """A tokenizer of bytes, without a merge."""
    alphabet = {letter: place for place, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@cache
def family_tokenizer(name: str) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer whose added vocabulary, normaliser and template are those of a published one.

    SmolLM2's is its own.
    """
    if name == SMOLLM2:
        real: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(open_model(name).path)
        return real
    family = FAMILIES[name]
    tokenizer = bytes_tokenizer()
    if family.dialect == "qwen":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=True) for text in family.special])
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in family.plain])
    made: PreTrainedTokenizerFast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=family.eos,
        bos_token="<|begin_of_text|>" if "<|begin_of_text|>" in family.special else None,
        additional_special_tokens=list(family.listed),
        chat_template=quoted_template("llama3_json" if family.dialect == "toolace" else family.dialect),
        clean_up_tokenization_spaces=False,
    )
    return made


@cache
def control_ids(family: str) -> frozenset[int]:
    """The ids of the family's added vocabulary."""
    return frozenset(family_tokenizer(family).convert_tokens_to_ids(text) for text in FAMILIES[family].control)


@cache
def chat_tokenizer(dialect: str) -> PreTrainedTokenizerFast:
    """A small byte-level BPE with the family's control tokens and template."""
    return stand_in.chat_tokenizer(dialect, 800)


def chat_format(dialect: str) -> ChatFormat:
    return ChatFormat(chat_tokenizer(dialect), DIALECTS[dialect], name=dialect)


def random_chat_model(folder: Path, dialect: str, *, context: int = 32_768) -> Path:
    """Saves a random two-layer model of the family with its tokenizer and template, and returns its folder."""
    name = "Qwen/Qwen2.5-3B-Instruct" if dialect == "qwen" else "Team-ACE/ToolACE-2-Llama-3.1-8B"
    backbone = replace(BACKBONES[name], dialect=dialect, context=context)
    return save_narrow(folder, backbone, chat_tokenizer(dialect))
