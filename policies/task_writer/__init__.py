"""Task writers write specifications, of which a task source composes tasks. No Ray.

`base.py` has the interface of a writer and the kinds by name. Without a model: `plain.py` (none, a fixed set,
at random), `shuffled.py` (the record of another run). `llm.py` is a language model, frozen or learning.
"""

from policies.task_writer.base import Known, TaskWriter

__all__ = ["Known", "TaskWriter"]
