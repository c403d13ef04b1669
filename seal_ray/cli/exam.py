"""`seal-ray exam`: benchmarks that were not trained on, for a model and its base, with one table for both."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from envs.errors import UserError, check_known
from envs.exams import EXAMS, Exam, Item
from envs.folders import check_no_file
from policies.embedding import Embedder
from policies.engine.choice import choose_dtype, default_kind, start_engine
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.solver import Budgets
from seal_ray.cli import options as opt
from seal_ray.cli.console import make_console, print_line
from seal_ray.cli.options import Update, check_engine, check_sampling, progress
from seal_ray.evaluation.suites import MAX_CONTEXT
from seal_ray.exams.exam_run import Answer, AnswerLog, ExamProgress, ExamRun, ModelUnderTest, choose_items
from seal_ray.exams.report import ExamRow, exam_rows, exam_table, write, write_exam_log
from seal_ray.exams.tau2.inspecting import VARIABLE, find_interpreter
from seal_ray.exams.tau2.playing import SUITES, TURNS, Party, Play, play
from seal_ray.exams.tau2.servers import Servers, endpoint_at
from seal_ray.run.checkpoints import model_of, name_of
from seal_ray.statistics import wilson

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
                _show(update, f"{name}: {suite}" + (f", {doing}" if doing else ""), state, doing=bool(doing))

            log.open()
            servers.close(keep=(party.folder, how.user.folder))
            on_end(who, suite, play(suite, party, how, log, servers, show))


def _show(update: Update, stage: str, state: ExamProgress, *, doing: bool = False) -> None:
    """Shows the progress; without numbers while it is `doing` something else than playing."""
    right, done = sum(answer.right for answer in state.answers.values()), len(state.answers)
    details = "" if doing else f"{right} right, {state.tokens:,} tokens"
    update(stage, done, state.total, details, None if doing or not done else wilson(right / done, done))


Answers = dict[tuple[str, str], dict[str, Answer]]
"""(model or base, suite) → item → answer."""

_SUITES = f"{', '.join((*EXAMS.built_in, *SUITES))}, an installed one, or package.module:Name; several times."
Data = Annotated[str | None, typer.Option(help="Folder of a benchmark, for suites that need one.")]
Embeddings = Annotated[str | None, typer.Option(help="Embedding model, for suites with semantic search.")]
Base = Annotated[str | None, typer.Option(help="Another model for the same items, for instance the base.")]
UserModel = Annotated[
    str | None, typer.Option(help="The user in tau2 suites: a model of Inspect's (openai/gpt-4.1) or one of ours.")
]
Turns = Annotated[int, typer.Option(help="Largest number of user turns in a tau2 dialogue.", min=1)]
Server = Annotated[
    str | None, typer.Option(help="Address (…/v1) that serves the model for tau2 suites; else one is started.")
]
Inspect = Annotated[
    str | None, typer.Option(envvar=VARIABLE, help="Python with inspect-evals, for tau2 suites; see make inspect.")
]


def command(
    model: opt.Model,
    suite: Annotated[list[str], typer.Option(help=_SUITES)],
    data: Data = None,
    embeddings: Embeddings = None,
    base: Base = None,
    limit: Annotated[int | None, typer.Option(help="Largest number of items, the categories in turn.", min=1)] = None,
    category: opt.Category = None,
    seed: opt.Seed = 0,
    temperature: opt.Temperature = 0.0,
    top_p: opt.TopP = 1.0,
    context: opt.Context = None,
    response: opt.Response = 1024,
    dialect: opt.Dialect = None,
    engine: opt.EngineKind = None,
    dtype: opt.Dtype = None,
    concurrent: opt.Concurrent = 64,
    out: Annotated[Path | None, typer.Option(help="Folder of answers and tables.")] = None,
    fresh: opt.Fresh = False,
    user_model: UserModel = None,
    turns: Turns = TURNS,
    server: Server = None,
    inspect: Inspect = None,
    _trust: opt.Trust = False,
) -> None:
    """Examine a model on benchmarks that it was not trained on. After Ctrl-C or a kill, the same command resumes."""
    check_engine(engine, dtype)
    suites = list(dict.fromkeys(suite))
    check_known("suite", [*EXAMS.names(), *SUITES], *(name for name in suites if ":" not in name))
    check_sampling(temperature, top_p)
    if out is not None:
        check_no_file(out)
    named = {"model": model} | ({} if base is None else {"base": base})
    sampling = (seed, temperature, top_p, concurrent)
    models = {who: _open(name, dialect, context, response, engine, dtype, sampling) for who, name in named.items()}
    names = {who: name_of(name, models[who].model) for who, name in named.items()}
    how, categories = None, category or ()
    if any(name in SUITES for name in suites):
        check_playable(models["model"], engine=engine, server=server, base=base)
        how = make_play(
            user_model, inspect=inspect, limit=limit, categories=categories, turns=turns, concurrent=concurrent
        )
    session = _Session(models, names, out or Path("runs") / "exams" / names["model"], fresh, how, server, dtype)
    with ExitStack() as stack:
        exams = _open_exams([name for name in suites if name not in SUITES], data, embeddings, stack)
        items: dict[str, list[Item]] = {}
        for name, exam in exams.items():
            every = exam.items()
            check_known("category", list(dict.fromkeys(item.category for item in every if item.counts)), *categories)
            items[name] = choose_items(every, limit=limit, categories=categories)
        _examine(session, suites, exams, items, {"data": data, "embeddings": embeddings})


@dataclass(frozen=True, slots=True)
class _Session:
    """The models by "model" and "base", their names, the folder of results, and the settings of τ²-bench."""

    models: Mapping[str, ModelUnderTest]
    names: Mapping[str, str]
    out: Path
    fresh: bool
    how: Play | None
    server: str | None
    dtype: str | None

    def log(self, who: str, suite: str, settings: Mapping[str, Any]) -> AnswerLog:
        return AnswerLog(self.out / who / suite, settings, fresh=self.fresh)


def _open(
    name: str,
    dialect: str | None,
    context: int | None,
    response: int,
    engine: str | None,
    dtype: str | None,
    sampling: tuple[int, float, float, int],
) -> ModelUnderTest:
    opened = open_model(model_of(name), dialect=dialect)
    tokens = min(opened.context, MAX_CONTEXT) if context is None else context
    if tokens > opened.context:
        raise UserError(f"context: {tokens} is more than the {opened.context} tokens of {opened.name}.")
    form = ChatFormat.load(opened.path, opened.dialect)
    budgets = Budgets(prompt=tokens, response=min(response, tokens), context=tokens)
    return ModelUnderTest(opened, form, budgets, engine or default_kind(), choose_dtype(dtype), *sampling)


def _open_exams(suites: Sequence[str], data: str | None, embeddings: str | None, stack: ExitStack) -> dict[str, Exam]:
    """Suite → its exam, which `stack` closes. Raises `UserError` for two with the same name."""
    services = {"data": data, "embeddings": None if embeddings is None else Embedder(embeddings)}
    exams: dict[str, Exam] = {}
    for suite in suites:
        exams[suite] = EXAMS.make(suite, services)
        stack.callback(exams[suite].close)
    if len({exam.name for exam in exams.values()}) < len(exams):
        raise UserError("suite: two of them have the same name, and one folder for their answers; rename one.")
    return exams


def _examine(
    session: _Session,
    suites: Sequence[str],
    exams: Mapping[str, Exam],
    items: Mapping[str, Sequence[Item]],
    services: Mapping[str, str | None],
) -> None:
    """Examines all models in all suites, and writes logs and tables."""
    console = make_console()
    models, names, how = session.models, session.names, session.how
    logs = {
        (who, suite): session.log(who, exam.name, {**exam_settings(suite, exam, services), **model.settings()})
        for who, model in models.items()
        for suite, exam in exams.items()
    }
    answers: Answers = {}
    with progress(console) as update:

        def keep(who: str, suite: str, done: ExamProgress) -> None:
            answers[who, suite] = done.answers
            _print_end(console, names[who], done)

        if how is not None:
            tau2 = {
                (who, suite): session.log(who, suite, suite_settings(suite, model, how, session.server))
                for who, model in models.items()
                for suite in suites
                if suite not in exams
            }
            parties = {who: model_party(names[who], models[who], session.server, session.dtype) for who in models}
            play_all(parties, how, tau2, session.out, update, keep)
        for who, model in models.items():
            own = {suite: logs[who, suite] for suite in exams}
            asyncio.run(_examine_model(names[who], model, exams, items, own, update, partial(keep, who)))
        for (who, suite), log in logs.items():
            write_exam_log(log, exams[suite].name, names[who], [item.id for item in items[suite]])
    notes = [f"{exam.name}: {note}" for exam in exams.values() for note in exam.notes()]
    notes += [f"{suite}: {how.note}" for suite in suites if suite not in exams and how is not None]
    _report(console, session, suites, exams, items, answers, notes)


def exam_settings(name: str, exam: Exam, services: Mapping[str, str | None]) -> dict[str, Any]:
    """The settings on which answers to a suite depend, apart from the model.

    The suite, the folders and names that it uses, and its notes on services and packages.
    """
    settings = getattr(EXAMS.find(name), "Settings", None)
    fields = {} if settings is None else settings.model_fields
    notes = {"notes": list(found)} if (found := exam.notes()) else {}
    return {"suite": name, **notes} | {
        key: str(Path(value).resolve()) if Path(value).exists() else value
        for key, value in services.items()
        if key in fields and value is not None
    }


async def _examine_model(
    name: str,
    model: ModelUnderTest,
    exams: Mapping[str, Exam],
    items: Mapping[str, Sequence[Item]],
    logs: Mapping[str, AnswerLog],
    update: Update,
    keep: Any,
) -> None:
    """All suites with one model, on one engine, which starts only if answers are missing."""

    def show(state: ExamProgress) -> None:
        _show(update, f"{name}: {state.suite}", state)

    engine = None
    try:
        for suite, exam in exams.items():
            logs[suite].open()
            stored = logs[suite].answers()
            if all(item.id in stored for item in items[suite]):
                answers = {item.id: stored[item.id] for item in items[suite]}
                keep(suite, ExamProgress(exam.name, len(answers), answers, resumed=len(answers)))
                continue
            if engine is None:
                update(f"{name}: starting the engine", 0, 1, "")
                engine = await start_engine(
                    model.engine,
                    model.model,
                    context=model.budgets.context,
                    dtype=model.dtype,
                    concurrent=min(model.concurrent, max(map(len, items.values()))),
                )
            keep(suite, await ExamRun(exam, items[suite], model, engine, logs[suite], show).finish())
    finally:
        if engine is not None:
            await engine.close()


def _report(
    console: Console,
    session: _Session,
    suites: Sequence[str],
    exams: Mapping[str, Exam],
    items: Mapping[str, Sequence[Item]],
    answers: Answers,
    notes: Sequence[str],
) -> None:
    names, rows, by_suite = session.names, list[ExamRow](), dict[str, list[Answer]]()
    for suite in suites:
        own = answers["model", suite]
        order = [item.id for item in items[suite]] if suite in items else list(own)
        name = exams[suite].name if suite in exams else suite
        rows += exam_rows(name, [own[item] for item in order], answers.get(("base", suite)))
        by_suite[name] = list(own.values())
    base = names.get("base")
    console.print(exam_table(rows, names["model"] + (f" and {base}" if base else "")))
    for note in notes:
        print_line(console, note)
    settings = {who: model.settings() for who, model in session.models.items()}
    write(session.out, rows, model=names["model"], base=base, notes=notes, settings=settings, answers=by_suite)
    print_line(console, f"tables in {session.out / 'exam.md'} and exam.json, answers below {session.out}")


def _print_end(console: Console, name: str, done: ExamProgress) -> None:
    text = f"{name}: {done.suite}: {len(done.answers)} items"
    if done.resumed:
        text += f", {done.resumed} were already there"
    if done.restarts:
        text += f"; the engine died and was restarted {done.restarts} times"
    if done.tokens:
        text += f"; {done.tokens:,} tokens sampled in {done.seconds:.1f} s"
    print_line(console, text)
