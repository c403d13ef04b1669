"""Confines a process by the kernel: it can compute and use its open files, and nothing else.

A seccomp filter refuses every system call that computing does not need: no files, sockets, processes or signals.
Landlock, if the kernel has it, refuses files and connections a second time. Neither can be undone by the process.
"""

import ctypes
import os
import socket
import struct
import subprocess
import sys
from functools import cache
from typing import Any, NoReturn

from envs.bounded import program_of

_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""Machine → its number in the kernel, and its column in `_ALLOWED`."""
_ALLOWED = [
    *[(0, 63), (1, 64), (3, 57), (5, 80), (8, 62)],  # read, write, close, fstat, lseek
    *[(9, 222), (10, 226), (11, 215), (12, 214), (25, 216), (28, 233)],  # mmap, mprotect, munmap, brk, mremap, madvise
    *[(13, 134), (14, 135), (15, 139), (131, 132)],  # rt_sigaction, rt_sigprocmask, rt_sigreturn, sigaltstack
    *[(38, 103), (228, 113), (230, 115)],  # setitimer, clock_gettime, clock_nanosleep
    *[(60, 93), (202, 98), (231, 94), (318, 278)],  # exit, futex, exit_group, getrandom
]
"""The numbers of system calls, from Linux' `asm/unistd_64.h` and `asm-generic/unistd.h`."""
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
_NUMBER_AT, _MACHINE_AT = 0, 4
_NO_NEW_PRIVILEGES, _SET_SECCOMP = 38, 22
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446


def confine() -> bool:
    """Confines this process for the rest of its life. Returns whether that worked, which is tested.

    Import modules before; later imports fail as if the module did not exist.
    """
    machine = os.uname().machine
    if sys.platform == "linux" and machine in _MACHINES:
        libc = ctypes.CDLL(None)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        _refuse_files(libc)
        _refuse_system_calls(libc, machine)
    return _is_confined()


@cache
def can_confine() -> bool:
    """Whether this machine's kernel confines a process, tested in a child process."""
    program = program_of(__name__)
    return subprocess.run(program, stdin=subprocess.DEVNULL, check=False).returncode == 0  # noqa: S603 - this file


def main() -> NoReturn:
    """Ends with 0 if this process was confined."""
    sys.exit(0 if confine() else 1)


def _refuse_files(libc: Any) -> None:
    """Landlock: a ruleset over all files, and over TCP if the kernel supports it, without any rule that allows."""
    version = libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if version > 0:
        ruleset = struct.pack("QQ", (1 << 13) - 1, 3)
        libc.syscall(_LANDLOCK_RESTRICT, libc.syscall(_LANDLOCK_CREATE, ruleset, 16 if version >= 4 else 8, 0), 0)


def _refuse_system_calls(libc: Any, machine: str) -> None:
    """Seccomp: a filter of steps (operation, two jumps, value)."""
    name, column = _MACHINES[machine]
    steps = [(_LOAD, 0, 0, _MACHINE_AT), (_JUMP_IF_EQUAL, 1, 0, name), (_RETURN, 0, 0, _KILL)]
    steps += [(_LOAD, 0, 0, _NUMBER_AT)]
    left = len(_ALLOWED)
    steps += [(_JUMP_IF_EQUAL, left - place, 0, each[column]) for place, each in enumerate(_ALLOWED)]
    steps += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    libc.prctl(_SET_SECCOMP, 2, struct.pack("HP", len(steps), ctypes.addressof(code)), 0, 0)


def _is_confined() -> bool:
    """Whether a file, a socket and a process are all refused."""
    attempts = (
        lambda: os.open(os.sep, os.O_RDONLY),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),
        lambda: os.fork() or os._exit(0),
    )
    for attempt in attempts:
        try:
            attempt()
        except PermissionError:
            continue
        return False
    return True
