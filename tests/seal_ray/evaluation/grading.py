"""The verdicts of the official `bfcl evaluate` on result files."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def bfcl(*arguments: str, root: Path, environment: Mapping[str, str] | None = None) -> None:
    """Runs the official `bfcl` command; `root` is where it writes what it was not told to write elsewhere."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("official_cli.py")), *arguments],
        env={**os.environ, "BFCL_PROJECT_ROOT": str(root.resolve()), **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def official_failures(
    results: Path, names: Sequence[str], scores: Path, *, environment: Mapping[str, str] | None = None
) -> dict[str, set[str]]:
    """Grades the files of registered models. Returns, by their names, the ids of the tasks that failed."""
    where = ("--result-dir", str(results.resolve()), "--score-dir", str(scores.resolve()))
    asked = ("evaluate", "--model", ",".join(names), "--test-category", "multi_turn", "--partial-eval")
    bfcl(*asked, *where, root=scores, environment=environment)
    found: dict[str, set[str]] = {}
    for name in names:
        folder = name.replace("/", "_")
        files = sorted((scores / folder).rglob("*_score.json"))
        assert len(files) == len(list((results / folder).rglob("*_result.json"))) > 0
        rows = [json.loads(line) for file in files for line in file.read_text("utf-8").split("\n") if line]
        found[name] = {row["id"] for row in rows if "id" in row}
    return found
