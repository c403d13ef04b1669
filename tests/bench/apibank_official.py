"""Runs the benchmark's own evaluator in a process of its own, started in its folder: a JSON object a line in and out.

Packages other than the standard library are stand-ins: what needs them cannot be executed, here as there.
"""

import json
import os
import sys
import types
from collections.abc import Callable
from typing import Any


class Absent:
    """A class or function of a package that is not there."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("not there")


def stand_in(name: str, **content: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module).update(content)
    sys.modules[name] = module
    return module


class Score:
    """The decorator of what is tried again, and whatever else is made before it is needed."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


def no_network(*_: Any, **__: Any) -> None:
    raise RuntimeError("no network")


def main() -> None:
    sys.path.insert(0, os.getcwd())
    stand_in("rouge", Rouge=Score)
    stand_in("tqdm", tqdm=list)
    stand_in("requests", get=no_network).exceptions = stand_in("requests.exceptions", ConnectionError=OSError)  # type: ignore[attr-defined]
    stand_in(
        "tenacity",
        retry=lambda **_: lambda function: function,
        stop_after_attempt=Score,
        wait_random_exponential=Score,
        retry_if_exception_type=Score,
    )
    stand_in("sentence_transformers", SentenceTransformer=Absent, util=None)
    stand_in("googletrans", Translator=Score, LANGUAGES={})
    stand_in("rank_bm25", BM25Okapi=Absent)
    stand_in("nltk").tokenize = stand_in("nltk.tokenize", word_tokenize=str.split)  # type: ignore[attr-defined]
    from evaluator import Evaluator, Sample  # type: ignore[import-not-found]
    from tool_manager import ToolManager  # type: ignore[import-not-found]

    def by_text(truth: dict[str, Any], text: str) -> bool:
        return bool(Evaluator([Sample([], set(), truth)]).evaluate(0, text)[0])

    def by_arguments(truth: dict[str, Any], name: str, arguments: dict[str, Any]) -> bool:
        """The evaluator's step after a text is read."""
        manager = ToolManager()
        if name != truth["api_name"]:
            return False
        try:
            result = manager.api_call(name, **arguments)
        except Exception:  # noqa: BLE001 - as the evaluator does
            return False
        try:
            return bool(manager.init_tool(name).check_api_call_correctness(result, truth["result"]))
        except KeyError:
            return False

    for line in sys.stdin:
        request = json.loads(line)
        truth = request["truth"]
        text = said(by_text, json.loads(truth), request["text"])
        arguments = said(by_arguments, json.loads(truth), request["name"], request["arguments"])
        print(json.dumps({"text": text, "arguments": arguments}), flush=True)


def said(judge: Callable[..., bool], *arguments: Any) -> bool | str:
    """The judgement, or what was raised."""
    try:
        return judge(*arguments)
    except Exception as error:  # noqa: BLE001 - the official code can raise anything
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
