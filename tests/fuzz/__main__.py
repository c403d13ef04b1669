"""`python -m tests.fuzz -n COMPLETIONS`: plays hostile completions, sends hostile requests and reads hostile files.

A chunk of each follows from the seed and its number: the arguments next to a failure repeat it. The exit code is 1 if
something escaped, broke a promise, or exceeded its bounds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from typing import TypeVar

from tests.fuzz import completions, received, requests
from tests.fuzz.pieces import Tally

STEP_S, DIALOGUE_MIB = 1.0, 256.0
"""Bounds of a step and a dialogue."""
REQUEST_S = 1.0
"""Bound of a request until it is answered or handed to the engine."""
FILE_S, FILE_MIB = 1.0, 256.0
"""What reading a file may cost."""
_PULSE = 10.0


T = TypeVar("T", bound=Tally)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("-n", type=int, default=20_000, help="completions to play")
    parser.add_argument("--requests", type=int, help="requests to send; one for each twenty completions if left out")
    parser.add_argument("--files", type=int, help="files to read; one for every other completion if left out")
    parser.add_argument("--commands", type=int, help="of these through commands; one for 400 completions if left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first chunk")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    asked = given.n // 20 if given.requests is None else given.requests
    files = given.n // 2 if given.files is None else given.files
    commands = given.n // 400 if given.commands is None else given.commands
    none = "-n 0 --requests 0"
    with ProcessPoolExecutor(given.processes, initializer=completions.warm_up) as pool:
        part = partial(run, pool, given)
        played, escaped = part(completions.play_chunk, completions.Measured(), given.n, completions.CHUNK, "-n")
        sent, slipped = part(requests.send_chunk, requests.Sent(), asked, requests.CHUNK, "-n 0 --requests")
        again = f"{none} --commands 0 --files"
        read, passed = part(received.read_chunk, received.Read(), files, received.CHUNK, again)
        ended, failed = part(received.run_command, received.Read(), commands, 1, f"{none} --files 0 --commands")
    print(
        f"{played.completions:,} completions in {played.dialogues:,} dialogues, {played.calls:,} calls "
        f"({played.errors:,} errors)\n"
        f"  {', '.join(f'{kind} {count:,}' for kind, count in sorted(played.by_kind.items()))}\n"
        f"  exceptions and broken promises: {escaped}\n"
        f"  slowest step: {played.slowest:.3f} s of CPU ({played.slowest_of})\n"
        f"  most memory over a chunk's start: {played.grown:.0f} MiB\n"
        f"{sent.requests:,} requests\n"
        f"  answers: {', '.join(f'{status}: {count:,}' for status, count in sorted(sent.statuses.items()))}\n"
        f"  exceptions and broken promises: {slipped}\n"
        f"  slowest: {sent.slowest:.3f} s of CPU ({sent.slowest_of})\n"
        f"{read.files:,} files, {ended.files} of others through commands\n"
        f"  {', '.join(f'{name}: {count:,}' for name, count in sorted((read.outcomes + ended.outcomes).items()))}\n"
        f"  exceptions and broken promises: {passed + failed}\n"
        f"  slowest: {read.slowest:.3f} s of CPU ({read.slowest_of}), most memory: {read.grown:.0f} MiB"
    )
    costly = played.slowest > STEP_S or played.grown > DIALOGUE_MIB or sent.slowest > REQUEST_S
    costly = costly or read.slowest > FILE_S or read.grown > FILE_MIB
    return int(bool(escaped or slipped or passed or failed) or costly)


def run(
    pool: ProcessPoolExecutor,
    given: argparse.Namespace,
    chunk: Callable[[int, int], T],
    total: T,
    count: int,
    size: int,
    option: str,
) -> tuple[T, int]:
    """Runs the chunks that make up `count`; returns what they came to, and how many failed."""
    numbers = range(given.first, given.first - (-count // size))
    failures, told = 0, time.monotonic()
    under_way = {pool.submit(chunk, given.seed, number): number for number in numbers}
    for place, done in enumerate(as_completed(under_way), 1):
        try:
            total.add(done.result())
        except Exception as error:  # noqa: BLE001 - whatever escaped is what is looked for
            failures += 1
            again = f"--seed {given.seed} --first {under_way[done]} {option} {size}"
            print(f"a chunk failed ({again}): {error!r}"[:2_000], flush=True)
        if time.monotonic() - told > _PULSE:
            told = time.monotonic()
            print(f"… {place} of {len(under_way)} chunks", flush=True)
    return total, failures


if __name__ == "__main__":
    sys.exit(main())
