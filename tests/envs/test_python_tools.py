"""A benchmark from a class: its tools, worlds and tasks, hostile calls, and mistakes in one sentence."""

import random
from typing import Annotated, Any, Literal

import pytest

from envs.dialects import get_dialect
from envs.dialogue import Dialogue
from envs.errors import UserError
from envs.python_tools import PythonWorld, call, tools_of, tools_source
from envs.task import ToolCall


class Lamps:
    """The lamps of a house."""

    def __init__(self) -> None:
        self.on = {"kitchen": False, "hall": False}
        self._secret = 1

    def set_lamp(self, room: str, on: bool, colour: Literal["warm", "cold"] = "warm") -> str:
        """Turn the lamp of a room on or off."""
        self.on[room] = on if room in self.on else 1 / 0 > 0
        return f"the {room} is {'on' if on else 'off'}, {colour}"

    def rooms(self, matching: Annotated[str, "a part of the name"] = "") -> list[str]:
        """The rooms that have a lamp."""
        return [room for room in self.on if matching in room]


LIGHT = ("Light the kitchen.", call("set_lamp", room="kitchen", on=True))
SOURCE = tools_source("lamps", Lamps, train=[[LIGHT, ("Which rooms are there?", call("rooms"))]], test=[[("Sing.",)]])


def test_methods_are_tools_with_their_schemas() -> None:
    set_lamp, rooms = (SOURCE.tools()[name] for name in ("set_lamp", "rooms"))
    assert set_lamp.required == ("room", "on")
    assert [parameter.enum for parameter in set_lamp.parameters] == [(), (), ("warm", "cold")]
    described = {"type": "string", "description": "a part of the name"}
    assert rooms.document["parameters"]["properties"]["matching"] == described
    assert SOURCE.about == "The lamps of a house."
    assert SOURCE.categories == ("calls", "no_calls")


@pytest.mark.parametrize(("room", "reward"), [("kitchen", 1.0), ("hall", 0.0)])
def test_a_dialogue_passes_if_state_and_results_are_those_of_the_ground_truth(room: str, reward: float) -> None:
    task = SOURCE.task("lamps_train_0")
    dialogue = Dialogue(task)
    dialogue.reset()
    render = get_dialect("qwen").render_calls
    for completion in (render([call("set_lamp", room=room, on=True)]), "Done.", render([call("rooms")]), "Two."):
        _, got, terminated, truncated, _ = dialogue.step(completion)
        if terminated or truncated:
            break
    assert got == reward


def test_a_wrong_call_is_an_error_that_changes_nothing() -> None:
    for wanted in (
        *(call("set_lamp", room=room, on=True) for room in ("cellar", ["kitchen"])),
        *(call("set_lamp", room="kitchen"), call("set_lamp", room="kitchen", on=True, self=1)),
        call("set_lamp", room="kitchen", on=True, colour="green"),
        *(ToolCall("__init__", {}), ToolCall("_secret", {}), call("rooms", matching="x" * 2_000_000)),
    ):
        world = PythonWorld(Lamps(), tools_of(Lamps()))
        assert world.execute(wanted).is_error, str(wanted)[:90]
        assert world.state() == {"Lamps.on": {"kitchen": False, "hall": False}}


class Wordless:
    def act(self, room: str) -> None: ...


class Untyped:
    def act(self, room) -> None:  # type: ignore[no-untyped-def]
        """Act."""


class Toolless:
    pass


class Random:
    def __init__(self) -> None:
        self.rng = random.Random(0)

    def act(self) -> None:
        """Act."""


class Shared:
    def act(self, done: list = []) -> int:  # type: ignore[type-arg] # noqa: B006 - the mistake
        """Act."""
        done.append(1)
        return len(done)


class Places:
    def go(self, where: Literal["café", "left, fast"]) -> str:
        """Go there."""
        return where


def test_any_text_can_be_a_choice() -> None:
    source = tools_source("places", Places, train=[[("Go.", call("go", where="café"), call("go", where="left, fast"))]])
    (parameter,) = source.tools()["go"].parameters
    assert parameter.enum == ("café", "left, fast")
    assert "café" in parameter.description, "as a model reads it"


FAILS = ("a", call("set_lamp", room="attic", on=True))
MISTAKES: dict[str, tuple[Any, Any, str]] = {
    "no docstring": (Wordless, ("a",), r"Wordless.act: it needs a docstring"),
    "no annotation": (Untyped, ("a",), r"Untyped.act: annotate room as one of str"),
    "no method": (Toolless, ("a",), r"Toolless: it has no public method"),
    "a call that fails": (Lamps, FAILS, r"x_train_0: the ground .* fails"),
    "a state that cannot be compared": (Random, ("a", call("act")), r"x_train_0: act\(\) has another result or state"),
    "instances that share a list": (Shared, ("a", call("act")), r"x_train_0: act\(\) has another result or state"),
    "no call": (Lamps, ("a", "b"), r"x_train_0: a request is a text and calls"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence(name: str) -> None:
    tools, request, sentence = MISTAKES[name]
    with pytest.raises(UserError, match=sentence):
        tools_source("x", tools, train=[[request]])
