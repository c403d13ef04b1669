"""Runs the official `bfcl` command, unchanged, where the SDKs of model providers that it imports are not installed.

Grading uses none of them: they belong to handlers of models behind commercial interfaces. Run as
`python official_cli.py evaluate --model … --result-dir …`, with BFCL_PROJECT_ROOT set to a folder that may be written.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

SDKS = {
    *("anthropic", "boto3", "cohere", "datamodel_code_generator", "google", "mistralai", "openai", "overrides"),
    *("qwen_agent", "tabulate", "tenacity", "tree_sitter", "tree_sitter_java", "tree_sitter_javascript", "writerai"),
}


class Anything:
    """A class, function, decorator or value of an SDK that is not there."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __call__(self, *arguments: Any, **_: object) -> Any:
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __or__(self, _: object) -> Any:
        return self

    __ror__ = __or__

    def __mro_entries__(self, _: object) -> tuple[type, ...]:
        return (object,)


class StandIn(ModuleType):
    """A module of such an SDK."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class StandIns(MetaPathFinder, Loader):
    """Asked last, so that an SDK that is installed is used."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in SDKS else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = StandIn(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: ModuleType) -> None: ...


if __name__ == "__main__":
    sys.meta_path.append(StandIns())
    from bfcl_eval.__main__ import cli

    cli()
