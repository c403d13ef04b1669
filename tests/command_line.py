"""The command line in this process, and what it does with a mistake."""

import io
import signal
import sys
from pathlib import Path
from typing import Protocol

import pytest
import ray

from seal_ray.cli import main


def run_main(
    *arguments: str, code: int = 0, stdin: str = "", capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> str:
    """The output of a command that ends with this exit code; a refusal is one line, and on the standard error alone."""
    monkeypatch.setattr(sys, "argv", ["seal-ray", *arguments])
    monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
    found: object = 0
    try:
        main()
    except SystemExit as error:
        found = error.code or 0
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    said = capsys.readouterr()
    assert found == code, said
    assert code != 2 or (said.out, said.err.count("\n")) == ("", 1), said
    return said.err if code else said.out


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
    said = run_main(*arguments, code=2, capsys=capsys, monkeypatch=monkeypatch)
    assert said.startswith("error: ")
    for words in (sentence,) if isinstance(sentence, str) else sentence:
        assert words in said
    assert list(folder.iterdir()) == []
    assert ray.is_initialized() == started


class RunMain(Protocol):
    """`run_main` with what pytest gives a test: the fixture of that name."""

    def __call__(self, *arguments: str, code: int = 0, stdin: str = "") -> str: ...


class Refusal(Protocol):
    """`check_refused` in a folder of the test's own: the fixture of that name."""

    def __call__(self, *arguments: str, sentence: str | tuple[str, ...]) -> None: ...
