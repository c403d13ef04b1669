"""Processes that answer too much, something else, or nothing: there is no answer, and the owner continues."""

import sys

import pytest

from envs.bounded import BoundedProcess

PROGRAMS = {
    "endless": "sys.stdin.buffer.raw.read(1)\nwhile True: print('x' * 65536, end='')",
    "silent": "import time; time.sleep(60)",
    "deep": "input(); print('[' * 100_000, flush=True); input()",
    "early": "sys.stdin.buffer.raw.read(1); print(1, flush=True); import time; time.sleep(60)",
    "twice": "input(); print('1\\n2', flush=True); input()",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_process_that_does_not_answer_as_it_should_has_no_answer(program: str) -> None:
    code = f"import sys; input(); print(1, flush=True)\n{PROGRAMS[program]}"
    process = BoundedProcess(lambda: (sys.executable, "-S", "-c", code), seconds=1.0)
    assert process.ask({}) == 1
    assert process.ask({"text": "x" * 1_000_000}) is None
    assert process.pid is None


def test_the_first_line_reaches_every_process() -> None:
    program = "import sys; first = sys.stdin.readline(); [print(first, end='', flush=True) for _ in iter(input, '0')]"
    process = BoundedProcess(lambda: (sys.executable, "-S", "-c", program), seconds=5.0, first={"a": 1})
    assert process.ask({}) == process.ask({}) == {"a": 1}
    process.close()
    assert process.ask({}) == {"a": 1}
    process.close()
