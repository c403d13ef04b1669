"""Priorities of a run's processes on a machine with few cores."""

import os
from contextlib import suppress
from pathlib import Path

LOWEST = 19
"""The lowest priority that a thread can have, as niceness."""


def lower_process_priority() -> None:
    """Gives all threads of this process, and threads that they start, the lowest priority. Linux only.

    Otherwise env runners and front ends interrupt an engine's core, for a sixth of its time on two cores.
    """
    for thread in Path("/proc/self/task").glob("*"):
        with suppress(ProcessLookupError):  # it has ended
            os.setpriority(os.PRIO_PROCESS, int(thread.name), LOWEST)
