"""No source of the project executes text, with six stated exceptions that no model can reach."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path for package in ("envs", "policies", "seal_ray", "tuning") for path in (ROOT / package).rglob("*.py")
)

EXECUTES = {"eval", "exec", "compile", "__import__"}
LOADS = {
    "importlib": {"import_module", "__import__"},
    "pkgutil": {"resolve_name"},
    "runpy": {"run_path", "run_module"},
    "builtins": EXECUTES,
    **{module: {"loads", "load", "Unpickler"} for module in ("pickle", "cloudpickle", "marshal", "dill")},
}
ALLOWED = {
    # Names that a config or a command line gives.
    ("envs/registry.py", "pkgutil.resolve_name"),
    # The official classes of memories, by names of the table in that file.
    ("envs/bfcl/memory_tools.py", "importlib.import_module"),
    # Names of the table in that file.
    ("envs/__init__.py", "importlib.import_module"),
    # The eight simulators of the table in `tools.py`.
    ("envs/bfcl/simulators.py", "importlib.import_module"),
    # The modules of the folder that a user names, in a process of their own.
    ("envs/apibank/worker.py", "importlib.import_module"),
    # Images that were made of task data.
    ("envs/bfcl/world.py", "pickle.loads"),
}


def executing(source: str) -> Iterator[str]:
    """Every mention of something that executes text or loads code, whether it is called there or not."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) if name in EXECUTES:
                yield name
            case ast.Attribute(value=ast.Name(id=module), attr=name) if name in LOADS.get(module, ()):
                yield f"{module}.{name}"
            case ast.ImportFrom(module=str() as module, names=aliases):
                yield from (f"{module}.{alias.name}" for alias in aliases if alias.name in LOADS.get(module, ()))
            case ast.Import(names=aliases):
                yield from (
                    f"{alias.name} as {alias.asname}" for alias in aliases if alias.name in LOADS and alias.asname
                )


def test_the_sources_execute_no_text() -> None:
    assert ROOT / "envs" / "world.py" in SOURCES
    mentioned = [(str(path.relative_to(ROOT)), name) for path in SOURCES for name in executing(path.read_text("utf-8"))]
    assert set(mentioned) == ALLOWED
    assert len(mentioned) == len(ALLOWED), "an allowed place has grown"


def test_files_of_others_are_read_in_one_place() -> None:
    """Archives are never extracted; YAML, archives and PyTorch's pickles have one reader each, with limits."""
    assert [str(path.relative_to(ROOT)) for path in SOURCES if "extractall" in path.read_text("utf-8")] == []
    for word, places in {
        "yaml.load(": {"envs/received.py"},
        "safe_load(": set(),
        "tarfile": {"envs/received.py"},
        "torch.load(": {"policies/tiny/training.py"},  # of weights alone, from the cache of this machine
        "np.load(": set(),
    }.items():
        assert {str(path.relative_to(ROOT)) for path in SOURCES if word in path.read_text("utf-8")} == places, word


def test_what_counts_as_executing() -> None:
    bad = (
        *("eval(x)", "f = exec", "compile(x, '', 'eval')", "__import__(x)", "builtins.exec(x)", "runpy.run_path(x)"),
        *("importlib.import_module(x)", "from builtins import eval", "pickle.loads(x)", "from pickle import loads"),
        *("import pickle as p", "import importlib as i"),
    )
    assert [len(list(executing(source))) for source in bad] == [1] * len(bad)
    good = "model.eval()", "re.compile('x')", "ast.literal_eval(x)", "json.loads(x)", "importlib.metadata.version(x)"
    assert [name for source in good for name in executing(source)] == []
