"""A search of the 128 tools for calls that do not return or cost too much: hostile arguments, grown states.

`python -m tests.bench.hostile_calls PART MEASURE EVERY` plays one part of the search in this process, under limits on
CPU time and memory, and prints one line of JSON: the costliest steps. `PART` is one of `PARTS`; `MEASURE` is `time`
(CPU seconds) or `memory` (MiB of Python objects, the peak within a step and what a dialogue holds; much slower);
`EVERY` is n to play each n-th attack on each tool and state, 1 for all (about four minutes for the time of all parts).
A step that is not bounded ends the process; its attack is the last line on the standard error.
"""

from __future__ import annotations

import gc
import itertools
import json
import resource
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from envs.bfcl.tasks import load_tasks
from envs.bfcl.tools import DOCUMENT_FILES, all_tools, tools_of
from envs.bfcl.world import Simulators, simulators_of
from envs.dialects import DIALECTS, Dialect
from envs.dialogue import Dialogue, Protocol
from envs.interface import Interface
from envs.interface.value import RecoveryLevel
from envs.task import JSON, Category, Parameter, ParameterType, Task, ToolCall, ToolDoc, Turn

CPU_S = 300
MEMORY_BYTES = 3 * 2**30
CONTEXT = 131_072
"""The largest context for which the bounds must hold."""
FILLED = {"qwen": 99_000, "llama3_json": 99_000, "toolace": 19_000}
"""Characters of a completion that is filled with calls, just below what each dialect reads."""
TURNS = 8
COMPACT = DIALECTS["llama3_json"]
"""The dialect with the most calls in a completion."""

Calls = Sequence[ToolCall]


def call(name: str, /, **arguments: JSON) -> ToolCall:
    return ToolCall(name, arguments)


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
    shown: int = 0
    steps: int = 0
    calls: int = 0

    def play(self, where: str, dialogue: Dialogue, completions: Sequence[str]) -> None:
        """Plays the completions, as far as the dialogue goes."""
        gc.collect()
        start = tracemalloc.get_traced_memory()[0] if self.memory else 0
        dialogue.reset()
        shown = 0
        for index, completion in enumerate(completions):
            if dialogue.over:
                break
            label = f"{where}, step {index}: {completion[:90]!a}"
            print(label, file=sys.stderr, flush=True)
            observation = self._step(label, dialogue, f"{completion} ")  # a text of its own, as a model's would be
            shown += len(observation)
        self.shown = max(self.shown, shown)
        if self.memory:
            gc.collect()
            held = (tracemalloc.get_traced_memory()[0] - start) / 2**20
            if held > self.held:
                self.held, self.held_of = held, where
        self.calls += sum(len(step.calls) for turn in dialogue.trace.turns for step in turn)

    def _step(self, label: str, dialogue: Dialogue, completion: str) -> str:
        if self.memory:
            tracemalloc.reset_peak()
        held, started = tracemalloc.get_traced_memory()[0], time.thread_time()
        observation, *_ = dialogue.step(completion)
        took = time.thread_time() - started
        cost = (tracemalloc.get_traced_memory()[1] - held) / 2**20 if self.memory else took
        self.steps += 1
        if cost > self.step:
            self.step, self.step_of = cost, label
        return observation


