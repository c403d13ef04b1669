"""`RunGuard`: the leak guard of a run, which checks proposals against its tasks."""

from __future__ import annotations

from collections.abc import Iterable

from envs.interface import Interface
from envs.interface.guard import LeakGuard
from envs.task import Task
from policies.models import ModelFolder
from policies.prompting import ChatFormat


class RunGuard:
    """Checks proposals against the tasks of the whole run and of their window.

    `most_tokens` is the largest number of tokens that a proposal may add to the prompt of `solver`.
    """

    def __init__(self, tasks: Iterable[Task], solver: ModelFolder, *, most_tokens: int) -> None:
        self._form = ChatFormat.load(solver.path, solver.dialect)
        self._most_tokens = most_tokens
        self._always = self._guard(tasks)
        self._window = self._guard(())

    def start_window(self, tasks: Iterable[Task]) -> None:
        """Replaces the tasks of the last window."""
        self._window = self._guard(tasks)

    def check(self, interface: Interface) -> str | None:
        """The reason why the interface is rejected, in one sentence; None if it is not."""
        return self._always.check(interface) or self._window.check(interface)

    def _guard(self, tasks: Iterable[Task]) -> LeakGuard:
        return LeakGuard(tasks, max_tokens=self._most_tokens, count_tokens=lambda text: len(self._form.tokens(text)))
