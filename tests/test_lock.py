"""The lock files name every package that the set-up installs, with its hashes."""

import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def pins(path: Path) -> dict[str, str]:
    """Package → version. Raises `AssertionError` for one without a hash."""
    entries = re.split(r"\n(?=\S)", path.read_text("utf-8").strip())
    for entry in entries:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry[:80]
    return dict(re.findall(r"^([\w.-]+)==(\S+)", "\n".join(entries), re.MULTILINE))


@pytest.mark.parametrize(
    "name", ["build", "clients-new", "clients-old", "cpu", "docs", "flash", "gpu", "inspect", "no-deps", "uv"]
)
def test_every_package_has_a_hash_and_no_place(name: str) -> None:
    path = ROOT / "requirements" / f"{name}.txt"
    assert pins(path)
    assert "://" not in path.read_text("utf-8")


def test_the_project_s_pins_are_those_of_the_lock_files() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    optional = project["optional-dependencies"]
    locked = pins(ROOT / "requirements" / "cpu.txt")
    for each in (*project["dependencies"], *optional["cpu"], *optional["dev"]):
        name, wanted = re.sub(r"\[.*?\]", "", each).split("==")
        assert locked[name].split("+")[0] == wanted


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the lock files are for Python 3.11")
def test_what_is_installed_is_what_is_locked() -> None:
    if (ROOT / ".venv" / ".extra").is_file() and (ROOT / ".venv" / ".extra").read_text().strip() == "gpu":
        pytest.skip("the GPU set-up")
    locked = pins(ROOT / "requirements" / "cpu.txt")
    assert {name: version(name) for name in locked} == locked
