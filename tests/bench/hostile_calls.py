"""A search of the 128 tools for calls that do not return or cost too much: hostile arguments, grown states.

`python -m tests.bench.hostile_calls PART MEASURE EVERY` plays one part of the search in this process, under limits on
CPU time and memory, and prints one line of JSON: the costliest steps. `PART` is one of `PARTS`; `MEASURE` is `time`
(CPU seconds) or `memory` (MiB of Python objects, the peak within a step and what a dialogue holds; much slower);
`EVERY` is n to play each n-th attack on each tool and state, 1 for all (about four minutes for the time of all parts).
A step that is not bounded ends the process; its attack is the last line on the standard error.
"""

import gc
import itertools
import json
import resource
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from envs.bfcl.tasks import load_tasks
from envs.bfcl.tools import DOCUMENT_FILES, all_tools, tools_of
from envs.bfcl.world import Simulators, simulators_of
from envs.dialects import DIALECTS, Dialect
from envs.dialogue import Dialogue
from envs.interface import Interface
from envs.interface.value import RecoveryLevel
from envs.task import JSON, Category, Task, Turn
from tests.bench.hostile_states import BIG, GROWN, SETUP, Calls, call, hostile

CPU_S = 300
MEMORY_BYTES = 3 * 2**30
CONTEXT = 131_072
"""The largest context for which the bounds must hold."""
FILLED = {"qwen": 99_000, "llama3_json": 99_000, "toolace": 19_000}
"""Characters of a completion that is filled with calls, just below what each dialect reads."""
TURNS = 8
COMPACT = DIALECTS["llama3_json"]
"""The dialect with the most calls in a completion."""


@cache
def everything(padded: bool) -> Task:
    """A task with all eight simulators in the largest start states of BFCL, logged in where that is possible."""
    tasks = [task for task in load_tasks().values() if simulators_of(task).padded == padded]
    config: dict[str, JSON] = {}
    for name in DOCUMENT_FILES:
        of_class = [
            simulators_of(task).initial_config[name] for task in tasks if name in simulators_of(task).initial_config
        ]
        config[name] = max(of_class, key=lambda value: len(json.dumps(value)), default={})
    config["TravelAPI"] = {
        "access_token": "token",
        "token_expires_in": 2,
        "credit_card_list": {"a": {"card_number": "1", "balance": 10**12}},
        "booking_record": {"a": {"card_id": "a", "travel_date": "2026-11-11", "travel_cost": 1.0}},
    }
    config["TradingBot"] = {**config["TradingBot"], "authenticated": True, "market_status": "Open"}
    config["TwitterAPI"] = {**config["TwitterAPI"], "authenticated": True, "username": "john"}
    config["MessageAPI"] = {"current_user": "USR001"}
    queue = [{**ticket, "created_by": "user"} for ticket in config["TicketAPI"]["ticket_queue"]]
    config["TicketAPI"] = {**config["TicketAPI"], "current_user": "user", "ticket_queue": queue}
    turns = [Turn("Go on.", (call("get_current_time"),) if index % 2 else ()) for index in range(TURNS)]
    return Task(
        id=f"everything_{padded}",
        category=Category.BASE,
        scenario="everything",
        turns=tuple(turns),
        tools=tuple(all_tools().values()),
        classes=tuple(DOCUMENT_FILES),
        setting=Simulators(tuple(DOCUMENT_FILES), config, padded=padded),
    )


@dataclass
class Worst:
    """The costliest steps and dialogues so far."""

    memory: bool
    every: int
    step: float = 0.0
    step_of: str = ""
    held: float = 0.0
    held_of: str = ""
    steps: int = 0

    def play(self, where: str, dialogue: Dialogue, completions: Sequence[str]) -> None:
        """Plays the completions, as far as the dialogue goes."""
        gc.collect()
        start = tracemalloc.get_traced_memory()[0] if self.memory else 0
        dialogue.reset()
        for index, completion in enumerate(completions):
            if dialogue.over:
                break
            label = f"{where}, step {index}: {completion[:90]!a}"
            print(label, file=sys.stderr, flush=True)
            self._step(label, dialogue, f"{completion} ")  # a text of its own, as a model's would be
        if self.memory:
            gc.collect()
            held = (tracemalloc.get_traced_memory()[0] - start) / 2**20
            if held > self.held:
                self.held, self.held_of = held, where

    def _step(self, label: str, dialogue: Dialogue, completion: str) -> None:
        if self.memory:
            tracemalloc.reset_peak()
        held, started = tracemalloc.get_traced_memory()[0], time.thread_time()
        dialogue.step(completion)
        took = time.thread_time() - started
        cost = (tracemalloc.get_traced_memory()[1] - held) / 2**20 if self.memory else took
        self.steps += 1
        if cost > self.step:
            self.step, self.step_of = cost, label


