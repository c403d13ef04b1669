"""Task specifications: descriptions of toolworld tasks, as data that a task writer gives.

A specification has no values, texts or ground truth. It names scenes, the intents of each turn, and what is withheld;
the simulators do the rest, so that a composed task is never wrong.

`value.py` has the specification itself, `json_form.py` its JSON form and code in task ids, `composing.py` its tasks.
"""

from envs.toolworld.specification.composing import compose, specified_task
from envs.toolworld.specification.json_form import read_specification
from envs.toolworld.specification.value import TaskSpecification, Withheld

__all__ = ["TaskSpecification", "Withheld", "compose", "read_specification", "specified_task"]
