"""Programs in a pseudo-terminal, and the screen that they leave."""

import codecs
import fcntl
import os
import re
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from select import select

_SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b(?!\[)(.)|([\r\n\b])|([^\x00-\x1f])")


class Screen:
    """A screen that moves, erases and scrolls as xterm does; `above` has the lines that left it at the top."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.above: list[str] = []
        self.lines = [""]
        self.row = self.column = 0
        self.cursor = True
        self.unknown: list[str] = []

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in (*self.above, *self.lines)).rstrip()

    def feed(self, text: str) -> None:
        for match in _SEQUENCE.finditer(text):
            values, command, other, control, letter = match.groups()
            if letter:
                self._put(letter)
            elif control == "\n":
                self._down()
            elif control:
                self.column = 0 if control == "\r" else max(0, self.column - 1)
            elif command in ("h", "l") and values == "?25":
                self.cursor = command == "h"
            elif command == "A":
                self.row = max(0, self.row - int(values or 1))
            elif command == "H" and not values:
                self.row = self.column = 0
            elif command == "J" and values == "2":
                self.lines = [""] * len(self.lines)
            elif command == "K" and values == "2":
                self.lines[self.row] = ""
            elif command != "m":
                self.unknown.append(match[0] if command else other)

    def _put(self, letter: str) -> None:
        if self.column == self.columns:
            self._down()
            self.column = 0
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + letter + line[self.column + 1 :]
        self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append("")
        if self.row == self.rows:
            self.above.append(self.lines.pop(0))
            self.row -= 1


class Terminal:
    """A program that runs in a terminal until the end of the block, where it is killed if it still runs."""

    def __init__(self, *words: str, columns: int = 80, rows: int = 24) -> None:
        self.screen = Screen(columns, rows)
        self._waiting, self._decoder = "", codecs.getincrementaldecoder("utf-8")("replace")
        self._end, inside = os.openpty()
        self.resize(columns, rows)
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self._process = subprocess.Popen(
            words, preexec_fn=lambda: os.login_tty(inside), env={**environment, "TERM": "xterm"}, pass_fds=[inside]
        )
        os.close(inside)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._end)

    def resize(self, columns: int, rows: int = 24) -> None:
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.columns, self.screen.rows = columns, rows

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def wait_for(self, holds: Callable[[Screen], object], seconds: float = 60) -> None:
        """Reads until the screen is so."""
        until = time.monotonic() + seconds
        while not holds(self.screen):
            assert time.monotonic() < until, self.screen.text
            self._read()

    def finish(self, seconds: float = 60) -> int:
        """The exit code of the program, after its last output."""
        until = time.monotonic() + seconds
        while self._read() or self._process.poll() is None:
            assert time.monotonic() < until, self.screen.text
        return self._process.wait()

    def _read(self) -> bool:
        with suppress(OSError):  # the program has closed its end
            if select([self._end], [], [], 0.1)[0] and (read := os.read(self._end, 1 << 16)):
                self._waiting += self._decoder.decode(read)
                whole = re.fullmatch(r"(.*?)(\x1b(?:\[[?0-9;]*)?)?", self._waiting, re.DOTALL)  # a sequence may be cut
                assert whole is not None
                self.screen.feed(whole[1])
                self._waiting = whole[2] or ""
                return True
        return False
