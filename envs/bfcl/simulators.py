"""The eight BFCL simulator classes: import, instances, and the state of an instance."""

import copy
import importlib
import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any

from envs.bfcl.tools import DOCUMENT_FILES, data_folder, tool_names
from envs.errors import EnvironmentFault
from envs.task import JSON

_SOURCE = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
_STATELESS = frozenset({"MathAPI"})
_ROOT = "GorillaFileSystem.root"

MAX_TREE_NODES = 2_000
"""Files and folders that a walk over the simulated file system visits; the largest in BFCL has 127.

Copying a folder shares its children: a few dozen calls can build a tree with 2^n paths, or one that contains itself.
"""
MAX_TREE_DEPTH = 64
"""Depth of a walk; BFCL's trees have 4 levels."""
MAX_PATH_CHARACTERS = 100_000
"""Total length of all paths of a walk; the longest result in BFCL has 31,700 characters."""


class Oversized:
    """A state that is too large or too deep to compare; equal to nothing, not even itself."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__


@cache
def simulator_class(class_name: str) -> type:
    """The simulator class, checked to expose exactly its documented tools."""
    data_folder()  # raises a clear error for a missing or wrong package
    module = importlib.import_module(f"{_SOURCE}.{DOCUMENT_FILES[class_name].removesuffix('.json')}")
    cls: type = getattr(module, class_name)
    public = {name for name, _ in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")}
    if public != tool_names(class_name):
        raise EnvironmentFault(f"{class_name}: documented tools and public methods differ")
    return cls


@cache
def mutable_defaults(class_name: str, method: str) -> Mapping[str, JSON]:
    """Parameters whose default is a list or dict, which Python shares between all calls of the process."""
    parameters = inspect.signature(getattr(simulator_class(class_name), method)).parameters
    return {name: value.default for name, value in parameters.items() if isinstance(value.default, list | dict)}


def build(class_name: str, config: Mapping[str, JSON], *, long_context: bool) -> object:
    """A fresh simulator in its start state. `config` is copied; padded state shares objects with the package."""
    instance = simulator_class(class_name)()
    if class_name not in _STATELESS:
        instance._load_scenario(copy.deepcopy(dict(config)), long_context=long_context)
    return instance


def public_state(instances: Mapping[str, object]) -> dict[str, Any]:
    """The comparable state, "Class.attribute" → value: a view of the attributes without a leading underscore.

    Two views are equal exactly if the official checker finds the instances' attributes equal. The working directory and
    random generators are private.
    """
    state = {
        f"{class_name}.{attribute}": value
        for class_name, instance in instances.items()
        for attribute, value in vars(instance).items()
        if attribute[0] != "_"
    }
    root = state.get(_ROOT)
    if root is not None:  # the one attribute that holds objects
        state[_ROOT] = Oversized() if is_oversized(root) else _tree(root)
    return state


def _tree(node: Any) -> tuple[str, Any, Any]:
    if hasattr(node, "contents"):
        return ("directory", node.name, {name: _tree(child) for name, child in node.contents.items()})
    return ("file", node.name, node.content)


def is_oversized(directory: Any, *, base: int = 0) -> bool:
    """Whether a walk along every path below a directory is too long or too deep; `base` is the length of its path."""
    nodes = characters = 0
    waiting = [(directory, 0, base)]
    while waiting:
        node, depth, length = waiting.pop()
        nodes += 1
        characters += length
        if nodes > MAX_TREE_NODES or depth > MAX_TREE_DEPTH or characters > MAX_PATH_CHARACTERS:
            return True
        children = getattr(node, "contents", {})
        if nodes + len(waiting) + len(children) > MAX_TREE_NODES:
            return True
        waiting += [(child, depth + 1, length + 1 + len(str(name))) for name, child in children.items()]
    return False
