"""Writers of tasks: what gives specifications that a task source composes tasks from. No Ray.

`base.py` says what a writer is, `choice.py` finds its kind by name. Without a model: `plain.py` (none, a fixed set, at
random), `shuffled.py` (what
another run has recorded). `llm.py` is a language model, frozen or learning, `specification_text.py` what it reads.
"""

from policies.writer.base import Draft, Known, TaskWriter

__all__ = ["Draft", "Known", "TaskWriter"]
