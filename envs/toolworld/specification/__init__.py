"""Task specifications: what a task of the toolworld should be like, as data that a writer of tasks gives.

A specification has no values, texts or ground truth. It names scenes, the intents of each turn, and what is withheld;
the simulators do the rest, so that a composed task is never wrong.

`value.py` what a specification is and which there are; `document.py` its JSON form, read from hostile text, and the
code that stands in a task's id; `composing.py` the task of a specification and a seed, or why there is none;
`sharing.py` what two tasks may not share; `drawing.py` specifications at random.
"""

from envs.toolworld.specification.composing import compose, specified_task
from envs.toolworld.specification.document import read_specification
from envs.toolworld.specification.value import TaskSpecification, Withheld

__all__ = ["TaskSpecification", "Withheld", "compose", "read_specification", "specified_task"]
