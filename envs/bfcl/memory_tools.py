"""The memories of BFCL V4: one of keys and values, one of a single text. Calls on them are structured.

Results are byte-identical to the official classes' results, whose names appear in Python's error texts. A memory is
made from a snapshot and returns one; nothing is kept in files.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envs.bfcl.world import ERROR, argument_of, rendered, unknown_tool
from envs.task import JSON, ToolCall
from envs.world import CallResult

MAX_TEXT = 100_000
"""Length of a text after replacing. The official memory has no limit, so that a few calls could fill a machine."""
_KEY = re.compile(r"^[a-z]+(_[a-z0-9]+)*$")
_K1, _B, _DELTA = 1.5, 0.75, 1


class MemoryAPI_kv:  # noqa: N801 - as Python's error texts name it there
    """Short-term (core) and long-term (archival) memory of keys and values."""

    def __init__(self, snapshot: Mapping[str, JSON] | None) -> None:
        self._core = dict(snapshot["core_memory"]) if snapshot else {}
        self._archival = dict(snapshot["archival_memory"]) if snapshot else {}

    def _snapshot(self) -> dict[str, JSON]:
        return {"core_memory": dict(self._core), "archival_memory": dict(self._archival)}

    def core_memory_add(self, key: str, value: str) -> JSON:
        full = {"error": "Core memory is full. Please clear some entries."} if len(self._core) >= 7 else None
        return full or _add(self._core, key, value, 300) or {"status": "Key-value pair added."}

    def core_memory_remove(self, key: str) -> JSON:
        return _remove(self._core, key)

    def core_memory_replace(self, key: str, value: str) -> JSON:
        return _replace(self._core, key, value, 300)

    def core_memory_clear(self) -> JSON:
        self._core.clear()
        return {"status": "Short term memory cleared."}

    def core_memory_retrieve(self, key: str) -> JSON:
        return _retrieve(self._core, key)

    def core_memory_list_keys(self) -> JSON:
        return {"keys": list(self._core)}

    def core_memory_key_search(self, query: str, k: int = 5) -> JSON:
        return _search(query, list(self._core), k)

    def core_memory_retrieve_all(self) -> JSON:
        return dict(self._core)

    def archival_memory_add(self, key: str, value: str) -> JSON:
        full = {"error": "Long term memory is full. Please clear some entries."} if len(self._archival) >= 50 else None
        return full or _add(self._archival, key, value, 2000) or {"status": "Key added."}

    def archival_memory_remove(self, key: str) -> JSON:
        return _remove(self._archival, key)

    def archival_memory_replace(self, key: str, value: str) -> JSON:
        return _replace(self._archival, key, value, 2000)

    def archival_memory_clear(self) -> JSON:
        self._archival.clear()
        return {"status": "Long term memory cleared."}

    def archival_memory_retrieve(self, key: str) -> JSON:
        return _retrieve(self._archival, key)

    def archival_memory_list_keys(self) -> JSON:
        return {"keys": list(self._archival)}

    def archival_memory_key_search(self, query: str, k: int = 5) -> JSON:
        return _search(query, list(self._archival), k)


class MemoryAPI_rec_sum:  # noqa: N801 - as above
    """One text of up to 10,000 characters."""

    def __init__(self, snapshot: Mapping[str, JSON] | None) -> None:
        self._memory: str = snapshot["memory"] if snapshot else ""

    def _snapshot(self) -> dict[str, JSON]:
        return {"memory": self._memory}

    def memory_append(self, text: str) -> JSON:
        text = str(text)
        if len(self._memory) + len(text) > _LONGEST:
            return {"error": _TOO_LONG.format("appending", _LONGEST)}
        self._memory += text
        return {"status": "Memory appended."}

    def memory_update(self, text: str) -> JSON:
        text = str(text)
        if len(text) > _LONGEST:
            return {"error": _TOO_LONG.format("updating", _LONGEST)}
        self._memory = text
        return {"status": "Memory updated."}

    def memory_clear(self) -> JSON:
        self._memory = ""
        return {"status": "Short term memory cleared."}

    def memory_replace(self, old_text: str, new_text: str) -> JSON:
        old, new = str(old_text), str(new_text)
        if old not in self._memory:
            return {"error": f"Text '{old}' not found in memory."}
        if len(new) > _LONGEST:
            return {"error": _TOO_LONG.format("replacing", _LONGEST)}
        if len(self._memory) + self._memory.count(old) * max(0, len(new) - len(old)) > MAX_TEXT:
            raise ValueError(f"the memory would have more than {MAX_TEXT} characters")
        self._memory = self._memory.replace(old, new)
        return {"status": "Memory updated."}

    def memory_retrieve(self) -> JSON:
        return {"memory_content": self._memory} if self._memory else {"error": "Memory is empty."}


_LONGEST = 10_000
_TOO_LONG = "Entry will be too long after {}. Please shorten the entry to less than {} characters."
OpenMemory = Callable[[Mapping[str, JSON] | None], Any]
"""Opens a backend's memory from the snapshot of the conversation before, if any."""
BACKENDS: Mapping[str, OpenMemory] = {"kv": MemoryAPI_kv, "rec_sum": MemoryAPI_rec_sum}
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
            return rendered(getattr(self._held, call.name)(**arguments))
        except Exception as error:  # noqa: BLE001 - the error is the call's result
            return CallResult(f"{ERROR}{error}", is_error=True)

    def snapshot(self) -> dict[str, JSON]:
        """The start of the next conversation, as a JSON value."""
        snapshot: dict[str, JSON] = self._held._snapshot()
        return snapshot


