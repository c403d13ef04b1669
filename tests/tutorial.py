"""`make tutorial`: the blocks of docs/tutorial.md in a fresh folder."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.readme import blocks

PAGE = Path(__file__).parent.parent / "docs" / "tutorial.md"


BLOCKS = blocks(PAGE.read_text("utf-8"))


def play(folder: Path) -> str:
    """Runs the page in a folder, and returns what its commands printed. Raises an `AssertionError` if one fails."""
    script = ["set -e"]
    for language, content in BLOCKS:
        if language == "python":
            name = content.removeprefix("# ").split("\n", 1)[0]
            (folder / name).write_text(content, "utf-8")
        elif language == "bash":
            script.append(content)
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(folder), "COLUMNS": "160"}
    command = ["bash", "-m", "-c", "\n".join(script)]  # with jobs, which the page ends by their number
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout + done.stderr


def missing_lines(output: str) -> list[str]:
    """The lines that the page shows and that were not printed, up to a "…"; any number fits any other."""
    printed = {_without_numbers(line) for line in output.splitlines()}
    shown = [line for language, content in BLOCKS if language == "text" for line in content.splitlines()]
    return [line for line in shown if not any(each.startswith(_without_numbers(line)) for each in printed)]


def _without_numbers(line: str) -> str:
    return re.sub(r"\d+([.,]\d+)*", "N", " ".join(line.partition("…")[0].split()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        found = play(Path(name))
    print(found)
    sys.exit(f"not printed: {missing_lines(found)}" if missing_lines(found) else 0)
