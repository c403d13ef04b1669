"""The failure model: which failures raise, and which are data.

* A bad rollout is data. Whatever a model writes becomes a parse error, an error result or a label.
* A user's mistake is a `UserError`: one sentence with the key, the value and the allowed values. The command line
  prints it and exits with code 2 before anything is written.
* A failure of the world (a simulator that cannot be built, a ground truth that cannot be executed) is an
  `EnvironmentFault`. Callers may retry it and must count it.
"""

import difflib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class SealError(Exception):
    """Base of all errors that this project raises on purpose."""


class UserError(SealError, ValueError):
    """A mistake in an option, a name or a file that the user gave. The message is one sentence to act on."""


class EnvironmentFault(SealError, RuntimeError):
    """The world failed, through no fault of a model or a user."""


@contextmanager
def faults_of(task: str, what: str, through: type[Exception] = EnvironmentFault) -> Iterator[None]:
    """Turns exceptions of a benchmark's own code into `EnvironmentFault`s, except faults and the type `through`."""
    try:
        yield
    except (EnvironmentFault, through):
        raise
    except Exception as error:
        raise EnvironmentFault(f"{task}: its {what} failed: {error!r:.200}") from error


def note_on_jobs() -> str:
    """A sentence for errors about missing files: what a Ray job's working directory lacks; empty outside of jobs."""
    is_job = "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ
    return " A job's working directory lacks the files that git ignores, such as runs/ and build/." if is_job else ""


def unknown_value(key: str, value: object, allowed: Iterable[str]) -> UserError:
    """The error for a value outside a known set, with the nearest right values first."""
    choices = [str(choice) for choice in allowed]
    near = difflib.get_close_matches(str(value)[:80], choices, n=3)
    if near:
        return UserError(f"{key}: {value!r:.80} is not known; did you mean {' or '.join(map(repr, near))}?")
    shown = ", ".join(choices[:12]) + (f" and {len(choices) - 12} more" if len(choices) > 12 else "")
    return UserError(f"{key}: {value!r:.80} is not known; allowed are {shown or 'none'}.")


def check_known(key: str, allowed: Iterable[str], *values: str | None) -> None:
    """Raises `unknown_value` for the first value that is not allowed; None passes."""
    known = list(allowed)
    for value in values:
        if value is not None and value not in known:
            raise unknown_value(key, value, known)
