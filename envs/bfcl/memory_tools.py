"""The memories of BFCL V4: the official classes of keys and values, and of a single text. Calls on them are structured.

A memory is made from a snapshot and returns one; nothing is kept in files.
"""

import importlib
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

from envs.bfcl.world import ERROR, argument_of, rendered, unknown_tool
from envs.task import JSON, ToolCall
from envs.world import CallResult

MAX_TEXT = 100_000
"""Length of a text after replacing. The official memory has no limit, so that a few calls could fill a machine."""
_LONGEST = 10_000
"""Length of a new text that the official memory accepts."""
_PACKAGE = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
_KEPT = ("core_memory", "archival_memory", "memory")
"""Attributes of a memory that the next conversation starts with."""
_K1, _B, _DELTA = 1.5, 0.75, 1


class BM25Plus:
    """BM25+ (Lv and Zhai 2011, CIKM), as in the package rank_bm25.

    A word in d of n texts scores ln((n + 1) / d) · (δ + f · (k₁ + 1) / (k₁ · (1 − b + b · l / mean l) + f)), with f its
    count in the text and l the text's length in words. A word that the text lacks scores δ, and no texts at all raise
    `ZeroDivisionError`.
    """

    def __init__(self, corpus: Sequence[Sequence[str]]) -> None:
        self._mean = sum(map(len, corpus)) / len(corpus)
        with_word = Counter(word for words in corpus for word in set(words))
        self._idf = {word: math.log((len(corpus) + 1) / count) for word, count in with_word.items()}
        self._counts = [Counter(words) for words in corpus]

    def get_scores(self, query: Sequence[str]) -> list[float]:
        """The score of each text."""
        scores = [0.0] * len(self._counts)
        for word in query:
            weight = self._idf.get(word, 0)
            for place, counts in enumerate(self._counts):
                f, length = counts[word], counts.total()
                scores[place] += weight * (_DELTA + (f * (_K1 + 1)) / (_K1 * (1 - _B + _B * length / self._mean) + f))
        return scores


@cache
def official_class(backend: str) -> Any:
    """The official class of a backend, with our search, and without its base class, which keeps files."""
    encoder = SimpleNamespace(get_sentence_embedding_dimension=int)  # of a store of vectors that is not used
    stand_in: Any = SimpleNamespace(MemoryAPI=object, BM25Plus=BM25Plus, SentenceTransformer=lambda *_, **__: encoder)
    names = (f"{_PACKAGE}.memory_api_metaclass", "rank_bm25", "sentence_transformers", "faiss")
    loaded = {name: sys.modules[name] for name in names if name in sys.modules}
    sys.modules.update(dict.fromkeys(names, stand_in))
    try:
        return getattr(importlib.import_module(f"{_PACKAGE}.memory_{backend}"), f"MemoryAPI_{backend}")
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(loaded)


def _opened(backend: str, snapshot: Mapping[str, JSON] | None) -> Any:
    memory = official_class(backend)()
    vars(memory).update(deepcopy(dict(snapshot or {})))
    return memory


OpenMemory = Callable[[Mapping[str, JSON] | None], Any]
"""Opens a backend's memory from the snapshot of the conversation before, if any."""
BACKENDS: Mapping[str, OpenMemory] = {backend: partial(_opened, backend) for backend in ("kv", "rec_sum")}
"""The backends that need no model."""


class Memory:
    """The memory of one conversation, restricted to the calls of these tools."""

    def __init__(self, held: Any, tools: Sequence[str]) -> None:
        self._held = held
        self._tools = frozenset(tools)

    def execute(self, call: ToolCall) -> CallResult:
        """Executes one call, or returns an error. Never raises."""
        try:
            if call.name not in self._tools:
                raise unknown_tool(call.name)
            arguments = {key: argument_of(value) for key, value in call.arguments.items()}
            if call.name == "memory_replace":
                _check_growth(self._held.memory, str(arguments.get("old_text")), str(arguments.get("new_text")))
            return rendered(getattr(self._held, call.name)(**arguments))
        except Exception as error:  # noqa: BLE001 - the error is the call's result
            return CallResult(f"{ERROR}{error}", is_error=True)

    def snapshot(self) -> dict[str, JSON]:
        """The start of the next conversation, as a JSON value."""
        held = {name: value for name, value in vars(self._held).items() if name in _KEPT}
        return {
            name: value.snapshot() if hasattr(value, "snapshot") else deepcopy(value) for name, value in held.items()
        }


def _check_growth(text: str, old: str, new: str) -> None:
    if len(new) <= _LONGEST and len(text) + text.count(old) * max(0, len(new) - len(old)) > MAX_TEXT:
        raise ValueError(f"the memory would have more than {MAX_TEXT} characters")
