"""Trajectories for the differential tests: ground truths, perturbed in known ways, some with the label they call for.

Every kind is a function from a task and a random generator to a `Trajectory`, or None where it does not apply. A label
is expected only where the perturbation leaves no doubt; the test applies it where the turn did fail (or pass).
"""

import random
from collections.abc import Iterator, Sequence

from envs.bfcl.tasks import load_tasks
from envs.bfcl.tools import all_tools, tools_of
from envs.diagnosis import Label
from envs.task import JSON, Category, ParameterType, Task, ToolCall
from tests.envs.perturbing import BROKEN, KINDS, Trajectory, call_kind, kind, replace, truth, turn_kind, turn_with
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


def any_read(task: Task, rng: random.Random, _: int = 0) -> Action:
    return (READ_ONLY[rng.choice(task.classes)],)


def any_change(task: Task, rng: random.Random) -> ToolCall | None:
    classes = [name for name in task.classes if name in MUTATING]
    return MUTATING[rng.choice(classes)] if classes else None


def right(task: Task, turn: int) -> list[Action]:
    return truth(task)[turn]


turn_kind("ground_truth", Label.PASS, lambda task, rng, turn: right(task, turn))
turn_kind("abstains_rightly", Label.CORRECT_ABSTENTION, lambda *_: [], empty=True)
turn_kind("empty_turn", Label.MISSING_TOOL_CALL, lambda *_: [])
turn_kind("unreadable", Label.INVALID_TOOL_CALL, lambda *_: [BROKEN])
turn_kind("unreadable_where_nothing_is_due", Label.INVALID_TOOL_CALL, lambda *_: [BROKEN], empty=True)
turn_kind("spurious_read", Label.SPURIOUS_TOOL_CALL, lambda *place: [any_read(*place)], empty=True)
turn_kind("extra_read", Label.PASS, lambda task, rng, turn: [any_read(task, rng), *right(task, turn)])
turn_kind("doubled", None, lambda task, rng, turn: right(task, turn) * 2)
turn_kind("reversed_calls", None, lambda task, rng, turn: [task.turns[turn].ground_truth[::-1]], least=2)
turn_kind(
    "error_then_right",
    Label.PASS,
    lambda task, rng, turn: [(replace(task.turns[turn].ground_truth[0], "verbose", True),), *right(task, turn)],
    flags=["recovered"],
)
turn_kind(
    "unknown_then_right",
    Label.PASS,
    lambda task, rng, turn: [(ToolCall("do_everything", {"now": True}),), *right(task, turn)],
    flags=["recovered"],
)


def _spurious_change(task: Task, rng: random.Random, _: int) -> list[Action] | None:
    change = any_change(task, rng)
    return None if change is None else [(change,)]


turn_kind("spurious_change", Label.SPURIOUS_TOOL_CALL, _spurious_change, empty=True)


def _extra_change(task: Task, rng: random.Random, turn: int) -> list[Action] | None:
    change = any_change(task, rng)
    if change is None or any(call.name == change.name for later in task.turns for call in later.ground_truth):
        return None
    return [*right(task, turn), (change,)]


turn_kind("extra_change", Label.STATE_MISMATCH, _extra_change)


def _arbitrary_values(task: Task, rng: random.Random, turn: int) -> list[Action]:
    """Any tool of the task with arguments of any type."""
    values: Sequence[JSON] = (
        0, -1, 3.5, 10**6, "", "a", "..", "/", "USD", "on", True, None, [], ["a"], [1, 2], {}, {"title": "x"},
        "1234567812345678", "USR001", "ü – “x”", 1e300, -0.0,
    )  # fmt: skip
    tools = [tool for name in task.classes for tool in tools_of(name)]
    calls = []
    for tool in rng.choices(tools, k=4):
        arguments = {p.name: rng.choice(values) for p in tool.parameters if rng.random() < 0.9}
        if "precision" in arguments:
            arguments["precision"] = rng.choice([0, -1, 3, 50, 2.5, "7", None])  # the official code has no bound
        calls.append(ToolCall(tool.name, arguments))
    return [tuple(calls), *right(task, turn)]


turn_kind("arbitrary_values", None, _arbitrary_values)


