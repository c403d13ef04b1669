"""Guards of the few tools that could cost too much, share state, or return random results.

A guard takes the bound method and the call's arguments, and calls it safely or raises `CallRefused`, whose text is the
call's error result. Results of ordinary calls never change. If Python itself would fail after the work (an integer too
long to print), the text is Python's.
"""

import decimal
import re
import sys
import threading
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

import mpmath

from envs.bfcl.simulators import is_oversized
from envs.bfcl.tools import all_tools
from envs.task import JSON

MAX_PRECISION = 5_000
"""Maximum of decimal digits in `logarithm` and `square_root`."""

_FREE_PRECISION = 100
_DIALOGUE_DIGITS = 20_000
"""Digits of all calls of a dialogue, without calls of up to `_FREE_PRECISION`: a completion can hold hundreds."""

_MAX_NUMERAL = 4_400
"""Length of a number as text for `logarithm`; Python parses at most 4,300 digits."""
_MAX_LETTERED_NUMERAL = 50
"""The same with an exponent or an imaginary part: time grows with the cube of the exponent's digits, and mpmath's
pattern for complex numbers tries the square of their digits."""

_MAX_POWER_BITS = 200_000
"""Bits of an integer power; a longer one exceeds Python's limit on decimal digits."""

_PROCESS_WIDE = threading.Lock()
"""Held by the two tools that write module-level state (mpmath's precision, the padded weather report) until the result
has been copied or printed."""

Arguments = Mapping[str, JSON]


class CallRefused(Exception):
    """The call was not executed: its tool does not exist, or it would cost too much. The text is its result."""


def _power(method: MethodType, arguments: Arguments) -> Any:
    base, exponent = arguments.get("base"), arguments.get("exponent")
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0 and abs(base) > 1:
        if base.bit_length() * exponent > _MAX_POWER_BITS:
            limit = sys.get_int_max_str_digits()
            raise CallRefused(
                f"Exceeds the limit ({limit} digits) for integer string conversion; "
                "use sys.set_int_max_str_digits() to increase the limit"
            )
    return method(**arguments)


def _spend_digits(calculator: Any, digits: int) -> None:
    if digits > MAX_PRECISION:
        raise CallRefused(f"precision {digits} is above the limit of {MAX_PRECISION} digits")
    if digits > _FREE_PRECISION:
        # Private attributes of a simulator are no state, and each dialogue has its own.
        calculator._digits_spent = getattr(calculator, "_digits_spent", 0) + digits
        if calculator._digits_spent > _DIALOGUE_DIGITS:
            raise CallRefused(f"the dialogue has asked for more than {_DIALOGUE_DIGITS} digits")


def digits_of(arguments: Arguments) -> int:
    """The requested precision; 0 if it is invalid, which the simulator words itself."""
    try:
        return int(arguments["precision"])  # as mpmath reads it: text and fractions pass
    except (KeyError, TypeError, ValueError, OverflowError):
        return 0


def _logarithm(method: MethodType, arguments: Arguments) -> Any:
    _spend_digits(method.__self__, digits_of(arguments))
    for numeral in (arguments.get("value"), arguments.get("base")):
        if isinstance(numeral, str):
            lettered = any(letter in numeral for letter in "eEjJ")
            if len(numeral) > (_MAX_LETTERED_NUMERAL if lettered else _MAX_NUMERAL):
                raise CallRefused("the number is too long to compute with")
    with _PROCESS_WIDE, mpmath.workdps(mpmath.mp.dps):
        result = method(**arguments)
        # An mpmath number prints with the current global precision, so it is printed here.
        return str(result) if isinstance(result.get("result"), mpmath.mpf | mpmath.mpc) else result


def _square_root(method: MethodType, arguments: Arguments) -> Any:
    number, precision = arguments.get("number"), arguments.get("precision")
    if isinstance(precision, int) and isinstance(number, int | float) and number >= 0:
        _spend_digits(method.__self__, precision)
    with decimal.localcontext():
        return method(**arguments)


def _round_number(method: MethodType, arguments: Arguments) -> Any:
    places = arguments.get("decimal_places")
    if isinstance(places, int) and places < -MAX_PRECISION:
        # Python would compute 10**-places first; any number that JSON can carry rounds to 0 long before.
        arguments = {**arguments, "decimal_places": -MAX_PRECISION}
    return method(**arguments)


def _walk(method: MethodType, arguments: Arguments) -> Any:
    file_system: Any = method.__self__
    path = arguments.get("path")
    base = len(path) if isinstance(path, str) else 0
    if is_oversized(file_system.root, base=base) or is_oversized(file_system._current_dir, base=base):
        raise CallRefused("the directory tree is too large to search")
    return method(**arguments)


def _outside_temperature(method: MethodType, arguments: Arguments) -> Any:
    with _PROCESS_WIDE:
        return dict(method(**arguments))


def _book_flight(method: MethodType, arguments: Arguments) -> Any:
    result = method(**arguments)
    error = result.get("error", "")
    if error.startswith("Invalid travel class"):
        # The simulator prints a set, whose order differs from process to process.
        start, items, end = re.split(r"[{}]", error)
        result["error"] = f"{start}{{{', '.join(sorted(items.split(', ')))}}}{end}"
    return result


def _edit_ticket(method: MethodType, arguments: Arguments) -> Any:
    result = method(**arguments)
    prefix = "Invalid fields for update: "
    if result.get("error", "").startswith(prefix):
        # As above: the fields come out of a set.
        updates = all_tools()["edit_ticket"].parameter("updates")
        known = {field.name for field in updates.properties} if updates is not None else set()
        result["error"] = prefix + ", ".join(sorted(set(arguments["updates"]) - known))
    return result


GUARDS: Mapping[str, Callable[[MethodType, Arguments], Any]] = {
    "power": _power,
    "logarithm": _logarithm,
    "square_root": _square_root,
    "round_number": _round_number,
    "find": _walk,
    "du": _walk,
    "get_outside_temperature_from_google": _outside_temperature,
    "book_flight": _book_flight,
    "edit_ticket": _edit_ticket,
}
"""Tool name → its guard; tools without an entry are called directly."""
