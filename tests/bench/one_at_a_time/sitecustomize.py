"""Has vLLM engines compute one request at a time, in the order of their arrival.

Python imports this module at its start where its folder is on the path. What vLLM computes together is a matter of
time and decides the last bit of a log-prob; `tests/bench/same.py` compares runs to the last bit.
"""

import asyncio
import functools
import importlib.machinery
import sys
from collections.abc import Callable
from typing import Any

_MODULE = "policies.engine.vllm_engine"


def _in_turn(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        turn = self.__dict__.setdefault("_turn", asyncio.Lock())  # it serves waiters in their order
        async with turn:
            return await method(self, *args, **kwargs)

    return call


class _Loader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: Any) -> None:
        super().exec_module(module)
        engine = module.VllmEngine
        engine.generate, engine.score = _in_turn(engine.generate), _in_turn(engine.score)


class _Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != _MODULE:
            return None
        spec = super().find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


sys.meta_path.insert(0, _Finder)
