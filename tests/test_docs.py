"""The pages' tables of where to go: every path in them is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if "| to change |" in page.read_text(encoding="utf-8")]


def named(page: Path) -> Iterator[tuple[str, str]]:
    """The files and folders that the page's table names in code marks, each with the folder of the one before it."""
    rows = page.read_text(encoding="utf-8").partition("| to change |")[2].partition("\n\n")[0].splitlines()
    for row in rows[2:]:
        before = ""
        for name in re.findall(r"`([\w./]+(?:\.py|\.yaml|\.jinja|/))`", row.rsplit("|", 2)[1]):
            yield name, before
            before = name.rpartition("/")[0] or before


def test_there_are_such_tables() -> None:
    assert {page.stem for page in PAGES} >= {"world", "solver", "training", "serving"}
    assert sum(len(list(named(page))) for page in PAGES) > 60


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_path_in_a_table_is_dead(page: Path) -> None:
    """Paths are below the folder in the page's title or the one above it, or below the root."""
    title = page.read_text(encoding="utf-8").splitlines()[0]
    folders = [ROOT / found for found in re.findall(r"`([\w/]+/)`", title)] or [ROOT]
    for name, before in named(page):
        places = [ROOT, *folders, *(each.parent for each in folders)]
        places += [path for folder in folders for path in folder.rglob("*") if path.is_dir()]
        assert any((place / name).exists() or (place / before / name).exists() for place in places), name


def test_the_legend_has_every_letter_of_a_shape() -> None:
    legend = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("| letter |")[2]
    known = set(re.findall(r"^\| `(\w)` \|", legend, re.MULTILINE))
    named = set()
    for floor in ("envs", "policies", "seal_ray", "tuning", "examples"):
        for path in (ROOT / floor).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
                named |= set("".join(re.findall(r"[a-z]_(1?[A-Z]{1,3}1?[A-Z]?)$", name)))
    assert named
    assert named <= known
