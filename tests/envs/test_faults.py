"""Worlds and users that raise: a fault of the environment, wherever they do."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from envs.allowance import Cost
from envs.errors import EnvironmentFault, UserError
from envs.task import ToolCall, Turn
from envs.world import CallResult
from tests.envs.own_tasks import Guest, Player, Rude, call, own_task, played


class Unequal:
    """A value that cannot be compared."""

    def __eq__(self, other: object) -> bool:
        raise KeyError("equality")

    __hash__ = None  # type: ignore[assignment]


class Trapped(Player):
    """A world that fails where its trap is."""

    def __init__(self, trap: str) -> None:
        super().__init__()
        self._trap = trap
        self._spring("made")

    def _spring(self, at: str) -> None:
        if self._trap == at:
            raise KeyError(at)

    def offers(self, name: str) -> bool:
        self._spring("offers")
        return super().offers(name)

    def execute(self, call: ToolCall, cost: Cost | None = None) -> CallResult:
        self._spring("executed")
        if self._trap == "state of the end":
            self._trap = "state"
        return super().execute(call, cost)

    def state(self) -> Mapping[str, Any]:
        self._spring("state")
        return {"Player.calls": Unequal()} if self._trap == "equality" else super().state()


class Trap:
    """Where its tasks play: the world that the ground truth is executed in, or the one after it, has a trap."""

    def __init__(self, trap: str, world: int) -> None:
        self._trap, self._world, self._made = trap, world, 0

    def ready(self) -> Callable[[], Player]:
        if self._trap == "ready":
            raise KeyError("ready")
        return self._make

    def _make(self) -> Player:
        self._made += 1
        return Trapped(self._trap if self._made == self._world else "")


@pytest.mark.parametrize(
    ("trap", "world", "said"),
    [
        *(("ready", 1, "ready"), ("made", 1, "made"), ("state", 1, "state"), ("executed", 1, "executed")),
        *(("made", 2, "made"), ("state", 2, "state"), ("offers", 2, "offers"), ("executed", 2, "executed")),
        *(("state of the end", 2, "state"), ("equality", 2, "equality")),
    ],
)
def test_a_world_that_raises_anywhere_is_a_fault_of_the_environment(trap: str, world: int, said: str) -> None:
    turns = (Turn("Hello.", ()), Turn("Spin.", (call("spin_disc", speed=33),)))
    task = dataclasses.replace(own_task("own_5", "slow", *turns), setting=Trap(trap, world))
    with pytest.raises(EnvironmentFault, match=rf"own_5: its world failed: KeyError\('{said}'\)"):
        played(task, "[unknown(a=1)]" if trap == "offers" else "[cd(drawer=1)]", "Hello.")


def test_what_a_user_must_give_is_told_to_the_user() -> None:
    class Lacking:
        def ready(self) -> Callable[[], Player]:
            raise UserError("own: give the folder of its data.")

    with pytest.raises(UserError, match="give the folder of its data"):
        played(dataclasses.replace(own_task("own_8", "slow", Turn("Hello.", ())), setting=Lacking()), "Hello.")


def no_user() -> Guest:
    raise KeyError("no_user")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"user": no_user}, r"user failed: KeyError\('no_user'\)"),
        ({"user": Rude}, r"user failed: ZeroDivisionError\('by completions'\)"),
        ({"goal": lambda state: state["nothing"]}, "goal failed: KeyError"),
    ],
)
def test_a_user_or_a_goal_that_raises_is_one_too(more: dict[str, Any], said: str) -> None:
    turns = (Turn("Hello.", ()), *[Turn("…", ())] * ("user" in more))
    with pytest.raises(EnvironmentFault, match=f"own_6: its {said}"):
        played(own_task("own_6", "slow", *turns, **more), "Hello.")
