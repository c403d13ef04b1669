"""The examples of the README and the pages are run, not trusted."""

import re
import shlex
import subprocess
import sys

import pytest

from tests.processes import seal_ray
from tests.readme import BLOCKS, ROOT, TEXT

README = (ROOT / "README.md").read_text(encoding="utf-8")
CONCEPTS = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
PYTHON = [content for language, content in BLOCKS if language == "python" and content in README + CONCEPTS]
LINES = [line.split(" #")[0].strip() for line in README.splitlines()]
COMMANDS = [line for line in LINES if line.startswith(("seal-ray tasks", "seal-ray play"))]
TARGETS = set(re.findall(r"(?:^|`)make ([a-z]+)\b", TEXT, re.MULTILINE))


def test_the_readme_has_examples() -> None:
    assert len(PYTHON) >= 3
    assert len(COMMANDS) >= 3
    assert {"demo", "test", "lint", "bench"} <= TARGETS


@pytest.mark.long
@pytest.mark.parametrize("program", PYTHON)
def test_python_examples_run(program: str) -> None:
    small = "training(groups=2, group_size=2, minibatch_groups=1)"
    sooner = program.replace("SealConfig()", f'SealConfig().engine(kind="transformers").{small}')
    assert subprocess.run([sys.executable, "-c", sooner], cwd=ROOT, capture_output=True, check=True).stdout.strip()


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
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "results").glob("*.md")):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
