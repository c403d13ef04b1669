"""The language of code and pages: banned wordings, names, and one definition for each class name."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FLOORS = ("envs", "policies", "seal_ray", "tuning")
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.stem != "config"),
    *(page for page in sorted((ROOT / "docs" / "results").glob("*.md")) if page.stem != "PROVENANCE"),
]
"""The hand-written pages; PROVENANCE.md has dates and the names of then."""
BANNED = {
    r"in (the )?place of": "instead of",
    r"\bbeside\b": "alongside, next to, with",
    r"in the mean\b": "on average",
    r"one's own|of your own|of its own accord": "custom",
    r"\b(goes|go|going|went|gone) on\b(?! (top|one|the|a|engines|it|them))": "resumes, continues",
    r"is not shown to": "no evidence that",
    r"(^|[.!?] )(Those|That) of\b": "the noun",
    r"(^|[.!?] )What (is|was|has|a|an|the|it|they)\b": "the noun",
    r"\b(is|are|be|was|were) (told|asked)\b": "gets, is called",
    r"\b(knows|tells|speaks|takes? note|had come to|mended|begins anew|held against|ma[dk]e out)\b": "returns, raises",
    r"\b(crutch|anchored|authorship|curation|sitting|happening)\b": "the term of the glossary",
    r"\bwhoever\b|\bsomebody\b|\bnobody\b|\banybody\b": "the actor",
}
"""Wording in docstrings, comments, messages and pages → what to write instead."""
DIARY = {r"seen in passing": "the measurement, or nothing", r"\b20\d\d-\d\d-\d\d\b": "the present: no dates"}
"""The same for pages alone."""
NAMES = {
    r"^_?of_|^_?(of|in|at|by|for|with|from|to|on|over|under|beside)$": "a function is named for what it does",
    r"(?i)crutch|anchored|authorship|sitter|\bsitting\b|happening|give_way|unless_stuck|division\b": "the term for it",
}
"""Names of functions, classes, arguments and attributes → the rule."""
ALLOWED: dict[tuple[str, str], str] = {
    ("docs/concepts.md", "is asked"): "a guideline, which a model reads",
    ("docs/solver.md", "2024-07-26"): "a date that a template reads",
    ("envs/dialogue.py", "over"): "the name in gymnasium's interface of a game",
    ("envs/interface/leaks.py", "of"): "an alternative constructor of a private value",
    ("envs/toolworld/compose.py", "was told"): "a text of a task's soundness, which runs record",
    ("envs/toolworld/scenes/messages.py", "Somebody"): "a text that a model reads",
    ("envs/toolworld/scenes/messages.py", "nobody"): "a text that a model reads",
    ("envs/toolworld/specification/composing.py", "be asked"): "a rejection, which runs record",
    ("envs/toolworld/specification/value.py", "beside"): "a rejection, which runs record",
    ("policies/curator/fixed.py", "speaks"): "a text that a model reads",
    ("policies/curator/rules.py", "is asked"): "a text that a model reads",
    ("policies/watchdog.py", "over"): "`with watch.over(task)` reads as a sentence",
    ("seal_ray/grpo/packing.py", "to"): "PyTorch's name for a copy on a device",
    ("seal_ray/grpo/rows.py", "of"): "an alternative constructor",
    ("seal_ray/proposing/task_pool.py", "tells"): "a rejection, which runs record",
}
"""File and text → the reason why it stays."""


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Comments, docstrings, and outside of tests messages (strings with a space), with their line."""
    source = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")
    nodes: Iterable[ast.AST] = ast.walk(ast.parse(source))
    if path.is_relative_to(ROOT / "tests"):
        nodes = [node.value for node in nodes if isinstance(node, ast.Expr)]
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, " ".join(node.value.split())


def paragraphs(page: Path) -> Iterator[tuple[int, str]]:
    """Paragraphs and tables without code, with their line."""
    text = re.sub(
        r"```.*?```", lambda block: "\n" * block[0].count("\n"), page.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    for paragraph in re.finditer(r"\S.*?(?=\n\s*\n|\Z)", text, re.DOTALL):
        yield text.count("\n", 0, paragraph.start()) + 1, re.sub(r"`[^`]*`", "``", " ".join(paragraph[0].split()))


def names(path: Path) -> Iterator[tuple[int, str]]:
    """Names that a file defines, with their line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def hits() -> list[tuple[str, int, str, str]]:
    found = []
    for path in (*files(*FLOORS, "tests"), *PAGES):
        where = str(path.relative_to(ROOT))
        for line, text in paragraphs(path) if path in PAGES else texts(path):
            found += [
                (where, line, match[0], instead)
                for pattern, instead in (BANNED | DIARY if path in PAGES else BANNED).items()
                for match in re.finditer(pattern, text, re.IGNORECASE if pattern.islower() else 0)
            ]
        for line, name in names(path) if where.startswith(FLOORS) else ():
            found += [(where, line, name, rule) for pattern, rule in NAMES.items() if re.search(pattern, name)]
    return found


def test_the_banned_wordings_are_not_used() -> None:
    assert len(ALLOWED) <= 30
    wrong = [hit for hit in hits() if (hit[0], hit[2]) not in ALLOWED]
    assert not wrong, "\n".join(f"{file}:{line}: {text!r}: write {instead}" for file, line, text, instead in wrong[:50])


def test_few_sentences_of_pages_are_long() -> None:
    prose = re.compile(r"(?:[-*] |\d+\. )?[^|#!<\s]")
    paragraphs_of = (text for page in PAGES for _, text in paragraphs(page) if prose.match(text))
    items = (item for text in paragraphs_of for item in re.split(r" (?=[*-] |\d+\. )", text))
    sentences = [each for item in items for each in re.split(r"(?<=[.!?:]) (?=[A-Z`*\[“\"])", item)]
    long = [each for each in sentences if len(each.split()) > 30]
    assert len(sentences) > 800
    assert len(long) < 0.03 * len(sentences), "\n".join(long)


def test_a_class_name_has_one_definition() -> None:
    defined: dict[str, list[str]] = defaultdict(list)
    for path in files(*FLOORS):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in defined.items() if len(places) > 1} == {}
