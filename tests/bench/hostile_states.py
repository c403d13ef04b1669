"""The attacks of `hostile_calls`: hostile arguments of each tool, and states that earlier completions have grown."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

from envs.bfcl.tools import all_tools
from envs.task import JSON, Parameter, ParameterType, ToolCall, ToolDoc

Calls = Sequence[ToolCall]


def call(name: str, /, **arguments: JSON) -> ToolCall:
    return ToolCall(name, arguments)


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
    """A value that most tools accept."""
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