def filled(dialect: Dialect, calls: Calls) -> str:
    """A completion of these calls over and over, as many as the dialect reads."""
    room = FILLED[dialect.name]
    once = len(dialect.render_calls([*calls, *calls])) - len(dialect.render_calls(calls))
    return dialect.render_calls([*calls] * max(1, room // max(1, once)))


def arguments(worst: Worst) -> None:
    """Every tool with hostile arguments: once each, and as often as a completion holds them."""
    for name in DOCUMENT_FILES:
        for index, tool in enumerate(tools_of(name)):
            completions = [COMPACT.render_calls(SETUP)]
            for made in itertools.islice(hostile(tool), index % worst.every, None, worst.every):
                once = COMPACT.render_calls([made])
                completions.append(filled(COMPACT, [made]) if len(once) < 10_000 else once)
            for start in range(0, len(completions), 19):
                part = completions[start : start + 19]
                dialogue = Dialogue(everything(True), dialect=COMPACT, context=CONTEXT)
                worst.play(f"hostile {tool.name}", dialogue, [completions[0], *part])


def grown(worst: Worst) -> None:
    """Every grown state, then a scan as often as a completion holds it: a dialogue for each, or its allowance ends."""
    for number, (name, (growth, found)) in enumerate(GROWN.items()):
        grow = [COMPACT.render_calls(calls) for calls in growth]
        for index, calls in list(enumerate(found))[number % worst.every :: worst.every]:
            dialogue = Dialogue(everything(index % 3 > 0), dialect=COMPACT, context=CONTEXT)
            worst.play(f"{name}: {calls[-1].name}", dialogue, [*grow, filled(COMPACT, calls), "Done."])


FEEDBACK = Interface(recovery=RecoveryLevel.SCHEMA)


def accumulated(worst: Worst) -> None:
    """The largest dialogue: every step of every turn leaves as much as it can."""
    heaps: Mapping[str, Calls] = {
        "refused calls": [call("\U000e0001" * 90_000)],
        "lists in lists": [call("set_navigation", destination=[[]] * 24_000)],
        "small objects": [call("display_log", messages=[{"a": 0}] * 8_000)],
        "texts": [call("set_navigation", destination=BIG)],
        "wide texts that are shown": [call("search_tweets", keyword="é"), call("get_user_tweets", username="john")],
        "calls": [call("pwd")],
        "tickets": [call("create_ticket", title=[[]])],
    }
    for name, calls in list(heaps.items())[:: worst.every]:
        text = filled(COMPACT, calls)
        if name == "refused calls":
            text = json.dumps({"name": "\U000e0001" * 90_000, "parameters": {}}, ensure_ascii=False)
        dialogue = Dialogue(everything(True), dialect=COMPACT, context=CONTEXT)
        worst.play(f"accumulated {name}", dialogue, ([text] * 20 + ["Done."]) * TURNS)


PARTS: Mapping[str, Callable[[Worst], None]] = {"arguments": arguments, "grown": grown, "accumulated": accumulated}


def main(part: str, measure: str, every: str) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    worst = Worst(memory=measure == "memory", every=int(every))
    # Made once in a process, and not by a step.
    Dialogue(everything(True), dialect=COMPACT).reset()
    Dialogue(everything(False), dialect=COMPACT).reset()
    gc.collect()
    gc.freeze()  # what is there by now is not looked through before each dialogue
    if worst.memory:
        tracemalloc.start()
    PARTS[part](worst)
    print(json.dumps(vars(worst)))


if __name__ == "__main__":
    main(*sys.argv[1:])
