"""Finding a task by its id, whichever source it comes from."""

from __future__ import annotations

from envs.bfcl.tasks import get_task
from envs.task import Task
from envs.toolworld import PREFIX, task_from_id


def find_task(name: str) -> Task:
    """The BFCL task of that id, or the generated one where it begins with "toolworld_". Raises `UserError`."""
    return task_from_id(name) if name.startswith(PREFIX) else get_task(name)
