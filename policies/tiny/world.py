"""The world that the tiny base was taught in, the toolworld: its generator and its ways of showing tools."""

from envs.toolworld.compose import Composition
from envs.toolworld.difficulty import DEFAULT, Difficulty
from envs.toolworld.documents import compact_signature
from envs.toolworld.generation import generate_composition
from envs.toolworld.scene import Beat

__all__ = ["DEFAULT", "NAME", "Beat", "Composition", "Difficulty", "compact_signature", "generate_composition"]

NAME = "toolworld"
"""What model cards call it."""
