"""The tests' side of the official checker: starts `official_runner` as a subprocess and asks it."""

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from envs.bfcl.tools import data_folder
from envs.task import Task, ToolCall
from tests.bench.asking import Asked

Calls = Sequence[Sequence[Sequence[ToolCall]]]
"""turn → step → call"""


HASH_SEED = "1"
"""Fixes the order in which the official process prints sets; with this one it is not the sorted order."""


@functools.cache
def raw_entries() -> dict[str, dict[str, Any]]:
    """The untouched entries of the data files by id, with their ground truth as published."""
    entries = {}
    for path in sorted(data_folder().glob("BFCL_v4_multi_turn_*.json")):
        answers = (data_folder() / "possible_answer" / path.name).read_text(encoding="utf-8").splitlines()
        for line, answer in zip(path.read_text(encoding="utf-8").splitlines(), answers, strict=True):
            entry = json.loads(line) | {"ground_truth": json.loads(answer)["ground_truth"]}
            assert entry["id"] == json.loads(answer)["id"]
            entries[entry["id"]] = entry
    return entries


def as_source(call: ToolCall) -> str:
    """A call as the official handlers write it before they evaluate it."""
    return f"{call.name}({','.join(f'{key}={value!r}' for key, value in call.arguments.items())})"


class Official(Asked):
    """A running official checker."""

    def __init__(self) -> None:
        super().__init__("-m", "tests.envs.official_runner", PYTHONHASHSEED=HASH_SEED)

    def results(self, task: Task, turns: Calls) -> list[list[list[str]]]:
        """Result texts of all calls."""
        found: list[list[list[str]]] = self._ask("execute", task, turns)["results"]
        return found

    def ground_truth_results(self, task: Task) -> list[list[str]]:
        """Result texts of the published ground truth, turn by turn, from its source strings."""
        entry = raw_entries()[task.id]
        answer = self._send("execute", entry, [[turn] for turn in entry["ground_truth"]])
        return [turn[0] for turn in answer["results"]]

    def verdict(self, task: Task, turns: Calls) -> dict[str, Any]:
        """`{"valid": …, "error_type": …}`, or `{"crash": …}` where the official checker itself failed."""
        return self._ask("check", task, turns)

    def _ask(self, what: str, task: Task, turns: Calls) -> dict[str, Any]:
        source = [[[as_source(call) for call in step] for step in turn] for turn in turns]
        return self._send(what, raw_entries()[task.id], source)

    def _send(self, what: str, entry: dict[str, Any], turns: Iterable[Any]) -> dict[str, Any]:
        needed = {key: entry[key] for key in ("id", "initial_config", "involved_classes")}
        answer: dict[str, Any] = self.ask(
            what=what, entry=needed, turns=list(turns), ground_truth=entry["ground_truth"]
        )
        return answer


def running() -> Iterator[Official]:
    """For a fixture: an official checker that ends with the tests."""
    with Official() as official:
        yield official
