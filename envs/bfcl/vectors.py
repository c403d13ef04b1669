"""BFCL V4's vector memory: numbered texts that are retrieved by the similarity of their vectors to a query's."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.bfcl.memory_tools import official_class
from envs.task import JSON

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts → unit vectors, [texts, size]."""


def vector_memory(snapshot: Mapping[str, Any] | None, embed: Embed) -> Any:
    """The official class of short-term (core) and long-term (archival) memory, on our stores of numbered texts."""
    memory = object.__new__(official_class("vector"))
    memory.core_memory = _Store(7, 300, embed, snapshot and snapshot["core_memory"])
    memory.archival_memory = _Store(50, 2000, embed, snapshot and snapshot["archival_memory"])
    return memory


class _Store:
    """Numbered texts with their vectors. A number is reused only after everything was cleared."""

    def __init__(self, most: int, longest: int, embed: Embed, snapshot: Mapping[str, Any] | None) -> None:
        self._most, self._longest, self._embed = most, longest, embed
        self._next = int(snapshot["next_id"]) if snapshot else 0
        self._texts: dict[int, str] = {int(key): text for key, text in snapshot["store"].items()} if snapshot else {}
        self._vectors: dict[int, NDArray[np.float32]] = {}
        if self._texts:
            numbers = sorted(self._texts)
            self._vectors = dict(zip(numbers, embed([self._texts[each] for each in numbers]), strict=True))

    def snapshot(self) -> dict[str, JSON]:
        return {"next_id": self._next, "store": {str(key): text for key, text in self._texts.items()}}

    def add(self, text: str) -> JSON:
        if len(text) > self._longest:
            return self._too_long()
        if len(self._texts) >= self._most:
            return {"error": f"Memory size exceeds maximum size of {self._most} entries."}
        number = self._next
        self._next += 1
        self._vectors[number] = self._vector(text)
        self._texts[number] = text
        return {"id": number}

    def remove(self, vec_id: int) -> JSON:
        if vec_id not in self._texts:
            return {"error": f"ID {vec_id} not present in store."}
        del self._texts[vec_id]
        self._vectors.pop(vec_id, None)
        return {"status": f"ID {vec_id} removed from store."}

    def update(self, vec_id: int, new_text: str) -> JSON:
        if vec_id not in self._texts:
            return {"error": f"ID {vec_id} not present in store."}
        if len(new_text) > self._longest:
            return self._too_long()
        self._vectors.pop(vec_id, None)  # first, as there: a text without a vector leaves none
        self._vectors[vec_id] = self._vector(new_text)
        self._texts[vec_id] = new_text
        return {"status": f"ID {vec_id} updated."}

    def clear(self) -> JSON:
        self._texts.clear()
        self._vectors.clear()
        self._next = 0
        return {"status": "Memory cleared."}

    def retrieve(self, query: str, top_k: int | None) -> JSON:
        """The entries with the largest scalar product with the query, the best first."""
        if not self._texts:
            return []
        wanted = self._vector(query)
        count: Any = min(top_k, len(self._texts))  # type: ignore[type-var]  # None raises, as there
        if count <= 0:
            raise ValueError  # without words, as there
        if isinstance(count, bool):
            raise TypeError("an integer is required")
        numbers = [int(each) for each in self._vectors]
        scores = np.array([self._vectors[each] @ wanted for each in numbers], dtype=np.float32)
        best = np.argsort(-scores, kind="stable")[: operator.index(count)]
        return [
            {"id": numbers[at], "similarity_score": float(scores[at]), "text": self._texts[numbers[at]]} for at in best
        ]

    def retrieve_all(self) -> JSON:
        return [{"id": number, "text": text} for number, text in self._texts.items()]

    def _vector(self, text: str) -> NDArray[np.float32]:
        if not isinstance(text, str):
            raise TypeError(f"a text is needed, not {type(text).__name__}")
        vector: NDArray[np.float32] = self._embed([text])[0]
        return vector

    def _too_long(self) -> JSON:
        return {"error": f"Entry length exceeds maximum length of {self._longest} characters."}
