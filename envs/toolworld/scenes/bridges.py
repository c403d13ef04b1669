"""Requests over two scenes: what one simulator shows is used in the other."""

from __future__ import annotations

from collections.abc import Sequence

from envs.toolworld.scene import Intent, Scene
from envs.toolworld.scenes.arithmetic import Arithmetic
from envs.toolworld.scenes.files import Files
from envs.toolworld.scenes.messages import Messages
from envs.toolworld.scenes.tickets import Tickets
from envs.toolworld.scenes.trading import Trading
from envs.toolworld.scenes.twitter import Twitter
from envs.toolworld.scenes.vehicle import Vehicle


def bridges(scenes: Sequence[Scene]) -> tuple[Intent, ...]:
    """The requests that these two scenes make possible together."""
    found: list[Intent] = []
    for one in scenes:
        for other in scenes:
            match one, other:
                case Files() as files, Twitter() as twitter:
                    found.append(lambda: twitter.post_file(files.line()))
                case Files() as files, Messages() as messages:
                    found.append(lambda: messages.send_file(files.line()))
                case Files() as files, Tickets() as tickets:
                    found.append(lambda: tickets.resolve_with_file(files.line()))
                case Files() as files, Trading() as trading:
                    found.append(lambda: files.keep("keep_price", trading.price()))
                case Arithmetic() as numbers, Trading() as trading:
                    found.append(lambda: numbers.mean_of("mean_prices", trading.two_prices()))
                case Arithmetic() as numbers, Vehicle() as vehicle:
                    found.append(lambda: numbers.mean_of("mean_pressures", vehicle.pressures()))
    return tuple(found)
