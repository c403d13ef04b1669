"""A custom benchmark: ten tasks on two tools, in one file. No other file refers to it.

    cd examples
    seal-ray tasks --env own_source:SOURCE
    seal-ray play lamps_train_0 --env own_source:SOURCE --oracle
    seal-ray train environment.source=own_source:SOURCE training.rounds=2 --name lamps
    seal-ray evaluate runs/lamps --env own_source:SOURCE --split test
    seal-ray compare --arms vanilla,rules environment.source=own_source:SOURCE --rounds 2

Most tasks say how they are done: the ground truth of a turn is what should be called, possibly nothing, and the
verifier compares state and results. Two say what is wanted in the end, and their user answers what the model said.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from envs.allowance import CALL, MAX_CALL_WORK, Cost, size
from envs.errors import UserError
from envs.received import parse_json
from envs.sources import TaskSet
from envs.specifications import Rejected
from envs.task import Task, ToolCall, ToolDoc, Turn
from envs.tool_documents import read_tool
from envs.world import CallResult

# The tools, as a model is shown them.


def tool(name: str, description: str, **types: str) -> ToolDoc:
    properties = {key: {"type": kind} for key, kind in types.items()}
    schema = {"type": "dict", "properties": properties, "required": list(properties)}
    return read_tool({"name": name, "description": description, "parameters": schema}, class_name="Lamps")


TOOLS = (
    tool("set_lamp", "Turn the lamp of a room on or off.", room="string", on="boolean"),
    tool("lamp_state", "Tell whether the lamp of a room is on.", room="string"),
)


# The world that they act on. Whatever a model calls comes in here: an odd argument is an error result, never an error.


class Lamps:
    """One house, in one dialogue."""

    def __init__(self, rooms: tuple[str, ...]) -> None:
        self._on = dict.fromkeys(rooms, False)

    def offers(self, name: str) -> bool:
        return name in ("set_lamp", "lamp_state")

    def cost(self, call: ToolCall) -> Cost:
        kept = CALL + size(call.name) + size(call.arguments)
        return Cost(kept, kept)

    def execute(self, call: ToolCall, cost: Cost | None = None) -> CallResult:
        if (cost or self.cost(call)).work > MAX_CALL_WORK:
            return CallResult("The call would read too much.", is_error=True)
        room, on = call.arguments.get("room"), call.arguments.get("on")
        if not isinstance(room, str) or room not in self._on:
            return CallResult(f"There is no such room; rooms are {', '.join(self._on)}.", is_error=True)
        if call.name == "set_lamp":
            if not isinstance(on, bool):
                return CallResult("on must be true or false.", is_error=True)
            self._on[room] = on
        return CallResult(f"The lamp of the {room} is {'on' if self._on[room] else 'off'}.", is_error=False)

    def state(self) -> Mapping[str, Any]:
        return {"Lamps.on": dict(self._on)}


@dataclass(frozen=True)
class House:
    """Where a task plays."""

    rooms: tuple[str, ...]

    def ready(self) -> Callable[[], Lamps]:
        return lambda: Lamps(self.rooms)


# The tasks.


def with_ground_truth(name: str, room: str) -> Task:
    """Two turns, each with the calls that it needs."""
    turns = (
        Turn(f"Please turn on the lamp of the {room}.", (ToolCall("set_lamp", {"room": room, "on": True}),)),
        Turn("Is it on?", (ToolCall("lamp_state", {"room": room}),)),
    )
    return Task(name, "told", name, turns, TOOLS, ("Lamps",), House((room, "hall")))


def without_a_tool(name: str, room: str) -> Task:
    """One turn, in which nothing should be called."""
    turns = (Turn(f"Please water the flowers in the {room}.", ()),)
    return Task(name, "cannot", name, turns, TOOLS, ("Lamps",), House((room, "hall")))


@dataclass(frozen=True)
class Guest:
    """A user who says which room only where the model asks."""

    room: str

    def say(self, turn: int, completions: tuple[str, ...]) -> str:
        if turn == 0:
            return "It is too dark in here. Can you help?"
        if any("?" in text or "which" in text.lower() for text in completions):
            return f"I am in the {self.room}."
        return "It is still dark."


def with_goal(name: str, room: str) -> Task:
    """Two turns, judged by the final state: the lamp of the guest's room is on, and no other."""
    light = ToolCall("set_lamp", {"room": room, "on": True})
    return Task(
        name,
        "asked",
        name,
        (Turn("It is too dark in here. Can you help?", ()), Turn(f"I am in the {room}.", (light,))),
        TOOLS,
        ("Lamps",),
        House((room, "hall")),
        user=lambda: Guest(room),
        goal=lambda state: state["Lamps.on"] == {room: True, "hall": False},
    )


