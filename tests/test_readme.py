"""The README's examples are run, not trusted."""

import re
import shlex
import subprocess
import sys

import pytest

from tests.processes import seal_ray
from tests.readme import ROOT, TEXT

PYTHON = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [
    line.split(" #")[0].strip()
    for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
    if line.startswith(".venv/bin/seal-ray") and " evaluate " not in line  # those are run in tests/seal_ray/serving
]
TARGETS = set(re.findall(r"`?make ([a-z]+)", TEXT))


def test_the_readme_has_examples() -> None:
    assert len(PYTHON) >= 2
    assert len(COMMANDS) >= 4
    assert {"demo", "test", "lint", "bench"} <= TARGETS


@pytest.mark.parametrize("program", PYTHON)
def test_python_examples_run(program: str) -> None:
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True).stdout.strip()


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run(command: str) -> None:
    arguments = shlex.split(command)[1:]
    plays = "play" in arguments and "--oracle" not in arguments
    assert seal_ray(*arguments, cwd=ROOT, stdin="\n" * 20 if plays else "").strip()


def test_every_make_target_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in TARGETS:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_file_named_in_the_docs_exists() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
