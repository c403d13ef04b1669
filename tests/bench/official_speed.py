"""The official side of `make bench`, as a program that reports items a second.

Like the official runner, every task gets a model name of its own, as its simulators stay in module globals.
"""

import itertools
import time
from typing import Any

from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

from tests.bench.asking import answer_lines
from tests.envs.official import raw_entries

_FRESH = itertools.count()


def execute(entry: dict[str, Any], name: str) -> int:
    """One official executor call for each ground-truth call; returns their number."""
    count = 0
    for calls in entry["ground_truth"]:
        for call in calls:
            execute_multi_turn_func_call(
                [call],
                entry["initial_config"],
                entry["involved_classes"],
                name,
                entry["id"],
                long_context="long_context" in entry["id"],
            )
            count += 1
    return count


def check(entry: dict[str, Any], name: str) -> None:
    """One official checker call."""
    turns = [[[call] for call in calls] for calls in entry["ground_truth"]]
    found = multi_turn_checker(turns, entry["ground_truth"], entry, entry["id"].rsplit("_", 1)[0], name)
    assert found["valid"]


def steps(some: list[dict[str, Any]]) -> int:
    return sum(execute(entry, f"speed{next(_FRESH)}") for entry in some)


def verifications(some: list[dict[str, Any]]) -> int:
    for entry in some:
        check(entry, f"speed{next(_FRESH)}")
    return len(some)


def dialogues(some: list[dict[str, Any]]) -> int:
    """Execution while the model plays, and the checker's own afterwards, as the official runner does it."""
    for entry in some:
        name = f"speed{next(_FRESH)}"
        execute(entry, name)
        check(entry, name)
    return len(some)


WORKS = {"steps": steps, "verifications": verifications, "dialogues": dialogues}


def main() -> None:
    known = raw_entries()

    def speed(request: dict[str, Any]) -> float:
        some = [known[name] for name in request["names"]]
        started = time.perf_counter()
        count = WORKS[request["what"]](some)
        return count / (time.perf_counter() - started)

    answer_lines(speed)


if __name__ == "__main__":
    main()
