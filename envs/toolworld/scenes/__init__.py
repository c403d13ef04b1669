"""The scenes, one simulator per file."""

from envs.toolworld.scene import Scene
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