def part(name: str, **rooms: Callable[[str, str], Task]) -> list[Task]:
    return [make(f"lamps_{name}_{number}", room) for number, (room, make) in enumerate(rooms.items())]


TOLD, CANNOT, ASKED = with_ground_truth, without_a_tool, with_goal


# Specifications, of which tasks are composed during a run, for task writers alone. Without them, `TaskSet` suffices.

MAKERS = {"told": TOLD, "cannot": CANNOT, "asked": ASKED}
ROOMS = ("bedroom", "bathroom", "loft", "gallery", "workshop", "veranda", "shed", "stairs")
"""Rooms of written tasks; the fixed tasks have other rooms."""
WRITTEN = "lamps_written"


@dataclass(frozen=True)
class LampSpecification:
    """A kind of task, and the room that it is about."""

    category: str
    room: str
    depth: int = 1

    @property
    def features(self) -> frozenset[str]:
        return frozenset((self.category, self.room))

    @property
    def key(self) -> str:
        return self.dump()

    def dump(self) -> str:
        return json.dumps({"category": self.category, "room": self.room})


class LampSource(TaskSet):
    """The fixed tasks, and the tasks that a task writer's specifications describe."""

    specification_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"category": {"enum": list(MAKERS)}, "room": {"enum": list(ROOMS)}},
        "required": ["category", "room"],
        "additionalProperties": False,
    }
    specification_help = f"category: {', '.join(MAKERS)}. room: {', '.join(ROOMS)}."

    def read(self, text: str) -> LampSpecification:
        values: Any = None
        with suppress(ValueError):  # it is no JSON
            values = parse_json(text[:200])
        if isinstance(values, dict) and set(values) == {"category", "room"}:
            specification = LampSpecification(str(values["category"]), str(values["room"]))
            if specification.category in MAKERS and specification.room in ROOMS:
                return specification
        raise UserError(f"specification: it needs a category and a room. {self.specification_help}")

    def draw(self, rng: random.Random, *, category: str | None = None, depth: int | None = None) -> LampSpecification:
        del depth  # all have one request
        return LampSpecification(category or rng.choice(list(MAKERS)), rng.choice(ROOMS))

    def specification_in(self, task_id: str) -> LampSpecification | None:
        prefix, _, rest = task_id.partition(":")
        category, _, room = rest.partition("-")
        valid = prefix == WRITTEN and category in MAKERS and room in ROOMS
        return LampSpecification(category, room) if valid else None

    def apart(self, tasks: Iterable[Task]) -> frozenset[str]:
        return frozenset(task.id for task in tasks)

    def compose(
        self, specification: LampSpecification, seed: int, *, part: str = "train", apart: Any = None
    ) -> Task | Rejected:
        del seed, part, apart  # a specification has one task, and its room is in no fixed task
        name = f"{WRITTEN}:{specification.category}-{specification.room}"
        return MAKERS[specification.category](name, specification.room)

    def owns(self, task_id: str) -> bool:
        return super().owns(task_id) or self.specification_in(task_id) is not None

    def task(self, task_id: str) -> Task:
        specification = self.specification_in(task_id)
        if specification is None:
            return super().task(task_id)
        return MAKERS[specification.category](task_id, specification.room)


SOURCE = LampSource(
    "lamps",
    "tasks with the lamps of a house",
    {
        "train": part("train", kitchen=TOLD, attic=TOLD, cellar=CANNOT, study=CANNOT, porch=ASKED),
        "dev": part("dev", garage=TOLD, pantry=CANNOT),
        "test": part("test", nursery=TOLD, library=CANNOT, lounge=ASKED),
    },
    context=2048,
)
"""Five tasks to train on, two to choose by, three to measure at the end; no room stands on two sides."""
