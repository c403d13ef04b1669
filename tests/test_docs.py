"""The pages: every path in their tables of where to go is there, and every command of theirs can be given."""

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer

from seal_ray.cli.app import add_commands_of_other_floors, app
from seal_ray.config.presets import parse_words, preset_names
from tests.readme import blocks

ROOT = Path(__file__).parent.parent
OURS = ("envs", "policies", "seal_ray", "tuning", "tests", "examples")
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if "| to change |" in page.read_text(encoding="utf-8")]


def named(page: Path) -> Iterator[tuple[str, str]]:
    """The files and folders that the page's table names in code marks, each with the folder of the one before it."""
    rows = page.read_text(encoding="utf-8").partition("| to change |")[2].partition("\n\n")[0].splitlines()
    for row in rows[2:]:
        before = ""
        for name in re.findall(r"`([\w./]+(?:\.py|\.yaml|\.jinja|/))`", row.rsplit("|", 2)[1]):
            yield name, before
            before = name.rpartition("/")[0] or before


def test_there_are_such_tables_and_many_commands() -> None:
    assert {page.stem for page in PAGES} >= {"world", "solver", "training", "serving"}
    assert sum(len(list(named(page))) for page in PAGES) > 60
    assert sum(len(list(commands(page))) for page in WITH_COMMANDS) > 90


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_path_in_a_table_is_dead(page: Path) -> None:
    """Paths are below the folder that the title or the words above the table name, any of ours, or the root."""
    above = page.read_text(encoding="utf-8").partition("| to change |")[0].strip()
    stated = re.findall(r"`([\w/]+/)`", above.partition("\n")[0] + above.rpartition("\n\n")[2])
    folders = [ROOT / found for found in stated] or [ROOT / each for each in OURS]
    for name, before in named(page):
        places = [ROOT, *folders, *(each.parent for each in folders)]
        places += [path for folder in folders for path in folder.rglob("*") if path.is_dir()]
        assert any((place / name).exists() or (place / before / name).exists() for place in places), name


def commands(page: Path) -> Iterator[list[str]]:
    """The words behind `seal-ray` in each line of the page's blocks that calls it, up to what ends a command."""
    for language, block in blocks(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines() if language in ("", "bash") else ():
            if not re.match(r"(?:[^#']*[\s/])?seal-ray ", line):
                continue
            lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&>")
            lexer.whitespace_split = True
            words = iter(lexer)
            for word in words:
                if word.rpartition("/")[2] == "seal-ray":
                    own = takewhile(lambda each: not set(each) <= set(";|&>"), words)
                    yield [re.sub(r"\$\w+", "1", each) for each in own]


TEXTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "results").glob("*.md")))
WITH_COMMANDS = [page for page in TEXTS if any(commands(page))]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_every_command_can_be_given(page: Path) -> None:
    """Its command and options are there, its presets and settings too; it is not run."""
    add_commands_of_other_floors()
    program: Any = typer.main.get_command(app)
    for words in commands(page):
        command, name, rest = program, "seal-ray", words
        while hasattr(command, "get_command"):
            context = command.context_class(command, info_name=name)
            name, *rest = rest
            command = command.get_command(context, name)
            assert command is not None, words
        given = command.make_context(name, rest).params
        parse_words(given.get("overrides") or ())
        presets = given.get("preset") or []
        for preset in [presets] if isinstance(presets, str) else presets:
            assert preset in preset_names() or preset.endswith(".yaml"), words
        for arm in filter(None, str(given.get("arms") or "").split(",")):
            assert arm in preset_names("method"), words


def test_the_legend_has_every_letter_of_a_shape() -> None:
    legend = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("| letter |")[2]
    known = set(re.findall(r"^\| `(\w)` \|", legend, re.MULTILINE))
    named = set()
    for floor in ("envs", "policies", "seal_ray", "tuning", "examples"):
        for path in (ROOT / floor).rglob("*.py"):
            for letters in re.findall(r"\b\w*[a-z]_(1?[A-Z]{1,3}1?[A-Z]?)\b", path.read_text(encoding="utf-8")):
                named |= set(letters)
    assert named
    assert named <= known


def test_the_messages_of_the_limits_are_those_of_the_code() -> None:
    sources = (path.read_text(encoding="utf-8") for floor in OURS[:4] for path in (ROOT / floor).rglob("*.py"))
    texts = " ".join(re.sub(r'"\s*\n\s*f?"', "", source) for source in sources)
    rows = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8").partition("| message |")[2].splitlines()
    messages = [
        each for row in rows if row.startswith("| `") for each in re.findall(r"`([^`]{5,})`", row.split("|")[1])
    ]
    assert len(messages) > 30
    assert [each for each in messages if each.strip() not in texts] == []
