"""`python -m seal_ray.cli.reference FOLDER`: the pages of all commands and metrics, made from the code."""

import re
import sys
from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click

from seal_ray.cli.app import add_commands_of_other_floors, app
from seal_ray.metrics import METRICS


def commands_as_markdown() -> str:
    """All commands with their arguments and options."""
    add_commands_of_other_floors()
    program: Any = typer.main.get_command(app)
    text = get_docs_for_click(obj=program, ctx=typer.Context(program), name="seal-ray", title="Commands")
    return re.sub(r"\[/?bold\]", "", text)


def metrics_as_markdown() -> str:
    """All metrics with unit and meaning."""
    rows = [f"| `{each.name}` | {each.unit} | {each.meaning} |" for each in METRICS]
    return "\n".join(["# Metrics", "", "| metric | unit | meaning |", "| --- | --- | --- |", *rows, ""])


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    (folder / "commands.md").write_text(commands_as_markdown(), "utf-8")
    (folder / "metrics.md").write_text(metrics_as_markdown(), "utf-8")