def filled(dialect: Dialect, calls: Calls) -> str:
    """A completion of these calls over and over, as many as the dialect reads."""
    room = FILLED[dialect.name]
    once = len(dialect.render_calls([*calls, *calls])) - len(dialect.render_calls(calls))
    return dialect.render_calls([*calls] * max(1, room // max(1, once)))


# Hostile values, and calls of every tool with them.

HUGE = 10**4290
TEXTS = (
    "x" * 90_000, "é" * 16_000, "\U000e0001" * 8_000, "\x00" * 16_000, "9" * 90_000, "1" * 80_000 + "jx",
    "a\n" * 45_000,
    "1e" + "9" * 1_000, "1e-" + "9" * 4_000, "1e" + "9" * 90, "1/" + "3" * 4_000, "1." + "0" * 4_200 + "1", "9" * 4_200,
    "../" * 30_000, "./" * 45_000, "2024-01-01" + " " * 80_000, "-".join(["1"] * 45_000), "{0}" * 30_000, "%s" * 45_000,
    "(1+" * 2_000 + "j", "inf", "nan", "", ".", "..", "/",
)  # fmt: skip
NUMBERS: tuple[JSON, ...] = (HUGE, -HUGE, 0, -1, 1e308, 5e-324, 10**18, -(10**9), 5_000, 100, True, None, 0.5)
NESTED: tuple[JSON, ...] = (
    [1] * 30_000, [[]] * 25_000, [HUGE] * 22, ["x" * 2_000] * 40, {str(i): i for i in range(7_000)}, [{}] * 25_000,
    {"title": "x" * 80_000}, {"title": [[]] * 20_000, "status": "é" * 2_000}, ["a"] * 20_000,
)  # fmt: skip


def deep(levels: int) -> JSON:
    value: JSON = []
    for _ in range(levels):
        value = [value]
    return value


VALUES: tuple[JSON, ...] = (*TEXTS, *NUMBERS, *NESTED, deep(60))


def sensible(parameter: Parameter) -> JSON:
    """A value with which most tools go on to their work."""
    known: dict[str, JSON] = {
        "access_token": "token", "receiver_id": "USR002", "base_currency": "USD", "target_currency": "JPY",
        "travel_from": "SFO", "travel_to": "LAX", "travel_class": "first", "travel_date": "2026-11-11",
        "symbol": "AAPL", "order_type": "Sell", "unit": "celsius", "unit_in": "km", "unit_out": "m",
        "ticket_id": 1, "tweet_id": 0,
        "precision": 50, "base": 7, "file_name": "file", "source": "file", "destination": "other",
        "start_date": "2020-01-01", "end_date": "2030-01-01", "user_id": "USR001", "mode": "l", "priority": 3,
    }  # fmt: skip
    if parameter.name in known:
        return known[parameter.name]
    plain: dict[ParameterType, JSON] = {
        ParameterType.STRING: parameter.enum[0] if parameter.enum else "a",
        ParameterType.INTEGER: 1,
        ParameterType.FLOAT: 1.5,
        ParameterType.BOOLEAN: True,
        ParameterType.ARRAY: [parameter.items.enum[0]] if parameter.items and parameter.items.enum else [1],
        ParameterType.DICT: {},
    }
    return plain[parameter.type]


def usual(tool: ToolDoc) -> ToolCall:
    return ToolCall(tool.name, {p.name: sensible(p) for p in tool.parameters})


def hostile(tool: ToolDoc) -> Iterator[ToolCall]:
    """The tool with every hostile value in each argument and in all, and with arguments that it does not have."""
    arguments = dict(usual(tool).arguments)
    for value in VALUES:
        for name in arguments:
            yield ToolCall(tool.name, {**arguments, name: value})
        if len(arguments) > 1 and len(repr(value)) < 30_000:
            yield ToolCall(tool.name, dict.fromkeys(arguments, value))
    yield ToolCall(tool.name, {**arguments, **{f"a{i}": 0 for i in range(8_000)}})


SETUP = (call("touch", file_name="file"), call("echo", content="b\na\n" * 20, file_name="file"))


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


# States that earlier completions have grown, and completions full of scans on them.


def large_files(character: str) -> Sequence[Calls]:
    size = 80_000 if character.isascii() else 7_000
    content = (character + "\n") * (size // 2)
    name = character * 100
    made = [(call("touch", file_name=name), call("echo", content=content, file_name=name))]
    copies = [call("cp", source=name, destination=f"{name}{index}") for index in range(60)]
    return [*made, copies, [call("touch", file_name="file"), call("cp", source=name, destination="other")]]


def doubled(times: int) -> Calls:
    """Folders that hold each other twice over, so that 2^times paths lead down."""
    steps = itertools.pairwise(f"d{level}" for level in range(times + 1))
    return [
        call("mkdir", dir_name="d0"),
        *(call(tool, source=old, destination=new) for old, new in steps for tool in ("cp", "mv")),
    ]


def chain(length: int, name: str) -> Calls:
    return [made for _ in range(length) for made in (call("mkdir", dir_name=name), call("cd", folder=name))]


INTO_ITSELF = (
    call("mkdir", dir_name="a"), call("cp", source="a", destination="a"), call("cd", folder="a"), call("pwd"),
    call("cp", source="a", destination="a"), call("mv", source="a", destination="a"), call("mkdir", dir_name="a"),
    call("cd", folder="a"), call("pwd"), call("mv", source="a", destination="a"), call("cd", folder="a"), call("pwd"),
    call("cd", folder=".."), call("cd", folder=".."), call("pwd"), call("cd", folder="/"),
)  # fmt: skip


def numbered(tool: str, count: int, key: str, /, **arguments: JSON) -> Calls:
    return [call(tool, **{key: f"{key}{index}"}, **arguments) for index in range(count)]


def scans(*names: str) -> Sequence[Calls]:
    return [[usual(all_tools()[name])] for name in names]


FILE_SCANS = (
    *scans("ls", "pwd", "find", "du", "cat", "sort", "tail", "wc"),
    [call("cat", file_name="other")], [call("sort", file_name="other")], [call("wc", file_name="other", mode="w")],
    [call("grep", file_name="other", pattern="")], [call("diff", file_name1="other", file_name2="other")],
    [call("cd", folder="..")], [call("cp", source="file", destination="other")], [call("find", path="/")],
)  # fmt: skip
TICKET_SCANS = (
    *scans("get_user_tickets", "get_ticket", "close_ticket", "create_ticket"),
    [call("get_user_tickets", status="é" * 2_000)], [call("get_ticket", ticket_id=-1)],
    [call("edit_ticket", ticket_id=1, updates={"title": "x" * 50})],
)  # fmt: skip
MESSAGE_SCANS = scans(
    "view_messages_sent", "search_messages", "get_message_stats", "list_users", "delete_message", "send_message",
    "message_login", "add_contact",
)  # fmt: skip
TWEET_SCANS = (
    *scans("get_user_stats", "list_all_following", "get_tweet", "get_tweet_comments", "retweet", "mention"),
    [call("get_user_tweets", username="john")], [call("get_user_tweets", username="tech_guru")],
    [call("search_tweets", keyword="x")], [call("search_tweets", keyword="é" * 1_000)],
    [call("post_tweet", content="x")],
    [call("follow_user", username_to_follow="nobody")], [call("unfollow_user", username_to_unfollow="nobody")],
)  # fmt: skip
TRADING_SCANS = (
    *scans("get_transaction_history", "get_order_history", "get_watchlist", "get_account_info", "get_stock_info"),
    *scans("get_available_stocks", "add_to_watchlist", "place_order", "fund_account"),
    [call("get_order_details", order_id=-1)], [call("get_order_details", order_id=12446)],
    [call("filter_stocks_by_price", stocks=["AAPL"] * 5_000, min_price=0, max_price=10**9)],
)  # fmt: skip
TRAVEL_SCANS = scans(
    "get_booking_history", "get_all_credit_cards", "get_credit_card_balance", "book_flight", "get_flight_cost",
    "verify_traveler_information", "retrieve_invoice", "list_all_airports", "register_credit_card",
)  # fmt: skip
VEHICLE_SCANS = (
    *scans("displayCarStatus", "check_tire_pressure", "estimate_distance", "get_outside_temperature_from_google"),
    *scans("adjustClimateControl", "set_navigation", "display_log", "activateParkingBrake", "lockDoors"),
    [call("displayCarStatus", option="climate")], [call("display_log", messages=["é" * 1_000] * 8)],
)  # fmt: skip
MATH_SCANS = (
    *scans("logarithm", "square_root", "power", "mean", "add"),
    [call("logarithm", value="1e" + "9" * 97, base="1e-" + "9" * 96, precision=100)],
    [call("logarithm", value=HUGE + 1, base="1." + "0" * 4_200 + "1", precision=5_000)],
    [call("logarithm", value="1e" + "9" * 1_000, base=10, precision=10)],
    [call("square_root", number=HUGE, precision=5_000)], [call("power", base=HUGE + 7, exponent=13)],
    [call("power", base=7, exponent=70_000)], [call("multiply", a=HUGE, b=HUGE)], [call("add", a=HUGE, b=1)],
)  # fmt: skip

LOGIN = usual(all_tools()["authenticate_travel"])
BIG = "\U000e0001" * 7_500
GROWN: Mapping[str, tuple[Sequence[Calls], Sequence[Calls]]] = {
    "as it starts": (
        (),
        (*FILE_SCANS, *TICKET_SCANS, *MESSAGE_SCANS, *TWEET_SCANS, *TRADING_SCANS, *TRAVEL_SCANS, *VEHICLE_SCANS),
    ),
    "large files": (large_files("x"), FILE_SCANS),
    "large files, two bytes a character": (large_files("é"), FILE_SCANS),
    "large files, four bytes a character": (large_files("\U000e0001"), FILE_SCANS),
    "large files of control characters": (large_files("\x01"), FILE_SCANS),
    "many files": ([numbered("touch", 1_900, "file_name")], FILE_SCANS),
    "more files than are walked": ([numbered("touch", 2_000, "file_name")] * 2 + [SETUP], FILE_SCANS),
    "a large folder copied": (
        [[call("mkdir", dir_name="m"), call("cd", folder="m"), *numbered("touch", 1_500, "file_name")],
         [call("cd", folder="/"), *numbered("cp", 1_000, "destination", source="m")]], FILE_SCANS,
    ),
    "doubled folders": ([doubled(9), [call("cd", folder="d9")], doubled(16)], FILE_SCANS),
    "a deep chain": ([chain(900, "d")] * 3 + [SETUP], FILE_SCANS),
    "a deep chain of long names": ([chain(60, "d" * 700)] * 3 + [SETUP], FILE_SCANS),
    "a folder in itself": ([INTO_ITSELF, INTO_ITSELF], FILE_SCANS),
    "many tickets": ([[call("create_ticket", title="x")] * 1_500] * 3, TICKET_SCANS),
    "large tickets": ([[call("create_ticket", title=BIG)]] * 4 + [[call("create_ticket", title="x" * 95_000)]] * 9,
                      TICKET_SCANS),
    "tickets of a user with a long name": (
        [[call("ticket_login", username=[1] * 25_000, password="p"), *[call("create_ticket", title="x")] * 300]],
        TICKET_SCANS,
    ),
    "many messages": ([[call("send_message", receiver_id="USR002", message="é")] * 1_000] * 4, MESSAGE_SCANS),
    "large messages": ([[call("send_message", receiver_id="USR002", message=BIG)]] * 9, MESSAGE_SCANS),
    "many contacts": ([numbered("add_contact", 1_500, "user_name")] * 2, MESSAGE_SCANS),
    "many tweets": ([[call("post_tweet", content="x")] * 1_500] * 2, TWEET_SCANS),
    "tweets that share a long list": (
        [[call("post_tweet", content="x")] * 900,
         *[[call("mention", tweet_id=0, mentioned_usernames=["é" * 5] * 1_500)]] * 3,
         [call("mention", tweet_id=0, mentioned_usernames="x" * 90_000)]], TWEET_SCANS,
    ),
    "many follows": ([numbered("follow_user", 1_200, "username_to_follow")] * 2, TWEET_SCANS),
    "many comments": ([[call("comment", tweet_id=0, comment_content="é")] * 1_000] * 3, TWEET_SCANS),
    "many orders": (
        [[call("place_order", order_type="Sell", symbol="AAPL", price=1, amount=1)] * 800,
         [call("place_order", order_type="Sell", symbol="AAPL", price=1, amount=HUGE)] * 20,
         [call("fund_account", amount=1)] * 1_500], TRADING_SCANS,
    ),
    "many bookings": (
        [[usual(all_tools()["book_flight"]), usual(all_tools()["register_credit_card"])] * 200] * 4, TRAVEL_SCANS,
    ),
    "a traveller with a long name": (
        [[ToolCall(LOGIN.name, dict.fromkeys(LOGIN.arguments, "é" * 2_500))]], TRAVEL_SCANS,
    ),
    "a climate of lists": (
        [[call("adjustClimateControl", temperature=[[]] * 20_000)], [call("set_navigation", destination=BIG)]],
        VEHICLE_SCANS,
    ),
    "arithmetic": ((), MATH_SCANS),
}  # fmt: skip


def grown(worst: Worst) -> None:
    """Every grown state, then a scan as often as a completion holds it: a dialogue for each, or its allowance ends."""
    for number, (name, (growth, found)) in enumerate(GROWN.items()):
        grow = [COMPACT.render_calls(calls) for calls in growth]
        for index, calls in list(enumerate(found))[number % worst.every :: worst.every]:
            dialogue = Dialogue(everything(index % 3 > 0), dialect=COMPACT, context=CONTEXT)
            worst.play(f"{name}: {calls[-1].name}", dialogue, [*grow, filled(COMPACT, calls), "Done."])


def protocols(worst: Worst) -> None:
    """Each dialect and protocol with all feedback: thousands of calls that fail, are held out, unknown, ill-formed."""
    task = next(
        task for task in load_tasks().values() if simulators_of(task).padded and "GorillaFileSystem" in task.classes
    )
    floods: Sequence[Calls] = (
        [call("ls")], [call("cd", folder="x")], [call("cd", folder=3)], [call("cd", **{f"a{i}": 0 for i in range(20)})],
        [call("nothing")], [call("\U000e0001" * 20)], [call("get_user_tickets")], [call("pwd"), call("nothing")],
        [call("cd", **{f"a{i}": 0 for i in range(5_000)})], [call("\U000e0001" * 7_000)],
    )  # fmt: skip
    for dialect in DIALECTS.values():
        for protocol in Protocol:
            completions = [filled(dialect, calls) for calls in floods]
            completions += [f"{text}{{" for text in completions[:2]] + [dialect.render_calls([call("pwd")])]
            for chosen in (task, everything(True)):
                dialogue = Dialogue(chosen, dialect=dialect, protocol=protocol, interface=FEEDBACK, context=CONTEXT)
                worst.play(f"{dialect.name} {protocol}", dialogue, completions)


FEEDBACK = Interface(recovery=RecoveryLevel.SCHEMA)


def accumulated(worst: Worst) -> None:
    """What a dialogue holds at most: every step of every turn with as much as it can leave behind."""
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


PARTS: Mapping[str, Callable[[Worst], None]] = {
    "arguments": arguments,
    "grown": grown,
    "protocols": protocols,
    "accumulated": accumulated,
}


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
    found = vars(worst) | {"rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
