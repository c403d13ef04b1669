"""The names of the toolworld, the tiny base's only task source, that its demonstrations and measurements use."""

from envs.toolworld.compose import Composition
from envs.toolworld.difficulty import DEFAULT, Difficulty
from envs.toolworld.generation import generate_composition
from envs.toolworld.scene import Beat
from envs.toolworld.shown_tools import compact_signature
from envs.toolworld.source import SOURCE

NAME = SOURCE.name
"""Its name in the model card."""

__all__ = ["DEFAULT", "NAME", "Beat", "Composition", "Difficulty", "compact_signature", "generate_composition"]