def _calls_of_a_stranger(task: Task, rng: random.Random, turn: int) -> list[Action]:
    """Another task's calls, in the same simulators."""
    others = [o for o in load_tasks().values() if set(o.classes) & set(task.classes) and o.scenario != task.scenario]
    found = [t.ground_truth for t in rng.choice(others).turns if t.ground_truth]
    return [rng.choice(found), *right(task, turn)]


turn_kind("calls_of_a_stranger", None, _calls_of_a_stranger)


@kind
def single_steps(task: Task, rng: random.Random) -> Trajectory | None:
    turns: list[list[Action]] = [[(call,) for call in turn.ground_truth] for turn in task.turns]
    turn = turn_with(task, rng)
    if turn is None or any(len(steps) > 20 for steps in turns):
        return None
    return Trajectory("single_steps", task, turns, turn, Label.PASS)


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
    # A later call may need a dropped one, and then fails too: no label is certain.
    last = dropped is task.turns[turn].ground_truth[-1]
    return Trajectory("drop_a_call", task, turns, turn, Label.MISSING_TOOL_CALL if last else None)


def _two_turns(task: Task, rng: random.Random) -> int | None:
    """A turn with ground truth that is followed by another one."""
    fitting = [t for t in range(len(task.turns) - 1) if task.turns[t].ground_truth and task.turns[t + 1].ground_truth]
    return rng.choice(fitting) if fitting else None


@kind
def postponed(task: Task, rng: random.Random) -> Trajectory | None:
    turn = _two_turns(task, rng)
    if turn is None:
        return None
    turns = truth(task)
    turns[turn : turn + 2] = [[], [task.turns[turn].ground_truth + task.turns[turn + 1].ground_truth]]
    return Trajectory("postponed", task, turns, turn, Label.MISSING_TOOL_CALL)


@kind
def ahead_of_time(task: Task, rng: random.Random) -> Trajectory | None:
    turn = _two_turns(task, rng)
    if turn is None:
        return None
    turns = truth(task)
    turns[turn] = [task.turns[turn].ground_truth, task.turns[turn + 1].ground_truth]
    return Trajectory("ahead_of_time", task, turns, turn, None)


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
def change_inherited(task: Task, rng: random.Random) -> Trajectory | None:
    """A wrong change in one turn; the next turn does its part, and is not to blame."""
    found = KINDS["extra_change"](task, rng)
    if found is None or found.turn + 1 >= len(task.turns) or not task.turns[found.turn + 1].ground_truth:
        return None
    return Trajectory("change_inherited", task, found.turns, found.turn + 1, Label.INHERITED_STATE)


@call_kind(Label.ARGUMENT_MISMATCH)
def missing_argument(call: ToolCall, rng: random.Random, _: Task) -> ToolCall | None:
    required = all_tools()[call.name].required
    if not required:
        return None
    dropped = rng.choice(required)
    return ToolCall(call.name, {key: value for key, value in call.arguments.items() if key != dropped})


@call_kind(Label.ARGUMENT_MISMATCH)
def unknown_argument(call: ToolCall, _: random.Random, __: Task) -> ToolCall:
    return replace(call, "verbose", True)


@call_kind(Label.ARGUMENT_MISMATCH)
def wrong_type(call: ToolCall, rng: random.Random, _: Task) -> ToolCall | None:
    wrong: dict[ParameterType, JSON] = {
        ParameterType.STRING: 17,
        ParameterType.INTEGER: "seventeen",
        ParameterType.FLOAT: "1.7",
        ParameterType.BOOLEAN: "yes",
        ParameterType.ARRAY: "one",
        ParameterType.DICT: ["a"],
    }
    given = [p for p in all_tools()[call.name].parameters if p.name in call.arguments]
    if not given:
        return None
    parameter = rng.choice(given)
    return replace(call, parameter.name, wrong[parameter.type])


@call_kind(Label.ARGUMENT_MISMATCH)
def outside_enum(call: ToolCall, rng: random.Random, _: Task) -> ToolCall | None:
    given = [p for p in all_tools()[call.name].parameters if p.name in call.arguments and p.enum]
    if not given:
        return None
    parameter = rng.choice(given)
    return replace(call, parameter.name, ["elsewhere"] if parameter.type is ParameterType.ARRAY else "elsewhere")


@call_kind(Label.INVALID_TOOL_CALL, only_last=True)
def unknown_tool(call: ToolCall, _: random.Random, __: Task) -> ToolCall:
    return ToolCall(f"{call.name}_v2", call.arguments)