def _add(memory: dict[str, str], key: str, value: str, longest: int) -> JSON:
    """Adds an entry; returns the error, if any."""
    key, value = str(key), str(value)
    if len(value) > longest:
        return _entry_too_long(longest)
    if not _KEY.match(key):
        return {"error": "Key must be in snake_case format and cannot contain spaces."}
    if key in memory:
        return {"error": "Key name must be unique."}
    memory[key] = value
    return None


def _remove(memory: dict[str, str], key: str) -> JSON:
    if key not in memory:
        return {"error": "Key not found."}
    del memory[key]
    return {"status": "Key removed."}


def _replace(memory: dict[str, str], key: str, value: str, longest: int) -> JSON:
    key, value = str(key), str(value)
    if key not in memory:
        return {"error": "Key not found."}
    if len(value) > longest:
        return _entry_too_long(longest)
    memory[key] = value
    return {"status": "Key replaced."}


def _retrieve(memory: dict[str, str], key: str) -> JSON:
    return {"value": memory[key]} if key in memory else {"error": "Key not found."}


def _entry_too_long(longest: int) -> JSON:
    return {"error": f"Entry is too long. Please shorten the entry to less than {longest} characters."}


def _search(query: str, keys: Sequence[str], k: int) -> JSON:
    """The keys that are nearest to the query by BM25+ (Lv and Zhai 2011, CIKM), with their scores, the best first.

    A word in d of n keys scores ln((n + 1) / d) · (δ + f · (k₁ + 1) / (k₁ · (1 − b + b · l / mean l) + f)), with f its
    count in the key and l the key's length in words. As in the package rank_bm25, a word that the key lacks scores δ,
    and no keys at all raise `ZeroDivisionError`.
    """
    words = [key.replace("_", " ").lower().split() for key in keys]
    mean = sum(map(len, words)) / len(words)
    with_word = Counter(word for each in words for word in set(each))
    idf = {word: math.log((len(words) + 1) / count) for word, count in with_word.items()}
    counts = [Counter(each) for each in words]
    scores = [0.0] * len(words)
    for word in query.replace("_", " ").lower().split():
        weight = idf.get(word, 0)
        for place, each in enumerate(words):
            f = counts[place][word]
            scores[place] += weight * (_DELTA + (f * (_K1 + 1)) / (_K1 * (1 - _B + _B * len(each) / mean) + f))
    ranked = sorted(zip(scores, keys, strict=True), key=lambda pair: pair[0], reverse=True)
    return {"ranked_results": ranked[:k]}
