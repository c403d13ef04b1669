"""The verdicts of the official `bfcl evaluate` on result files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from seal_ray.evaluation.bfcl_results import REGISTERED


def official_failures(results: Path, dialect: str, scores: Path) -> set[str]:
    """Grades the files and returns the ids of the tasks that failed."""
    name = REGISTERED[dialect]
    where = ("--result-dir", str(results.resolve()), "--score-dir", str(scores.resolve()))
    done = subprocess.run(
        [
            *(sys.executable, str(Path(__file__).with_name("official_cli.py")), "evaluate", "--model", name),
            *("--test-category", "multi_turn", "--partial-eval", *where),
        ],
        env={**os.environ, "BFCL_PROJECT_ROOT": str(scores.resolve())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    files = sorted((scores / name.replace("/", "_")).rglob("*_score.json"))
    assert len(files) == len(sorted(results.rglob("*_result.json")))
    rows = [json.loads(line) for file in files for line in file.read_text("utf-8").split("\n") if line]
    return {row["id"] for row in rows if "id" in row}
