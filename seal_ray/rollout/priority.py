"""Which processes of a run a machine with few cores computes first."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

LOWEST = 19
"""The lowest priority that a thread can have, as niceness."""


def lower_process_priority() -> None:
    """Gives all threads of this process the lowest priority; those that they start inherit it. Linux alone.

    A request's way through an env runner and an engine's front end takes little time, and halts an engine's core that
    computes on the same cores each time: for a sixth of its time on two cores (docs/performance.md).
    """
    for thread in Path("/proc/self/task").glob("*"):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.setpriority(os.PRIO_PROCESS, int(thread.name), LOWEST)
