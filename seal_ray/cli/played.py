"""The part of `seal-ray exam` that is about suites of τ²-bench, whose dialogues another program plays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from envs.errors import UserError
from policies.models import open_model
from seal_ray.cli.options import Update
from seal_ray.evaluation.plan import MAX_CONTEXT
from seal_ray.exams.sitting import AnswerLog, ExamProgress, ModelUnderTest
from seal_ray.exams.tau2.inspecting import find_interpreter
from seal_ray.exams.tau2.playing import Party, Play, play
from seal_ray.exams.tau2.servers import Servers, endpoint_at
from seal_ray.run.checkpoints import model_of, name_of


def how_to_play(
    user_model: str | None, *, inspect: str | None, limit: int | None, categories: Sequence[str], turns: int, at: int
) -> Play:
    """How the suites are played, `at` dialogues at a time. Raises `UserError` for what is missing."""
    if user_model is None:
        raise UserError(
            "--user-model: none is given; in tau2 suites a model plays the user, for instance openai/gpt-4.1 or a "
            "model of ours."
        )
    user = Party(user_model)
    if "/" not in user_model or Path(user_model).is_dir():
        opened = open_model(model_of(user_model))
        folder = str(opened.path.resolve())
        context = min(opened.context, MAX_CONTEXT)
        options = ("--context", str(context), "--concurrent", str(at))
        user = Party(folder, name_of(user_model, opened), folder, options, files=opened.fingerprint())
    return Play(find_interpreter(inspect), user, limit, tuple(categories), turns, at)


def check_playable(sitter: ModelUnderTest, *, engine: str | None, server: str | None, base: str | None) -> None:
    """Raises `UserError` for options that these suites do not have."""
    if engine == "transformers":
        raise UserError("--engine: in tau2 suites the model is served, by vllm; leave transformers out.")
    if (sitter.temperature, sitter.top_p, sitter.seed) != (0.0, 1.0, 0):
        raise UserError("--temperature: tau2 suites are played greedily; leave --temperature, --top-p and --seed out.")
    if server is not None and base is not None:
        raise UserError("--server: it serves one model; leave it out, or ask the base by another call.")


def settings_of(suite: str, sitter: ModelUnderTest, how: Play, server: str | None) -> dict[str, Any]:
    """All that the answers to a suite depend on, as JSON values."""
    of_model = {name: value for name, value in sitter.settings().items() if name not in _NOT_SERVED}
    return {"suite": suite, **of_model, "served": server is None, **how.settings()}


_NOT_SERVED = ("engine", "seed", "temperature", "top_p")


def party_of(name: str, sitter: ModelUnderTest, server: str | None, dtype: str | None) -> Party:
    """The model's side, served as it is asked in the other suites."""
    options = {
        "--context": str(sitter.budgets.context),
        "--response": str(sitter.budgets.response),
        "--concurrent": str(sitter.concurrent),
        "--dialect": sitter.model.dialect.name,
    } | ({"--dtype": dtype} if dtype else {})
    folder = str(sitter.model.path.resolve())
    words = tuple(word for pair in options.items() for word in pair)
    return Party(folder, name, folder, words, None if server is None else endpoint_at(server, name))


def play_all(
    parties: Mapping[str, Party],
    how: Play,
    sheets: Mapping[tuple[str, str], AnswerLog],
    folder: Path,
    update: Update,
    done: Callable[[str, str, ExamProgress], None],
) -> None:
    """All suites with all models. At most two servers run, the model's and the user's."""
    with closing(Servers(folder)) as servers:
        for (who, suite), sheet in sheets.items():
            party = parties[who]

            def show(at: ExamProgress, doing: str, called: str = party.called, suite: str = suite) -> None:
                right = sum(each.right for each in at.answers.values())
                stage = f"{called}: {suite}" + (f", {doing}" if doing else "")
                update(stage, len(at.answers), at.total, "" if doing else f"{right} right, {at.tokens:,} tokens")

            sheet.open()
            servers.close(keep=(party.folder, how.user.folder))
            done(who, suite, play(suite, party, how, sheet, servers, show))
