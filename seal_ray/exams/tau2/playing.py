"""Playing a suite of τ²-bench with a model: its server, the user's, and Inspect between them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from envs.errors import SealError, UserError, check_known
from seal_ray.exams.sitting import Answer, AnswerLog, ExamProgress, choose_items, cut_short
from seal_ray.exams.tau2.inspecting import LOG, InspectJob, Interpreter, Sides, inspecting
from seal_ray.exams.tau2.servers import Endpoint, ServerProcess, Servers
from seal_ray.exams.tau2.suites import PREFIX, Tau2Dialogue, row_of, task_of

TURNS = 100
"""Times that the user speaks in a dialogue at most, as in the benchmark."""


RETRIES = 6
"""How often a request is tried again, after 3, 6, 12, … seconds."""


@dataclass(frozen=True, slots=True)
class Party:
    """A side of the dialogues: a name of Inspect's, or a model of ours.

    Of a model of ours `name` and `folder` are its folder, `called` is what a server calls it, `options` are those of
    `seal-ray serve`, `endpoint` is a server that runs already, and `files` says which weights it has.
    """

    name: str
    called: str = ""
    folder: str | None = None
    options: tuple[str, ...] = ()
    endpoint: Endpoint | None = None
    files: Any = None


@dataclass(frozen=True, slots=True)
class Play:
    """How a suite is played: how many of which tasks, and against which user."""

    interpreter: Interpreter
    user: Party
    limit: int | None
    categories: tuple[str, ...]
    turns: int
    concurrent: int

    def settings(self) -> dict[str, Any]:
        """What the answers depend on beside the model, as JSON values."""
        return {
            "user_model": self.user.name,
            "user_files": self.user.files,
            "turns": self.turns,
            **self.interpreter.versions,
        }

    @property
    def note(self) -> str:
        """A sentence that must stand beside the scores."""
        versions = ", ".join(f"{name} {version}" for name, version in self.interpreter.versions.items())
        return f"the user is {self.user.called or self.user.name}; played and scored by {versions}."


def play(
    suite: str, model: Party, how: Play, sheet: AnswerLog, servers: Servers, report: Callable[[ExamProgress, str], None]
) -> ExamProgress:
    """Plays what was not yet played. Raises `SealError` with one sentence where it cannot go on; nothing is lost."""
    domain = suite.removeprefix(PREFIX)
    progress = ExamProgress(suite, 0, {})
    job = InspectJob(task_of(suite), sheet.inspect, turns=how.turns, concurrent=how.concurrent, retries=RETRIES)
    try:
        report(progress, "loading the tasks")
        with inspecting(how.interpreter, job) as running:
            items = _chosen([Tau2Dialogue(each, domain) for each in running.ids], how)
            stored = sheet.answers()
            progress.total = len(items)
            progress.answers |= {each: stored[each] for each in items if each in stored}
            progress.resumed = len(progress.answers)
            left = [each for each in items if each not in progress.answers]
            if left:
                sides, ours = _sides(model, how.user, servers, lambda name: report(progress, f"starting {name}"))
                report(progress, "")
                started = time.perf_counter()
                for played in running.play(left, sides, lambda: _check(ours)):
                    row = row_of(items[played["id"]], played)
                    sheet.lines.append(row)
                    answer = progress.answers[row["item"]] = Answer.from_dict(row)
                    progress.tokens += answer.sampled_tokens
                    progress.seconds = time.perf_counter() - started
                    report(progress, "")
                if len(progress.answers) < len(items):
                    raise SealError(f"Inspect ended early; its log is {job.folder / LOG}")
    except UserError:
        raise
    except SealError as error:
        raise cut_short(progress, error) from error
    progress.answers = {each: progress.answers[each] for each in items}
    return progress


def _chosen(dialogues: Sequence[Tau2Dialogue], how: Play) -> dict[str, Tau2Dialogue]:
    check_known("category", list(dict.fromkeys(each.category for each in dialogues)), *how.categories)
    chosen = choose_items(dialogues, limit=how.limit, categories=how.categories)
    return {each.id: each for each in chosen}


def _sides(
    model: Party, user: Party, servers: Servers, starting: Callable[[str], None]
) -> tuple[Sides, list[ServerProcess]]:
    """What Inspect calls both, and the servers of ours that answer for them now."""
    names: list[str] = []
    variables: dict[str, str] = {}
    ours: list[ServerProcess] = []
    for party, service in ((model, "seal-ray"), (user, "seal-ray-user")):
        endpoint = party.endpoint
        if endpoint is None and party.folder is not None:
            called = re.sub(r"[^\w.-]", "-", party.called)
            told = partial(starting, called)
            # What is examined has the options that were asked for; a user of the same model takes its server.
            ours.append(servers.get(party.folder, called, party.options, told, exactly=party is model))
            endpoint = ours[-1].endpoint
        if endpoint is None:
            names.append(party.name)
            continue
        names.append(f"openai-api/{service}/{endpoint.name}")
        prefix = service.upper().replace("-", "_")
        variables |= {f"{prefix}_API_KEY": endpoint.key, f"{prefix}_BASE_URL": endpoint.url}
    return Sides(names[0], names[1], variables), ours


def _check(servers: Sequence[ServerProcess]) -> None:
    for server in servers:
        server.check()
