"""The house rules that a machine can check: imports go downward, importing the world is quick, rooms stay small."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FORBIDDEN = {
    "envs": {"policies", "seal_ray", "tuning", "torch", "ray", "vllm", "transformers"},
    "policies": {"seal_ray", "tuning", "ray"},
    "seal_ray": {"tuning"},
}
"""Floor → what no module of it may import."""
FLOORS = (*FORBIDDEN, "tuning")


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


def modules(floor: str) -> Iterator[Path]:
    yield from sorted((ROOT / floor).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("floor", FORBIDDEN)
def test_imports_go_downward(floor: str) -> None:
    assert list(modules(floor))
    for path in modules(floor):
        assert not FORBIDDEN[floor] & set(imported(path)), path


LAYERS = (
    *("metrics", "state", "statistics", "rllib", "config", "grpo", "report", "evaluation", "rollout", "training"),
    *("agent", "proposing", "algorithm", "run", "exams", "warm_start", "serving", "cli"),
)
"""The layers of `seal_ray`, from the bottom."""


def test_imports_inside_seal_ray_go_downward() -> None:
    for path in modules("seal_ray"):
        layer = path.relative_to(ROOT).with_suffix("").parts[1]
        if layer == "__init__":
            continue
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for name in (f"{module}{alias.name}" for alias in node.names):
                package, _, rest = name.partition(".")
                other = rest.partition(".")[0]
                below = package != "seal_ray" or other not in LAYERS or LAYERS.index(other) <= LAYERS.index(layer)
                assert below or _is_for_types(path, node), f"{path}:{node.lineno} imports {name}"


def _is_for_types(path: Path, node: ast.Import | ast.ImportFrom) -> bool:
    """Whether an import stands below `if TYPE_CHECKING`."""
    return any(
        isinstance(block, ast.If)
        and ast.unparse(block.test) == "TYPE_CHECKING"
        and node.lineno in range(block.lineno, (block.end_lineno or 0) + 1)
        for block in tree_of(path).body
    )


def imports_of(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules of ours that a file imports, wherever the import stands: in a function, or for type checkers only."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for name in node.names:
                full = f"{node.module}.{name.name}"
                yield full if full in known else str(node.module)


def reached(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for name in edges[waiting.pop()] - found:
            found.add(name)
            waiting.append(name)
    return found


def test_no_more_than_two_files_import_each_other() -> None:
    known = {}
    for floor in FLOORS:
        for path in modules(floor):
            parts = path.relative_to(ROOT).with_suffix("").parts
            known[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    edges = {name: set(imports_of(path, known)) - {name} for name, path in known.items()}
    below = {name: reached(name, edges) for name in known}
    circles = {frozenset(other for other in below[name] if name in below[other]) for name in known}
    assert sorted(map(sorted, filter(None, circles))) == [
        ["seal_ray.algorithm.config", "seal_ray.algorithm.seal"]  # the algorithm and its config, as in RLlib
    ]


def test_the_built_in_sources_are_named_in_few_places() -> None:
    """Code depends on the source interface: three files outside of its folder and the registry may name a source."""
    at_home = ("envs/bfcl/", "envs/toolworld/", "envs/hidden_conventions.py", "envs/sources.py")
    files = [path for floor in (*FLOORS, "examples") for path in modules(floor)]
    naming = [
        str(path.relative_to(ROOT))
        for path in files
        if re.search("bfcl|toolworld", text_of(path), re.IGNORECASE)
        and not str(path.relative_to(ROOT)).startswith(at_home)
    ]
    assert len(naming) <= 3, naming


def test_importing_the_world_is_quick_and_loads_neither_torch_nor_ray() -> None:
    program = (
        "import time; start = time.perf_counter(); import envs; took = time.perf_counter() - start\n"
        "import importlib, pathlib, sys\n"
        "for path in pathlib.Path('envs').rglob('*.py'):\n"
        "    importlib.import_module('.'.join(path.with_suffix('').parts).removesuffix('.__init__'))\n"
        "print(took, 'torch' in sys.modules, 'ray' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    took, torch, ray = found.stdout.split()
    assert float(took) < 1.0
    assert (torch, ray) == ("False", "False")


def test_every_public_name_of_the_world_loads() -> None:
    import envs

    for name in envs.__all__:
        assert getattr(envs, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = envs.Nothing


@pytest.mark.parametrize("floor", [*FLOORS, "tests"])
def test_rooms_stay_small_and_say_what_they_are(floor: str) -> None:
    for path in modules(floor):
        assert text_of(path).count("\n") <= 400, path
        if path.name != "__init__.py" or text_of(path):
            assert ast.get_docstring(tree_of(path)), path


@pytest.mark.parametrize("floor", FLOORS)
def test_functions_stay_short(floor: str) -> None:
    for path in modules(floor):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 60, f"{path}: {node.name}"


def private_names(path: Path) -> Iterator[str]:
    """The private names that a file reads from another object or imports."""
    tree = tree_of(path)
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            own.add(node.attr)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in PATCHING:
            texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
            names = [str(text).rpartition(".")[2] for text in texts]
        else:
            continue
        yield from (name for name in names if re.match("_[a-zA-Z]", name) and name not in own)


PATCHING = ("setattr", "delattr", "getattr", "hasattr")


def test_tests_use_no_private_names() -> None:
    defined = "\n".join(text_of(path) for floor in FLOORS for path in modules(floor))
    ours = set(re.findall(r"\b_[a-zA-Z]\w*", defined))
    ours.remove("_exit")  # which is the standard library's
    assert not [(path, name) for path in modules("tests") for name in private_names(path) if name in ours]
