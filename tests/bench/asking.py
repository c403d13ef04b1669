"""The official sides of comparisons, as programs of their own: one answers each line of JSON by another."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]


class Asked:
    """A running program, of these arguments of Python's."""

    def __init__(self, *arguments: str, cwd: Path = ROOT, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=cwd,
            env={**os.environ, **environment},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()

    def ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def answer_lines(answer: Callable[[dict[str, Any]], Any]) -> None:
    """Answers all requests. Prints in between go to the standard error."""
    replies, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        replies.write(json.dumps(answer(json.loads(line))) + "\n")
        replies.flush()
