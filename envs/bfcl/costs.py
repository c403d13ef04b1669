"""Upper bounds of calls' costs, from their arguments and the state that they read, before they are executed.

A tool without an entry in `READS` may read, compare, copy and print its simulator's whole public state once; entries
are tools that read less or do more. (`send_message` draws ids until one of 90,000 is free; long before they are used
up, the state is too large to read.)
"""

from collections.abc import Callable, Mapping
from typing import Any

from envs.allowance import CALL, ESCAPED, MAX_CALL_WORK, VALUE, Cost, size
from envs.bfcl.guards import MAX_PRECISION, digits_of
from envs.bfcl.simulators import MAX_TREE_NODES
from envs.task import JSON, ToolCall

PADDING = 35_000
"""Characters that a padded simulator may add to a result; the package's longest text has 31,700."""

Arguments = Mapping[str, JSON]
Reads = Callable[[Any, Arguments], int]


def cost_of(instance: object | None, call: ToolCall) -> Cost:
    """The cost of a call on its simulator; None if no simulator has the tool."""
    kept = CALL + size(call.name) + size(call.arguments)
    if instance is None:
        return Cost(kept, kept)
    kept += _KEPT.get(call.name, _nothing)(instance, call.arguments)
    return Cost(kept + READS.get(call.name, _whole_state)(instance, call.arguments), kept)


def _nothing(_instance: Any, _arguments: Arguments) -> int:
    return 0


def _whole_state(instance: Any, _arguments: Arguments) -> int:
    padding = PADDING if getattr(instance, "long_context", False) else 0
    return padding + size({name: value for name, value in vars(instance).items() if name[0] != "_"})


def _and_state(more: Reads) -> Reads:
    """The cost of reading the whole state, and more."""
    return lambda instance, arguments: _whole_state(instance, arguments) + more(instance, arguments)


# The file system. Its state is a tree of objects; most tools read one folder or file.


def _entry(file_system: Any, name: JSON) -> Any:
    try:
        return file_system._current_dir.contents.get(name)
    except TypeError:  # an argument that cannot be a key
        return None


def _files(*names: str) -> Reads:
    """Splitting, sorting and joining the lines of the files named by these arguments."""

    return lambda file_system, arguments: sum(
        2 * size(getattr(_entry(file_system, arguments.get(name)), "content", "")) for name in names
    )


def _way_up(file_system: Any, _arguments: Arguments) -> int:
    units = 0
    directory = file_system._current_dir
    while directory is not None and units <= MAX_CALL_WORK:
        units += size(directory.name)
        directory = directory.parent
    return units


def _change(file_system: Any, arguments: Arguments) -> int:
    """At the root, ".." compares it with itself."""
    folder = arguments.get("folder")
    up = isinstance(folder, str) and folder.rstrip("/") == ".."
    return VALUE * len(file_system.root.contents) if up else 0


def _tree(file_system: Any, _arguments: Arguments) -> int:
    """A walk over the whole tree: the guard starts at the root and here, the tool here or at a path."""
    return _walk(file_system.root) + 2 * _walk(file_system._current_dir)


def _walk(directory: Any) -> int:
    """Paths, files and folders below a directory, up to the point at which `simulators.is_oversized` refuses."""
    units = nodes = 0
    waiting = [(directory, 0)]
    while waiting and units <= MAX_CALL_WORK:
        node, path = waiting.pop()
        units += 2 * VALUE + path + size(getattr(node, "content", "")) // ESCAPED
        children = getattr(node, "contents", {})
        nodes += len(children)
        if nodes > MAX_TREE_NODES:
            return units
        waiting += [(child, path + size(name)) for name, child in children.items()]
    return units


def _currencies(_travel: Any, arguments: Arguments) -> int:
    """A text or list is repeated by the rate, which is at most 110."""
    value = arguments.get("value")
    return 110 * size(value) if isinstance(value, str | list | tuple) else 0


# Arithmetic. `guards` bounds precisions above 100 digits and refuses some numbers.


def _power(_calculator: Any, arguments: Arguments) -> int:
    base, exponent = arguments.get("base"), arguments.get("exponent")
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0:
        return min(base.bit_length() * exponent, 200_000) // 3
    return 0


def _digits(arguments: Arguments) -> int:
    """The requested precision; 0 if it is invalid or the guards refuse it."""
    digits = digits_of(arguments)
    return digits if 0 < digits <= MAX_PRECISION else 0


def _named_as_values(_twitter: Any, arguments: Arguments) -> int:
    """A text instead of a list adds each of its characters."""
    users = arguments.get("mentioned_usernames")
    return VALUE * len(users) if isinstance(users, str) else 0


READS: Mapping[str, Reads] = {
    **dict.fromkeys(("mkdir", "touch", "echo", "mv", "cp", "rm", "rmdir"), _nothing),
    **dict.fromkeys(("cat", "wc", "sort", "grep", "tail"), _files("file_name")),
    "diff": _files("file_name1", "file_name2"),
    "ls": lambda files, _: size(tuple(files._current_dir.contents)),
    "pwd": _way_up,
    "cd": _change,
    "find": _tree,
    "du": _tree,
    "search_tweets": _and_state(lambda twitter, given: 2 * len(twitter.tweets) * size(given.get("keyword"))),
    "get_user_tickets": _and_state(lambda tickets, given: len(tickets.ticket_queue) * size(given.get("status"))),
    # Each transaction's date is parsed.
    "get_transaction_history": _and_state(lambda trading, _: 5 * VALUE * len(trading.transaction_history)),
    # A deep copy takes several times as long as printing.
    "get_booking_history": _and_state(lambda travel, _: 2 * size(travel.booking_record)),
    # Padded, the date is copied for each of 160 routes.
    **dict.fromkeys(
        ("get_flight_cost", "book_flight"),
        _and_state(lambda travel, given: 160 * size(given.get("travel_date")) if travel.long_context else 0),
    ),
    "compute_exchange_rate": _currencies,
    "logarithm": lambda _, given: 10_000 + 150 * _digits(given),
    "square_root": lambda _, given: 5_000 + 20 * _digits(given),
    "power": _power,
}
"""Tool → units of work in addition to its arguments' units."""

_KEPT: Mapping[str, Reads] = {
    "cp": lambda files, given: VALUE * len(getattr(_entry(files, given.get("source")), "contents", ())),
    "mention": _named_as_values,
}
"""Tool → units that stay in memory in addition to its arguments' units."""
