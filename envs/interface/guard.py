"""`LeakGuard`: rejects proposed interfaces that contain answers of tasks."""

from collections.abc import Callable, Iterable

from envs.interface.leaks import ForbiddenAnswers, Signs
from envs.interface.readings import Tangled, readings
from envs.interface.show import guidelines_text
from envs.interface.value import MAX_GUIDELINES, Interface, guideline_fault
from envs.sources import all_tools
from envs.task import Task


class LeakGuard:
    """Judges interfaces that are proposed for training.

    It rejects an invalid interface (also one that was built directly), guidelines whose text has more than `max_tokens`
    with its heading (by `count_tokens`, characters by default), and texts that contain an answer as `ForbiddenAnswers`
    defines it. Each guideline, and then all of them as one text, is
    searched as written, with lookalike letters and marks between letters undone, backwards, in rot13, and with base64,
    base32, hexadecimal, URL and character codes decoded, two layers deep.
    """

    def __init__(
        self,
        tasks: Iterable[Task] = (),
        *,
        max_tokens: int | None = None,
        count_tokens: Callable[[str], int] = len,
    ) -> None:
        self._max_tokens = max_tokens
        self._count = count_tokens
        self._answers = ForbiddenAnswers()
        for task in tasks:
            self._answers.add(task)

    def check(self, interface: Interface) -> str | None:
        """Why the interface is rejected, in one sentence that repeats nothing of it, or None."""
        if not 0.0 <= interface.fade <= 1.0:
            return "fade: it is no number from 0 to 1."
        for index, cue in enumerate(interface.schema_cues):
            if not all(tool in all_tools() for tool in cue.tools):
                return f"schema_cues.{index}: it names a tool that is not documented."
        if len(interface.guidelines) > MAX_GUIDELINES:
            return f"guidelines: there are {len(interface.guidelines)}, at most {MAX_GUIDELINES} fit."
        for index, text in enumerate(interface.guidelines):
            fault = guideline_fault(text)
            if fault is not None:
                return f"guidelines.{index}: it {fault}."
        if self._max_tokens is not None and interface.guidelines:
            tokens = self._count(guidelines_text(interface))
            if tokens > self._max_tokens:
                return f"guidelines: their text has {tokens} tokens, at most {self._max_tokens} fit."
        places = {f"guidelines.{index}: it": text for index, text in enumerate(interface.guidelines)}
        if len(places) > 1:
            places["guidelines: read as one text, it"] = " ".join(interface.guidelines)
        leaks = ((place, self._leak(text)) for place, text in places.items())
        return next((f"{place} {leak}." for place, leak in leaks if leak is not None), None)

    def _leak(self, text: str) -> str | None:
        try:
            for signs in map(Signs.of, readings(text)):
                leak = self._answers.find(signs)
                if leak is not None:
                    return f"contains {leak}"
        except Tangled:
            return "holds too much encoded text to be read"
        return None
