"""Runs the official memories and the official grading of their questions in a process of its own.

`rank_bm25` is the real one where it is installed; else whatever searches says so. So are `sentence_transformers` and
`faiss`; else our own vectors and a plain search stand in for them. The vectors' model is a folder of the caller's.
"""

import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from policies.embedding import Embedder
from tests.bench.asking import answer_lines
from tests.seal_ray.evaluation.official_cli import SDKS, StandIns


class WithoutSearch(StandIns):
    """Stands in for the search as well, where its package is not there."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name == "rank_bm25" or name.split(".")[0] in SDKS:
            return importlib.util.spec_from_loader(name, self, is_package=True)
        return None


class Encoder:
    """Stands in for a model of sentence-transformers."""

    def __init__(self, folder: str, device: str) -> None:
        self._embed = Embedder(folder)

    def get_sentence_embedding_dimension(self) -> int:
        return int(self._embed([""]).shape[1])

    def encode(self, texts: Sequence[str], normalize_embeddings: bool) -> Any:
        return self._embed(texts)


class Index:
    """Stands in for faiss's index of inner products with numbers."""

    def __init__(self, _: int) -> None:
        self._rows: dict[int, Any] = {}

    def add_with_ids(self, vectors: Any, numbers: Any) -> None:
        self._rows.update(zip(map(int, numbers), vectors, strict=True))

    def remove_ids(self, numbers: Any) -> None:
        for number in numbers:
            del self._rows[int(number)]

    def reset(self) -> None:
        self._rows.clear()

    def search(self, wanted: Any, k: int) -> Any:
        assert k > 0
        if isinstance(k, bool):
            raise TypeError("an integer is required")
        found = sorted(((row @ wanted[0], number) for number, row in self._rows.items()), reverse=True)[:k]
        return [[score for score, _ in found]], [[number for _, number in found]]


def main() -> None:
    searches = importlib.util.find_spec("rank_bm25") is not None
    sys.meta_path.append(WithoutSearch())
    from bfcl_eval.eval_checker.agentic_eval.agentic_checker import agentic_checker
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call
    from bfcl_eval.model_handler.utils import add_memory_instruction_system_prompt
    from bfcl_eval.utils import load_dataset_entry

    def with_encoder(folder: str) -> None:
        """Lets the official memory of vectors, which is imported later, find this model under the name of its own."""
        if importlib.util.find_spec("sentence_transformers") is None:
            sys.modules["sentence_transformers"] = types.ModuleType("sentence_transformers")
            sys.modules["sentence_transformers"].SentenceTransformer = Encoder  # type: ignore[attr-defined]
        if importlib.util.find_spec("faiss") is None:
            sys.modules["faiss"] = types.ModuleType("faiss")
            sys.modules["faiss"].__dict__.update(IndexFlatIP=int, IndexIDMap=Index)
        package: Any = importlib.import_module("sentence_transformers")
        real = package.SentenceTransformer
        package.SentenceTransformer = lambda _, device: real(folder, device=device)

    def converse(request: dict[str, Any]) -> Any:
        """One conversation: results, what was shown of the memory, and what it left."""
        name, conversation = f"MemoryAPI_{request['backend']}", request["id"]
        config = {
            "model_result_dir": Path(os.environ["BFCL_PROJECT_ROOT"]) / request["run"],
            "test_id": conversation,
            "scenario": request["scenario"],
        }
        where = ({name: config}, [name], request["run"], conversation)
        _, found = execute_multi_turn_func_call([], *where)
        prompts = [[{"role": "user", "content": "Hello"}]]
        shown = add_memory_instruction_system_prompt(
            prompts, f"memory_{request['backend']}", request["scenario"], found[name]
        )
        results, found = execute_multi_turn_func_call(request["calls"], *where)
        found[name]._flush_memory_to_local_file()
        left = {
            key: value.export() if hasattr(value, "export") else value
            for key, value in vars(found[name]).items()
            if key in ("core_memory", "archival_memory", "memory")
        }
        return {"results": results, "system": shown[0][0]["content"], "left": left}

    def answer(request: dict[str, Any]) -> Any:
        if "said" in request:
            return bool(agentic_checker(request["said"], request["answers"])["valid"])
        if "load" in request:
            return load_dataset_entry(request["load"])
        if "calls" in request:
            return converse(request)
        if request["search"]:
            with_encoder(request["search"])
        return searches

    answer_lines(answer)


if __name__ == "__main__":
    main()
