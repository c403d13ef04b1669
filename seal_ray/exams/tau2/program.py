"""Plays dialogues of τ²-bench with Inspect; run as a file in an environment with inspect-evals, without our packages.

It reads a job from standard input, a line of JSON, and writes the task ids; it reads which of them to play, and writes
a line for each dialogue as it ends. It ends when standard input is closed, and so with its parent.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from typing import Any

KEPT = 20_000
"""Characters of one message that are passed on."""
REFUSED = (400, 413, 422)
"""A server's statuses for a dialogue that it cannot continue."""
_CALLS, _OVER = "seal_ray:calls", "seal_ray:over"


def main() -> None:
    job = json.loads(sys.stdin.readline())
    wire = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the benchmark prints

    def tell(**line: Any) -> None:
        wire.write(json.dumps(line) + "\n")
        wire.flush()

    from inspect_evals import tau2

    task = getattr(tau2, job["task"])(shuffle=False, message_limit=job["turns"])
    tell(kind="tasks", ids=[str(sample.id) for sample in task.dataset])
    asked = sys.stdin.readline()
    if not asked:
        return
    threading.Thread(target=_end_with_input, daemon=True).start()
    _watch(tell, job["calls"])
    try:
        _play(task, job, json.loads(asked))
    except Exception as error:
        tell(kind="broken", why=_sentence(_cause(error)))
        raise
    tell(kind="done")


def _cause(error: Any) -> Any:
    """The error of the last try, if an error wraps the errors of several tries."""
    while (last := getattr(error, "last_attempt", None)) is not None and last.exception() is not None:
        error = last.exception()
    return error


def _sentence(error: Exception) -> str:
    why = getattr(error, "provider_message", None) or str(error) or type(error).__name__
    return " ".join(why.split())[:500].rstrip(".")


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


def _play(task: Any, job: dict[str, Any], asked: dict[str, Any]) -> None:
    from inspect_ai import eval as run
    from inspect_ai.model import CachePolicy

    os.environ.update(asked["variables"])
    # Inspect would interpret ids as patterns.
    wanted = set(asked["ids"])
    task.dataset = task.dataset.filter(lambda sample: str(sample.id) in wanted)
    (log,) = run(
        task,
        model=asked["model"],
        model_roles={"user": asked["user"]},
        log_dir=job["folder"],
        log_buffer=1,
        display="none",
        ctl_server=False,
        fail_on_error=False,
        max_samples=job["concurrent"],
        max_connections=job["concurrent"],
        max_retries=job["retries"],
        attempt_timeout=job["timeout"],
        # No answer is requested again, even if its dialogue was stopped in the middle.
        cache=CachePolicy(expiry=None),
    )
    if log.error is not None:
        raise RuntimeError(log.error.message)


def _watch(tell: Any, calls: int) -> None:
    """Reports every dialogue, and stops everything if a model does not answer any more.

    The benchmark's loop treats a failed request as a turn without an answer and scores the dialogue. So requests are
    watched at the place where Inspect gives up. A dialogue that has no room left, or whose content is refused, is over.
    """
    from inspect_ai.hooks import Hooks, SampleEnd, hooks
    from inspect_ai.model import Model
    from inspect_ai.util import LimitExceededError, store

    generate, failed = Model.generate, threading.Event()

    async def watched(self: Any, *args: Any, **settings: Any) -> Any:
        state = store()
        count = state.get(_CALLS, 0) + 1
        if state.get(_OVER) or count > calls:
            state.set(_OVER, state.get(_OVER) or "turns")
            raise RuntimeError("the dialogue is over")
        try:
            output = await generate(self, *args, **settings)
        except LimitExceededError:
            raise
        except Exception as raised:
            error = _cause(raised)
            status = getattr(error, "status_code", None)
            if status in REFUSED and count > 2:
                state.set(_OVER, "refused")
                raise
            if not failed.is_set():
                failed.set()
                tell(kind="failed", who="user" if self.role == "user" else "model", why=_sentence(error))
                signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(3600)  # until it is cancelled
            raise
        state.set(_CALLS, count)
        if output.stop_reason == "model_length":
            state.set(_OVER, "context")
        return output

    Model.generate = watched

    @hooks(name="seal_ray", description="Reports every dialogue as it ends.")
    class ReportDialogues(Hooks):
        async def on_sample_end(self, data: SampleEnd) -> None:
            if data.sample.error is None or not failed.is_set():
                tell(kind="sample", **_read(data.sample))


def _read(sample: Any) -> dict[str, Any]:
    """The outcome of a dialogue, from Inspect's record."""
    steps = []
    for event in sample.events:
        if event.event != "model" or event.error is not None or not event.output.choices:
            continue
        message, usage = event.output.message, event.output.usage
        steps.append(
            {
                "who": "user" if event.role == "user" else "model",
                "text": message.text[:KEPT],
                "calls": [[each.function, json.dumps(each.arguments)[:KEPT]] for each in message.tool_calls or ()],
                "end": event.output.stop_reason,
                "input": usage.input_tokens if usage else 0,
                "output": usage.output_tokens if usage else 0,
            }
        )
    scores = list((sample.scores or {}).values())
    return {
        "id": str(sample.id),
        "right": [score.value for score in scores] == ["C"],
        "why": (scores[0].explanation or "")[:KEPT] if scores else "",
        "error": sample.error.message[:500] if sample.error is not None else None,
        "over": sample.store.get(_OVER),
        "steps": steps,
    }


if __name__ == "__main__":
    main()
