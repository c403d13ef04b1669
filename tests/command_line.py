"""The command line in this process, and what it does with a mistake."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Protocol

import pytest
import ray

from seal_ray.cli import main


def run_main(*arguments: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Exit code, and what it said; a refusal goes to the standard error alone."""
    monkeypatch.setattr(sys, "argv", ["seal-ray", *arguments])
    try:
        main()
        code = 0
    except SystemExit as error:
        code = int(error.code or 0)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    said = capsys.readouterr()
    assert code != 2 or said.out == ""
    return code, said.err if code else said.out


def check_refused(
    *arguments: str,
    sentence: str | tuple[str, ...],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mistake is one sentence and exit code 2; in the empty `folder` nothing is written, and nothing is started.

    The sentence holds all of these words.
    """
    monkeypatch.chdir(folder)
    started = ray.is_initialized()
    code, said = run_main(*arguments, capsys=capsys, monkeypatch=monkeypatch)
    assert code == 2
    assert said.startswith("error: ")
    for words in (sentence,) if isinstance(sentence, str) else sentence:
        assert words in said
    assert said.count("\n") == 1
    assert list(folder.iterdir()) == []
    assert ray.is_initialized() == started


class Refusal(Protocol):
    """`check_refused` in a folder of the test's own: the fixture of that name."""

    def __call__(self, *arguments: str, sentence: str | tuple[str, ...]) -> None: ...
