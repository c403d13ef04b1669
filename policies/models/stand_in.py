"""Stand-ins for published models, in rehearsals and tests: their chat templates, and few narrow random layers.

The templates are read from where the benchmark's official package quotes them: the docstrings of its handlers.
"""

from __future__ import annotations

import ast
import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from policies.models.folder import DIALECT, ModelFolder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from policies.trajectory import Trajectory

_SOURCES = {"qwen": ("qwen_fc.py", "QwenFCHandler"), "llama3_json": ("llama_3_1.py", "LlamaHandler_3_1")}
_SPECIAL = {
    "qwen": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "llama3_json": [
        *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
        *("<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
    ],
}
_END = {"qwen": "<|im_end|>", "llama3_json": "<|eot_id|>"}
_FAMILIES = {"toolace": "llama3_json"}
"""Dialect → the one whose tokenizer and template its models have, if it is another."""
_TYPES = {"qwen": "qwen2", "llama3_json": "llama"}
_READ = 20
"""Number of tasks whose tools a tokenizer learns from."""


@dataclass(frozen=True, slots=True)
class Backbone:
    """The shape of a published model."""

    dialect: str
    width: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool
    context: int

    def config(self, **changes: Any) -> dict[str, Any]:
        """The keys of its config.json, with changes."""
        family = _FAMILIES.get(self.dialect, self.dialect)
        return {
            "model_type": _TYPES[family],
            "architectures": [f"{_TYPES[family].capitalize()}ForCausalLM"],
            "hidden_size": self.width,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "vocab_size": self.vocabulary,
            "tie_word_embeddings": self.tied,
            "max_position_embeddings": self.context,
            **({} if family == self.dialect else {DIALECT: self.dialect}),
            **changes,
        }

    @classmethod
    def from_model(cls, model: ModelFolder) -> Backbone:
        """The shape of a folder's model."""
        config = model.config
        heads = config["num_attention_heads"]
        return cls(
            *(model.dialect.name, config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]),
            *(heads, config.get("num_key_value_heads") or heads, config["vocab_size"]),
            *(bool(config.get("tie_word_embeddings")), model.context),
        )


BACKBONES: Mapping[str, Backbone] = MappingProxyType(
    {
        "Qwen/Qwen2.5-3B-Instruct": Backbone("qwen", 2048, 11_008, 36, 16, 2, 151_936, True, 32_768),
        "Qwen/Qwen2.5-7B-Instruct": Backbone("qwen", 3584, 18_944, 28, 28, 4, 152_064, False, 32_768),
        "Team-ACE/ToolACE-2-Llama-3.1-8B": Backbone("toolace", 4096, 14_336, 32, 32, 8, 128_256, False, 131_072),
    }
)
"""The hub's name → shape, from the config.json there."""


def token_parity(trajectory: Trajectory) -> float:
    """A reward by which dialogues of random weights differ, so that learners have something to learn."""
    return float(sum(trajectory.token_ids_T) % 2)


def write_shape(folder: Path, backbone: Backbone) -> Path:
    """Writes the config.json alone, from which sizes are computed, and returns the folder."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(backbone.config()), "utf-8")
    return folder


def write_stand_in(folder: Path, backbone: Backbone) -> Path:
    """Writes a model with the backbone's template, vocabulary and context, and returns its folder.

    Its two layers are narrow, and their weights random. Its tokens are as long as the real one's: an opening of the
    benchmark has about 6,000.
    """
    family = _FAMILIES.get(backbone.dialect, backbone.dialect)
    tokenizer = chat_tokenizer(family, 1600, filled=backbone.vocabulary)
    return save_narrow(folder, backbone, tokenizer)


def save_narrow(folder: Path, backbone: Backbone, tokenizer: PreTrainedTokenizerFast) -> Path:
    """The same with another tokenizer, whose size is the vocabulary."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(5)
    config = backbone.config(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=len(tokenizer),
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
    )
    model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def chat_tokenizer(family: str, vocabulary: int, *, filled: int | None = None) -> PreTrainedTokenizerFast:
    """A byte-level BPE of the benchmark's tools, with the control tokens and template of `qwen` or `llama3_json`.

    The vocabulary is `filled` up to that size by tokens that no text has.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    from envs.bfcl.tasks import load_tasks
    from envs.dialects import DIALECTS

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [DIALECTS[family].render_tools(task.tools) for task in list(load_tasks().values())[:_READ]]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=_SPECIAL[family], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    if filled is not None:
        described = json.loads(tokenizer.to_str())
        entries: dict[str, int] = described["model"]["vocab"]
        entries.update({f"filler{number}": number for number in range(len(entries), filled)})
        tokenizer = Tokenizer.from_str(json.dumps(described))
    made: PreTrainedTokenizerFast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=_END[family],
        bos_token="<|begin_of_text|>" if family == "llama3_json" else None,
        additional_special_tokens=_SPECIAL[family],
        chat_template=quoted_template(family),
        clean_up_tokenization_spaces=False,
    )
    return made


def quoted_template(family: str) -> str:
    """The chat template that the official handler of this dialect quotes."""
    file, handler = _SOURCES[family]
    package = find_spec("bfcl_eval")
    assert package is not None
    assert package.origin is not None
    source = (Path(package.origin).parent / "model_handler" / "local_inference" / file).read_text("utf-8")
    (found,) = [each for each in ast.parse(source).body if isinstance(each, ast.ClassDef) and each.name == handler]
    methods = [each for each in found.body if isinstance(each, ast.FunctionDef) and each.name == "_format_prompt"]
    quoted = ast.get_source_segment(source, methods[0].body[0])  # the source text: the template has its own escapes
    assert quoted is not None
    return textwrap.dedent(quoted.partition('"chat_template":\n')[2].removesuffix('"""')).strip()
