"""The suites of τ²-bench in `seal-ray exam`, whose dialogues another program plays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from envs.errors import UserError
from policies.models import open_model
from seal_ray.cli.options import Update
from seal_ray.evaluation.plan import MAX_CONTEXT
from seal_ray.exams.exam_run import AnswerLog, ExamProgress, ModelUnderTest
from seal_ray.exams.tau2.inspecting import find_interpreter
from seal_ray.exams.tau2.playing import Party, Play, play
from seal_ray.exams.tau2.servers import Servers, endpoint_at
from seal_ray.run.checkpoints import model_of, name_of

_NOT_SERVED = ("engine", "seed", "temperature", "top_p")
"""Settings of a model that do not apply to a server."""


def make_play(
    user_model: str | None,
    *,
    inspect: str | None,
    limit: int | None,
    categories: Sequence[str],
    turns: int,
    concurrent: int,
) -> Play:
    """The settings of the suites, with `concurrent` dialogues at a time. Raises `UserError` if something is missing."""
    if user_model is None:
        raise UserError(
            "--user-model: none given; in tau2 suites a model plays the user, for instance openai/gpt-4.1 or a model "
            "of ours."
        )
    user = Party(user_model)
    if "/" not in user_model or Path(user_model).is_dir():
        opened = open_model(model_of(user_model))
        folder = str(opened.path.resolve())
        options = ("--context", str(min(opened.context, MAX_CONTEXT)), "--concurrent", str(concurrent))
        user = Party(folder, name_of(user_model, opened), folder, options, files=opened.fingerprint())
    return Play(find_interpreter(inspect), user, limit, tuple(categories), turns, concurrent)


def check_playable(model: ModelUnderTest, *, engine: str | None, server: str | None, base: str | None) -> None:
    """Raises `UserError` for options that these suites do not have."""
    if engine == "transformers":
        raise UserError("--engine: in tau2 suites the model is served, by vllm; leave transformers out.")
    if (model.temperature, model.top_p, model.seed) != (0.0, 1.0, 0):
        raise UserError("--temperature: tau2 suites are played greedily; leave --temperature, --top-p and --seed out.")
    if server is not None and base is not None:
        raise UserError("--server: it serves one model; leave it out, or examine the base by another command.")


def suite_settings(suite: str, model: ModelUnderTest, how: Play, server: str | None) -> dict[str, Any]:
    """All settings on which the answers to a suite depend, as JSON values."""
    served = {name: value for name, value in model.settings().items() if name not in _NOT_SERVED}
    return {"suite": suite, **served, "served": server is None, **how.settings()}


def model_party(name: str, model: ModelUnderTest, server: str | None, dtype: str | None) -> Party:
    """The model's side, served with the settings of the other suites."""
    options = {
        "--context": str(model.budgets.context),
        "--response": str(model.budgets.response),
        "--concurrent": str(model.concurrent),
        "--dialect": model.model.dialect.name,
    } | ({"--dtype": dtype} if dtype else {})
    folder = str(model.model.path.resolve())
    words = tuple(word for pair in options.items() for word in pair)
    return Party(folder, name, folder, words, None if server is None else endpoint_at(server, name))


def play_all(
    parties: Mapping[str, Party],
    how: Play,
    logs: Mapping[tuple[str, str], AnswerLog],
    folder: Path,
    update: Update,
    on_end: Callable[[str, str, ExamProgress], None],
) -> None:
    """Plays all suites with all models. At most two servers run, the model's and the user's."""
    with closing(Servers(folder)) as servers:
        for (who, suite), log in logs.items():
            party = parties[who]

            def show(state: ExamProgress, doing: str, name: str = party.called, suite: str = suite) -> None:
                right = sum(answer.right for answer in state.answers.values())
                stage = f"{name}: {suite}" + (f", {doing}" if doing else "")
                update(
                    stage, len(state.answers), state.total, "" if doing else f"{right} right, {state.tokens:,} tokens"
                )

            log.open()
            servers.close(keep=(party.folder, how.user.folder))
            on_end(who, suite, play(suite, party, how, log, servers, show))
