"""Trajectories for the differential tests: ground truths, perturbed in known ways, some with the label they call for.

Every kind is a function from a task and a random generator to a `Trajectory`, or None where it does not apply. A label
is expected only where the perturbation leaves no doubt; the test applies it where the turn did fail (or pass).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from envs.bfcl.tasks import load_tasks
from envs.bfcl.tools import all_tools, tools_of
from envs.diagnosis import Label
from envs.task import JSON, Category, ParameterType, Task, ToolCall
from tests.envs.perturbing import (
    BROKEN,
    KINDS,
    Trajectory,
    changed,
    empty_turn_of,
    kind,
    replace,
    truth,
    turn_with,
)
from tests.envs.players import Action

READ_ONLY: dict[str, ToolCall] = {
    "GorillaFileSystem": ToolCall("pwd", {}),
    "MathAPI": ToolCall("absolute_value", {"number": -4}),
    "MessageAPI": ToolCall("list_users", {}),
    "TwitterAPI": ToolCall("posting_get_login_status", {}),
    "TicketAPI": ToolCall("ticket_get_login_status", {}),
    "TradingBot": ToolCall("get_current_time", {}),
    "TravelAPI": ToolCall("list_all_airports", {}),
    "VehicleControlAPI": ToolCall("check_tire_pressure", {}),
}
MUTATING: dict[str, ToolCall] = {
    "GorillaFileSystem": ToolCall("touch", {"file_name": "brand_new.txt"}),
    "MessageAPI": ToolCall("add_contact", {"user_name": "Zebulon"}),
    "TicketAPI": ToolCall("ticket_login", {"username": "mallory", "password": "x"}),
    "VehicleControlAPI": ToolCall("set_navigation", {"destination": "Nowhere 1"}),
    "TradingBot": ToolCall("add_to_watchlist", {"stock": "ZETA"}),
}


@kind
def ground_truth(task: Task, rng: random.Random) -> Trajectory | None:
    turn = turn_with(task, rng)
    return None if turn is None else Trajectory("ground_truth", task, truth(task), turn, Label.PASS)


@kind
def abstains_rightly(task: Task, rng: random.Random) -> Trajectory | None:
    turn = empty_turn_of(task)
    return None if turn is None else Trajectory("abstains_rightly", task, truth(task), turn, Label.CORRECT_ABSTENTION)


@kind
def single_steps(task: Task, rng: random.Random) -> Trajectory | None:
    turns: list[list[Action]] = [[(call,) for call in turn.ground_truth] for turn in task.turns]
    turn = turn_with(task, rng)
    if turn is None or any(len(steps) > 20 for steps in turns):
        return None
    return Trajectory("single_steps", task, turns, turn, Label.PASS)


@kind
def empty_turn(task: Task, rng: random.Random) -> Trajectory | None:
    turn = turn_with(task, rng)
    if turn is None:
        return None
    turns = truth(task)
    turns[turn] = []
    return Trajectory("empty_turn", task, turns, turn, Label.MISSING_TOOL_CALL)


@kind
def everything_empty(task: Task, rng: random.Random) -> Trajectory | None:
    turn = turn_with(task, rng)
    return None if turn is None else Trajectory("everything_empty", task, [[] for _ in task.turns], turn, None)


@kind
def drop_a_call(task: Task, rng: random.Random) -> Trajectory | None:
    turn = turn_with(task, rng, 2)
    if turn is None:
        return None
    calls = list(task.turns[turn].ground_truth)
    dropped = calls.pop(rng.randrange(len(calls)))
    if any(call.name == dropped.name for call in calls):
        return None
    turns = truth(task)
    turns[turn] = [tuple(calls)]
    # What was dropped may be what a later call needed, which then fails for its part: no label is certain then.
    last = dropped is task.turns[turn].ground_truth[-1]
    return Trajectory("drop_a_call", task, turns, turn, Label.MISSING_TOOL_CALL if last else None)


@kind
def postponed(task: Task, rng: random.Random) -> Trajectory | None:
    fitting = [t for t in range(len(task.turns) - 1) if task.turns[t].ground_truth and task.turns[t + 1].ground_truth]
    if not fitting:
        return None
    turn = rng.choice(fitting)
    turns = truth(task)
    turns[turn] = []
    turns[turn + 1] = [task.turns[turn].ground_truth + task.turns[turn + 1].ground_truth]
    return Trajectory("postponed", task, turns, turn, Label.MISSING_TOOL_CALL)


@kind
def ahead_of_time(task: Task, rng: random.Random) -> Trajectory | None:
    fitting = [t for t in range(len(task.turns) - 1) if task.turns[t].ground_truth and task.turns[t + 1].ground_truth]
    if not fitting:
        return None
    turn = rng.choice(fitting)
    turns = truth(task)
    turns[turn] = [task.turns[turn].ground_truth, task.turns[turn + 1].ground_truth]
    return Trajectory("ahead_of_time", task, turns, turn, None)


@kind
def missing_argument(task: Task, rng: random.Random) -> Trajectory | None:
    def change(call: ToolCall) -> ToolCall | None:
        required = all_tools()[call.name].required
        if not required:
            return None
        dropped = rng.choice(required)
        return ToolCall(call.name, {key: value for key, value in call.arguments.items() if key != dropped})

    return changed("missing_argument", task, rng, change, Label.ARGUMENT_MISMATCH)


@kind
def unknown_argument(task: Task, rng: random.Random) -> Trajectory | None:
    return changed("unknown_argument", task, rng, lambda call: replace(call, "verbose", True), Label.ARGUMENT_MISMATCH)


@kind
def wrong_type(task: Task, rng: random.Random) -> Trajectory | None:
    wrong: dict[ParameterType, JSON] = {
        ParameterType.STRING: 17,
        ParameterType.INTEGER: "seventeen",
        ParameterType.FLOAT: "1.7",
        ParameterType.BOOLEAN: "yes",
        ParameterType.ARRAY: "one",
        ParameterType.DICT: ["a"],
    }

    def change(call: ToolCall) -> ToolCall | None:
        given = [p for p in all_tools()[call.name].parameters if p.name in call.arguments]
        if not given:
            return None
        parameter = rng.choice(given)
        return replace(call, parameter.name, wrong[parameter.type])

    return changed("wrong_type", task, rng, change, Label.ARGUMENT_MISMATCH)


@kind
def outside_enum(task: Task, rng: random.Random) -> Trajectory | None:
    def change(call: ToolCall) -> ToolCall | None:
        given = [p for p in all_tools()[call.name].parameters if p.name in call.arguments and p.enum]
        if not given:
            return None
        parameter = rng.choice(given)
        value: JSON = ["elsewhere"] if parameter.type is ParameterType.ARRAY else "elsewhere"
        return replace(call, parameter.name, value)

    return changed("outside_enum", task, rng, change, Label.ARGUMENT_MISMATCH)


@kind
def unknown_tool(task: Task, rng: random.Random) -> Trajectory | None:
    def change(call: ToolCall) -> ToolCall:
        return ToolCall(f"{call.name}_v2", call.arguments)

    return changed("unknown_tool", task, rng, change, Label.INVALID_TOOL_CALL, only_last=True)


@kind
def tool_of_another_class(task: Task, rng: random.Random) -> Trajectory | None:
    others = sorted(set(READ_ONLY) - set(task.classes))

    def change(_: ToolCall) -> ToolCall:
        return READ_ONLY[rng.choice(others)]

    return changed("tool_of_another_class", task, rng, change, Label.INVALID_TOOL_CALL, only_last=True)


@kind
def blocked_name(task: Task, rng: random.Random) -> Trajectory | None:
    names = ["kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run", "os.remove"]

    def change(call: ToolCall) -> ToolCall:
        return ToolCall(rng.choice(names), call.arguments)

    return changed("blocked_name", task, rng, change, Label.INVALID_TOOL_CALL, only_last=True)


@kind
def unreadable(task: Task, rng: random.Random) -> Trajectory | None:
    turn = turn_with(task, rng)
    if turn is None:
        return None
    turns = truth(task)
    turns[turn] = [BROKEN]
    return Trajectory("unreadable", task, turns, turn, Label.INVALID_TOOL_CALL)


@kind
def unreadable_where_nothing_is_due(task: Task, rng: random.Random) -> Trajectory | None:
    turn = empty_turn_of(task)
    if turn is None:
        return None
    turns = truth(task)
    turns[turn] = [BROKEN]
    return Trajectory("unreadable_where_nothing_is_due", task, turns, turn, Label.INVALID_TOOL_CALL)


@kind
def spurious_read(task: Task, rng: random.Random) -> Trajectory | None:
    turn = empty_turn_of(task)
    if turn is None:
        return None
    turns = truth(task)
    turns[turn] = [(READ_ONLY[rng.choice(task.classes)],)]
    return Trajectory("spurious_read", task, turns, turn, Label.SPURIOUS_TOOL_CALL)


@kind
def spurious_change(task: Task, rng: random.Random) -> Trajectory | None:
    turn = empty_turn_of(task)
    classes = [name for name in task.classes if name in MUTATING]
    if turn is None or not classes:
        return None
    turns = truth(task)
    turns[turn] = [(MUTATING[rng.choice(classes)],)]
    return Trajectory("spurious_change", task, turns, turn, Label.SPURIOUS_TOOL_CALL)


@kind
def hidden_tool(task: Task, rng: random.Random) -> Trajectory | None:
    revealing = next((index for index, turn in enumerate(task.turns) if turn.revealed), None)
    if task.category is not Category.MISS_FUNC or revealing is None:
        return None
    if task.turns[revealing - 1].ground_truth:
        return None
    hidden = {tool.name for tool in task.turns[revealing].revealed}
    calls = tuple(call for call in task.turns[revealing].ground_truth if call.name in hidden)
    if not calls:
        return None
    turns = truth(task)
    turns[revealing - 1] = [calls]
    return Trajectory("hidden_tool", task, turns, revealing - 1, Label.SPURIOUS_TOOL_CALL, frozenset({"hidden_tool"}))


@kind
def error_then_right(task: Task, rng: random.Random) -> Trajectory | None:
    turn = turn_with(task, rng)
    if turn is None:
        return None
    calls = task.turns[turn].ground_truth
    wrong = ToolCall(calls[0].name, {**calls[0].arguments, "verbose": True})
    turns = truth(task)
    turns[turn] = [(wrong,), calls]
    return Trajectory("error_then_right", task, turns, turn, Label.PASS, frozenset({"recovered"}))


@kind
def unknown_then_right(task: Task, rng: random.Random) -> Trajectory | None:
    turn = turn_with(task, rng)
    if turn is None:
        return None
    calls = task.turns[turn].ground_truth
    turns = truth(task)
    turns[turn] = [(ToolCall("do_everything", {"now": True}),), calls]
    return Trajectory("unknown_then_right", task, turns, turn, Label.PASS, frozenset({"recovered"}))


@kind
def extra_read(task: Task, rng: random.Random) -> Trajectory | None:
    turn = turn_with(task, rng)
    if turn is None:
        return None
    turns = truth(task)
    turns[turn] = [(READ_ONLY[rng.choice(task.classes)],), *turns[turn]]
    return Trajectory("extra_read", task, turns, turn, Label.PASS)


@kind
def extra_change(task: Task, rng: random.Random) -> Trajectory | None:
    turn = turn_with(task, rng)
    classes = [name for name in task.classes if name in MUTATING]
    if turn is None or not classes:
        return None
    change = MUTATING[rng.choice(classes)]
    if any(call.name == change.name for later in task.turns for call in later.ground_truth):
        return None
    turns = truth(task)
    turns[turn] = [*turns[turn], (change,)]
    return Trajectory("extra_change", task, turns, turn, Label.STATE_MISMATCH)


@kind
def change_inherited(task: Task, rng: random.Random) -> Trajectory | None:
    """A wrong change in one turn; the next turn does its part, and is not to blame."""
    found = extra_change(task, rng)
    if found is None or found.turn + 1 >= len(task.turns) or not task.turns[found.turn + 1].ground_truth:
        return None
    return Trajectory("change_inherited", task, found.turns, found.turn + 1, Label.INHERITED_STATE)


@kind
def wrong_tool(task: Task, rng: random.Random) -> Trajectory | None:
    def change(call: ToolCall) -> ToolCall | None:
        other = READ_ONLY[all_tools()[call.name].class_name]
        return None if other.name == call.name else other

    return changed("wrong_tool", task, rng, change, Label.MISSING_TOOL_CALL, only_last=True)


@kind
def no_such_thing(task: Task, rng: random.Random) -> Trajectory | None:
    """A well-formed call about something that does not exist, and no second try."""
    about = {
        "cd": "folder", "cat": "file_name", "grep": "file_name", "sort": "file_name", "tail": "file_name",
        "wc": "file_name", "rm": "file_name", "get_stock_info": "symbol", "get_user_id": "user",
        "remove_stock_from_watchlist": "symbol", "cancel_booking": "booking_id", "retrieve_invoice": "booking_id",
    }  # fmt: skip

    def change(call: ToolCall) -> ToolCall | None:
        return replace(call, about[call.name], "no_such_thing") if call.name in about else None

    return changed("no_such_thing", task, rng, change, Label.RECOVERY_FAILURE)


@kind
def other_content(task: Task, rng: random.Random) -> Trajectory | None:
    """The right tool changes the state, to something else."""
    about: dict[str, tuple[str, JSON]] = {
        "echo": ("content", "something else"), "post_tweet": ("content", "something else"),
        "send_message": ("message", "something else"), "fillFuelTank": ("fuelAmount", 0.125),
        "comment": ("comment_content", "something else"), "set_navigation": ("destination", "Nowhere 1"),
        "create_ticket": ("title", "something else"), "resolve_ticket": ("resolution", "something else"),
        "fund_account": ("amount", 0.125), "set_budget_limit": ("budget_limit", 0.125),
        "adjustClimateControl": ("temperature", 11.5), "place_order": ("amount", 3),
    }  # fmt: skip

    def change(call: ToolCall) -> ToolCall | None:
        return replace(call, *about[call.name]) if call.name in about else None

    return changed("other_content", task, rng, change, Label.STATE_MISMATCH)


@kind
def other_question(task: Task, rng: random.Random) -> Trajectory | None:
    """The right tool reads something else."""
    about: dict[str, tuple[str, JSON]] = {
        "mean": ("numbers", [1, 2, 4]), "displayCarStatus": ("option", "engine"),
        "estimate_drive_feasibility_by_mileage": ("distance", 1e9), "liter_to_gallon": ("liter", 1.5),
        "gallon_to_liter": ("gallon", 1.5), "get_nearest_airport_by_city": ("location", "Tokyo"),
        "get_zipcode_based_on_city": ("city", "Oakendale"), "get_symbol_by_name": ("name", "Quasar Ltd."),
        "logarithm": ("value", 7), "get_available_stocks": ("sector", "Automobile"), "search_tweets": ("keyword", "zz"),
        "compute_exchange_rate": ("value", 3.25),
    }  # fmt: skip

    def change(call: ToolCall) -> ToolCall | None:
        return replace(call, *about[call.name]) if call.name in about else None

    return changed("other_question", task, rng, change, Label.RESPONSE_MISMATCH)


@kind
def doubled(task: Task, rng: random.Random) -> Trajectory | None:
    turn = turn_with(task, rng)
    if turn is None:
        return None
    turns = truth(task)
    turns[turn] = [*turns[turn], *turns[turn]]
    return Trajectory("doubled", task, turns, turn, None)


@kind
def reversed_calls(task: Task, rng: random.Random) -> Trajectory | None:
    turn = turn_with(task, rng, 2)
    if turn is None:
        return None
    turns = truth(task)
    turns[turn] = [task.turns[turn].ground_truth[::-1]]
    return Trajectory("reversed_calls", task, turns, turn, None)


@kind
def equal_numbers(task: Task, rng: random.Random) -> Trajectory | None:
    """Integers written as floats: equal as state, not always as text."""

    def change(call: ToolCall) -> ToolCall | None:
        whole = [key for key, value in call.arguments.items() if type(value) is int]
        return replace(call, rng.choice(whole), float(call.arguments[whole[0]])) if len(whole) == 1 else None

    return changed("equal_numbers", task, rng, change, None)


@kind
def endless(task: Task, rng: random.Random) -> Trajectory | None:
    """Twenty-one steps in the first turn: the dialogue is cut off."""
    if len(task.turns) < 2:
        return None
    read = READ_ONLY[rng.choice(task.classes)]
    turns: list[list[Action]] = [[(read,) for _ in range(21)], *[[] for _ in task.turns[1:]]]
    return Trajectory("endless", task, turns, len(task.turns) - 1, Label.NOT_REACHED)


@kind
def arbitrary_values(task: Task, rng: random.Random) -> Trajectory | None:
    """Any tool of the task with arguments of any type."""
    values: Sequence[JSON] = (
        0, -1, 3.5, 10**6, "", "a", "..", "/", "USD", "on", True, None, [], ["a"], [1, 2], {}, {"title": "x"},
        "1234567812345678", "USR001", "ü – “x”", 1e300, -0.0,
    )  # fmt: skip
    tools = [tool for name in task.classes for tool in tools_of(name)]
    calls = []
    for _ in range(4):
        tool = rng.choice(tools)
        arguments = {p.name: rng.choice(values) for p in tool.parameters if rng.random() < 0.9}
        if "precision" in arguments:
            arguments["precision"] = rng.choice([0, -1, 3, 50, 2.5, "7", None])  # the official code has no bound
        calls.append(ToolCall(tool.name, arguments))
    turn = turn_with(task, rng)
    if turn is None:
        return None
    turns = truth(task)
    turns[turn] = [tuple(calls), *turns[turn]]
    return Trajectory("arbitrary_values", task, turns, turn, None)


@kind
def calls_of_a_stranger(task: Task, rng: random.Random) -> Trajectory | None:
    """Another task's calls, in the same simulators."""
    others = [o for o in load_tasks().values() if set(o.classes) & set(task.classes) and o.scenario != task.scenario]
    other = rng.choice(others)
    turn = turn_with(task, rng)
    if turn is None:
        return None
    turns = truth(task)
    turns[turn] = [rng.choice([t.ground_truth for t in other.turns if t.ground_truth]), *turns[turn]]
    return Trajectory("calls_of_a_stranger", task, turns, turn, None)


def sample(per_kind: int, seed: int) -> Iterator[Trajectory]:
    """Up to `per_kind` trajectories of every kind, over tasks drawn at random."""
    for name, make in KINDS.items():
        rng = random.Random(f"{name} {seed}")
        tasks = list(load_tasks().values())
        rng.shuffle(tasks)
        found = 0
        for task in tasks:
            trajectory = make(task, rng)
            if trajectory is not None:
                yield trajectory
                found += 1
                if found == per_kind:
                    break
