"""The examples run, in a process of their own, and say what they did."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROUND = ROOT / "examples" / "round.py"


@pytest.mark.long
def test_a_round_is_played_learnt_and_played_again_without_ray() -> None:
    program = (
        "import asyncio, runpy, sys\n"
        f"room = runpy.run_path({str(ROUND)!r}, run_name='room')\n"
        "room['main'].__globals__.update(GROUPS=4, GROUP_SIZE=6)\n"
        "asyncio.run(room['main']())\n"
        "print('loaded:', *(name for name in ('ray', 'vllm') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    said = done.stdout
    assert re.findall(r"^(before|after)\s+(plain|guided)\s+success +[\d.]+%", said, re.MULTILINE) == [
        ("before", "plain"),
        ("before", "guided"),
        ("after", "plain"),
        ("after", "guided"),
    ]
    rows, dialogues, tokens = map(int, re.findall(r"learnt from (\d+) of (\d+) dialogues, (\d+) sampled", said)[0])
    assert 0 < rows <= dialogues == 24
    assert tokens > rows
    (furthest,) = re.findall(r"differed by ([\d.e+-]+) at most", said)
    assert float(furthest) < 1e-3
    assert said.splitlines()[-1] == "loaded:"


def test_a_reader_takes_it_in_at_one_go() -> None:
    assert len(ROUND.read_text(encoding="utf-8").splitlines()) <= 150
