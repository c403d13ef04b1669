"""The one source that the tiny base is shown: what its demonstrations and its measures need of the toolworld."""

from envs.toolworld.compose import Composition
from envs.toolworld.difficulty import DEFAULT, Difficulty
from envs.toolworld.documents import compact_signature
from envs.toolworld.generation import generate_composition
from envs.toolworld.scene import Beat
from envs.toolworld.source import SOURCE

NAME = SOURCE.name
"""What the model card calls it."""

__all__ = ["DEFAULT", "NAME", "Beat", "Composition", "Difficulty", "compact_signature", "generate_composition"]
