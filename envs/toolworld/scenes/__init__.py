"""The scenes, one simulator per file, and requests over two: what one simulator returns is used in the other."""

from collections.abc import Mapping, Sequence
from functools import partial

from envs.toolworld.scene import Beat, Intent, Scene
from envs.toolworld.scenes.arithmetic import Arithmetic
from envs.toolworld.scenes.files import Files
from envs.toolworld.scenes.messages import Messages
from envs.toolworld.scenes.tickets import Tickets
from envs.toolworld.scenes.trading import Trading
from envs.toolworld.scenes.twitter import Twitter
from envs.toolworld.scenes.vehicle import Vehicle

MAIN: tuple[type[Scene], ...] = (Files, Trading, Messages, Twitter, Vehicle, Tickets)
"""Scenes that a task can be about."""
LARGE: tuple[type[Scene], ...] = (Files, Trading, Messages, Twitter, Tickets)
"""Scenes whose results can be made long."""
COMPANIONS: tuple[type[Scene], ...] = (*MAIN, Arithmetic)
"""Scenes that can accompany another one; arithmetic has no state of its own."""
_BRIDGES: Mapping[tuple[str, str], tuple[str, str]] = {
    ("Files", "Twitter"): ("line", "post_file"),
    ("Files", "Messages"): ("line", "send_file"),
    ("Files", "Tickets"): ("line", "resolve_with_file"),
    ("Trading", "Files"): ("price", "keep_price"),
    ("Trading", "Arithmetic"): ("two_prices", "mean_prices"),
    ("Vehicle", "Arithmetic"): ("pressures", "mean_pressures"),
}
"""(scene that is read, scene that uses the value) → (row of the first, row of the second)."""


def bridges(scenes: Sequence[Scene]) -> tuple[Intent, ...]:
    """The requests that become possible with these scenes together."""
    pairs = ((one, other) for one in scenes for other in scenes)
    names = [(one, other, (type(one).__name__, type(other).__name__)) for one, other in pairs]
    return tuple(partial(_bridge, one, other, *_BRIDGES[pair]) for one, other, pair in names if pair in _BRIDGES)


def _bridge(read: Scene, using: Scene, reading: str, request: str) -> Beat:
    return using.propose(request, read.reading(reading))