@call_kind(Label.INVALID_TOOL_CALL, only_last=True)
def tool_of_another_class(_: ToolCall, rng: random.Random, task: Task) -> ToolCall:
    return READ_ONLY[rng.choice(sorted(set(READ_ONLY) - set(task.classes)))]


@call_kind(Label.INVALID_TOOL_CALL, only_last=True)
def blocked_name(call: ToolCall, rng: random.Random, _: Task) -> ToolCall:
    names = ["kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run", "os.remove"]
    return ToolCall(rng.choice(names), call.arguments)


@call_kind(Label.MISSING_TOOL_CALL, only_last=True)
def wrong_tool(call: ToolCall, _: random.Random, __: Task) -> ToolCall | None:
    other = READ_ONLY[all_tools()[call.name].class_name]
    return None if other.name == call.name else other


@call_kind(None)
def equal_numbers(call: ToolCall, rng: random.Random, _: Task) -> ToolCall | None:
    """Integers written as floats: equal as state, not always as text."""
    whole = [key for key, value in call.arguments.items() if type(value) is int]
    return replace(call, rng.choice(whole), float(call.arguments[whole[0]])) if len(whole) == 1 else None


@call_kind(Label.RECOVERY_FAILURE)
def no_such_thing(call: ToolCall, _: random.Random, __: Task) -> ToolCall | None:
    """A well-formed call about something that does not exist, and no second try."""
    about = {
        "cd": "folder", "cat": "file_name", "grep": "file_name", "sort": "file_name", "tail": "file_name",
        "wc": "file_name", "rm": "file_name", "get_stock_info": "symbol", "get_user_id": "user",
        "remove_stock_from_watchlist": "symbol", "cancel_booking": "booking_id", "retrieve_invoice": "booking_id",
    }  # fmt: skip
    return replace(call, about[call.name], "no_such_thing") if call.name in about else None


@call_kind(Label.STATE_MISMATCH)
def other_content(call: ToolCall, _: random.Random, __: Task) -> ToolCall | None:
    """The right tool changes the state, to something else."""
    about: dict[str, tuple[str, JSON]] = {
        "echo": ("content", "something else"), "post_tweet": ("content", "something else"),
        "send_message": ("message", "something else"), "fillFuelTank": ("fuelAmount", 0.125),
        "comment": ("comment_content", "something else"), "set_navigation": ("destination", "Nowhere 1"),
        "create_ticket": ("title", "something else"), "resolve_ticket": ("resolution", "something else"),
        "fund_account": ("amount", 0.125), "set_budget_limit": ("budget_limit", 0.125),
        "adjustClimateControl": ("temperature", 11.5), "place_order": ("amount", 3),
    }  # fmt: skip
    return replace(call, *about[call.name]) if call.name in about else None


@call_kind(Label.RESPONSE_MISMATCH)
def other_question(call: ToolCall, _: random.Random, __: Task) -> ToolCall | None:
    """The right tool reads something else."""
    about: dict[str, tuple[str, JSON]] = {
        "mean": ("numbers", [1, 2, 4]), "displayCarStatus": ("option", "engine"),
        "estimate_drive_feasibility_by_mileage": ("distance", 1e9), "liter_to_gallon": ("liter", 1.5),
        "gallon_to_liter": ("gallon", 1.5), "get_nearest_airport_by_city": ("location", "Tokyo"),
        "get_zipcode_based_on_city": ("city", "Oakendale"), "get_symbol_by_name": ("name", "Quasar Ltd."),
        "logarithm": ("value", 7), "get_available_stocks": ("sector", "Automobile"), "search_tweets": ("keyword", "zz"),
        "compute_exchange_rate": ("value", 3.25),
    }  # fmt: skip
    return replace(call, *about[call.name]) if call.name in about else None


@kind
def endless(task: Task, rng: random.Random) -> Trajectory | None:
    """Twenty-one steps in the first turn: the dialogue is cut off."""
    if len(task.turns) < 2:
        return None
    read = READ_ONLY[rng.choice(task.classes)]
    turns: list[list[Action]] = [[(read,) for _ in range(21)], *[[] for _ in task.turns[1:]]]
    return Trajectory("endless", task, turns, len(task.turns) - 1, Label.NOT_REACHED)


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
