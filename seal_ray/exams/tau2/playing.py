"""Plays a suite of τ²-bench: with the model's server, the user's, and Inspect between them."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from envs.errors import SealError, UserError, check_known
from envs.text import map_texts, valid_text
from seal_ray.exams.exam_run import AnswerLog, ExamProgress, choose_items
from seal_ray.exams.tau2.inspecting import LOG, InspectJob, Interpreter, inspecting
from seal_ray.exams.tau2.servers import Endpoint, ServerProcess, Servers

PREFIX = "tau2-"
DOMAINS = ("airline", "retail", "telecom")
SUITES = tuple(PREFIX + domain for domain in DOMAINS)
_GOODBYES = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
"""The user's words at the end of a dialogue, from the benchmark's instructions."""
_KIND = re.compile(r"\[(\w+)\]")


@dataclass(frozen=True, slots=True)
class Tau2Dialogue:
    """A task of a domain, as an item of an exam. Telecom's ids begin with the kind of trouble."""

    id: str
    domain: str
    after: None = None
    counts: bool = True

    @property
    def category(self) -> str:
        kind = _KIND.match(self.id) if self.domain == "telecom" else None
        return kind[1] if kind else self.domain

    @property
    def group(self) -> str:
        return self.id


def dialogue_row(item: Tau2Dialogue, played: Mapping[str, Any]) -> dict[str, Any]:
    """The line of a dialogue in `answers.jsonl`.

    The verdict is the scorer's, but a dialogue that the user did not end is wrong, as in τ²-bench's own evaluator.
    """
    steps: Sequence[Mapping[str, Any]] = played["steps"]
    own = [step for step in steps if step["who"] == "model"]
    ended = bool(steps) and steps[-1]["who"] == "user" and any(word in steps[-1]["text"] for word in _GOODBYES)
    end = "stop" if ended else played["over"] or "turns"
    why = played["error"] or played["why"]
    row = {
        "item": item.id,
        "category": item.category,
        "group": item.group,
        "counts": item.counts,
        "right": ended and played["right"],
        "why": "" if ended and played["right"] else why if ended else f"the user did not end it ({end})",
        "end": end,
        "kept": None,
        "sampled_tokens": sum(step["output"] for step in own),
        "prompt_tokens": sum(step["input"] for step in own),
        "scored": played["right"],
        "said": [_line(step) for step in steps],
    }
    valid: dict[str, Any] = map_texts(row, valid_text)
    return valid


def _line(step: Mapping[str, Any]) -> str:
    calls = "".join(f" {name}({arguments})" for name, arguments in step["calls"])
    return f"{step['who']}: {step['text']}{calls}"


TURNS = 100
"""Largest number of the user's messages in a dialogue, as in the benchmark."""
RETRIES = 6
"""Retries of a request, after 3, 6, 12, … seconds."""


@dataclass(frozen=True, slots=True)
class Party:
    """A side of the dialogues: a model by its name in Inspect, or a model of ours.

    For a model of ours `name` and `folder` are its folder, `called` is its name at a server, `options` are those of
    `seal-ray serve`, `endpoint` is a running server, and `files` identifies its weights.
    """

    name: str
    called: str = ""
    folder: str | None = None
    options: tuple[str, ...] = ()
    endpoint: Endpoint | None = None
    files: Any = None


@dataclass(frozen=True, slots=True)
class Play:
    """The settings of a suite: tasks and user."""

    interpreter: Interpreter
    user: Party
    limit: int | None
    categories: tuple[str, ...]
    turns: int
    concurrent: int

    def settings(self) -> dict[str, Any]:
        """All that the answers depend on besides the model, as JSON values."""
        return {
            "user_model": self.user.name,
            "user_files": self.user.files,
            "turns": self.turns,
            **self.interpreter.versions,
        }

    @property
    def note(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.interpreter.versions.items())
        return f"the user is {self.user.called or self.user.name}; played and scored by {versions}."


def play(
    suite: str, model: Party, how: Play, log: AnswerLog, servers: Servers, report: Callable[[ExamProgress, str], None]
) -> ExamProgress:
    """Plays the dialogues without an answer. Raises `SealError` if it cannot continue; stored answers are kept."""
    domain = suite.removeprefix(PREFIX)
    progress = ExamProgress(suite, 0, {})
    job = InspectJob(f"tau2_{domain}", log.inspect, turns=how.turns, concurrent=how.concurrent, retries=RETRIES)
    try:
        report(progress, "loading the tasks")
        with inspecting(how.interpreter, job) as running:
            dialogues = [Tau2Dialogue(each, domain) for each in running.ids]
            check_known("category", list(dict.fromkeys(each.category for each in dialogues)), *how.categories)
            items = {each.id: each for each in choose_items(dialogues, limit=how.limit, categories=how.categories)}
            stored = log.answers()
            progress.total = len(items)
            progress.answers |= {each: stored[each] for each in items if each in stored}
            progress.resumed = len(progress.answers)
            left = [each for each in items if each not in progress.answers]
            if left:
                sides, ours = _start_sides(model, how.user, servers, lambda name: report(progress, f"starting {name}"))
                report(progress, "")
                started = time.perf_counter()
                for played in running.play(left, sides, lambda: _check_alive(ours)):
                    progress.add(log.append(dialogue_row(items[played["id"]], played)), started)
                    report(progress, "")
                if len(progress.answers) < len(items):
                    raise SealError(f"Inspect ended early; its log is {job.folder / LOG}")
    except UserError:
        raise
    except SealError as error:
        raise progress.cut_short(error) from error
    progress.answers = {each: progress.answers[each] for each in items}
    return progress


def _start_sides(
    model: Party, user: Party, servers: Servers, starting: Callable[[str], None]
) -> tuple[dict[str, Any], list[ServerProcess]]:
    """Both sides for Inspect, and their running servers of ours."""
    names: list[str] = []
    variables: dict[str, str] = {}
    ours: list[ServerProcess] = []
    for party, service in ((model, "seal-ray"), (user, "seal-ray-user")):
        endpoint = party.endpoint
        if endpoint is None and party.folder is not None:
            called = re.sub(r"[^\w.-]", "-", party.called)
            # The tested model gets exactly its options; a user of the same model takes its server.
            on_start = partial(starting, called)
            ours.append(servers.get(party.folder, called, party.options, on_start, exactly=party is model))
            endpoint = ours[-1].endpoint
        if endpoint is None:
            names.append(party.name)
            continue
        names.append(f"openai-api/{service}/{endpoint.name}")
        prefix = service.upper().replace("-", "_")
        variables |= {f"{prefix}_API_KEY": endpoint.key, f"{prefix}_BASE_URL": endpoint.url}
    return {"model": names[0], "user": names[1], "variables": variables}, ours


def _check_alive(servers: Sequence[ServerProcess]) -> None:
    for server in servers:
        server.check()
