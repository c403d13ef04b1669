"""`seal-ray exam`: benchmarks that were not trained on, for a model and its base, with one table for both."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
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
from seal_ray.cli import options as opt
from seal_ray.cli.console import make_console, print_line
from seal_ray.cli.options import Update, check_engine, check_sampling, progress
from seal_ray.evaluation.suites import budgets_for
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
        context = budgets_for(opened, None, 1).context
        options = ("--context", str(context), "--concurrent", str(concurrent))
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


def _show(update: Update, stage: str, state: ExamProgress, *, doing: bool = False) -> None:
    """Shows the progress; without numbers while it is `doing` something else than playing."""
    right, done = sum(answer.right for answer in state.answers.values()), len(state.answers)
    details = "" if doing else f"{right} right, {state.tokens:,} tokens"
    update(stage, done, state.total, details, None if doing or not done else wilson(right / done, done))


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
    sampling = (engine or default_kind(), choose_dtype(dtype), seed, temperature, top_p, concurrent)
    models = {who: _open(name, dialect, context, response, *sampling) for who, name in named.items()}
    names = {who: name_of(name, models[who].model) for who, name in named.items()}
    how, categories = None, category or ()
    if any(name in SUITES for name in suites):
        check_playable(models["model"], engine=engine, server=server, base=base)
        how = make_play(
            user_model, inspect=inspect, limit=limit, categories=categories, turns=turns, concurrent=concurrent
        )
    with ExitStack() as stack:
        exams = _open_exams([name for name in suites if name not in SUITES], data, embeddings, stack)
        items: dict[str, list[Item]] = {}
        for name, exam in exams.items():
            every = exam.items()
            check_known("category", list(dict.fromkeys(item.category for item in every if item.counts)), *categories)
            items[name] = choose_items(every, limit=limit, categories=categories)
        folder, services = out or Path("runs") / "exams" / names["model"], {"data": data, "embeddings": embeddings}
        _Session(suites, exams, items, services, models, names, folder, fresh, how, server, dtype).examine()


def _open(name: str, dialect: str | None, context: int | None, response: int, *sampling: Any) -> ModelUnderTest:
    opened = open_model(model_of(name), dialect=dialect)
    budgets = budgets_for(opened, context, response)
    return ModelUnderTest(opened, ChatFormat.load(opened.path, opened.dialect), budgets, *sampling)


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


@dataclass
class _Session:
    """One call of the command.

    `models` and `names` are by "model" and "base"; `exams` and `items` by suite, without τ²-bench's, whose settings are
    `how`, `server` and `dtype`.
    """

    suites: Sequence[str]
    exams: Mapping[str, Exam]
    items: Mapping[str, Sequence[Item]]
    services: Mapping[str, str | None]
    models: Mapping[str, ModelUnderTest]
    names: Mapping[str, str]
    out: Path
    fresh: bool
    how: Play | None
    server: str | None
    dtype: str | None
    logs: dict[tuple[str, str], AnswerLog] = field(default_factory=dict)
    answers: dict[tuple[str, str], dict[str, Answer]] = field(default_factory=dict)
    """(model or base, suite) → item → answer."""
    console: Console = field(default_factory=make_console)

    def examine(self) -> None:
        """Examines all models in all suites, and writes logs and tables."""
        self.logs = {(who, suite): self._log(who, suite) for who in self.models for suite in self.suites}
        with progress(self.console) as update:
            if self.how is not None:
                self._play(self.how, update)
            for who in self.models:
                asyncio.run(self._ask(who, update))
            for who, suite in self.logs:
                if suite in self.exams:
                    ids = [item.id for item in self.items[suite]]
                    write_exam_log(self.logs[who, suite], self.exams[suite].name, self.names[who], ids)
        self._report()

    def _log(self, who: str, suite: str) -> AnswerLog:
        """The log of a model's answers, with all settings on which they depend."""
        settings, exam = self.models[who].settings(), self.exams.get(suite)
        if exam is not None:
            return self._log_of(who, exam.name, {**exam_settings(suite, exam, self.services), **settings})
        assert self.how is not None
        served = {name: value for name, value in settings.items() if name not in _NOT_SERVED}
        return self._log_of(
            who, suite, {"suite": suite, **served, "served": self.server is None, **self.how.settings()}
        )

    def _log_of(self, who: str, name: str, settings: Mapping[str, Any]) -> AnswerLog:
        return AnswerLog(self.out / who / name, settings, fresh=self.fresh)

    def _play(self, how: Play, update: Update) -> None:
        """Plays τ²-bench with all models. At most two servers run, the model's and the user's."""
        parties = {who: model_party(self.names[who], self.models[who], self.server, self.dtype) for who in self.models}
        with closing(Servers(self.out)) as servers:
            for (who, suite), log in self.logs.items():
                if suite in self.exams:
                    continue
                party = parties[who]

                def show(state: ExamProgress, doing: str, stage: str = f"{party.called}: {suite}") -> None:
                    _show(update, stage + (f", {doing}" if doing else ""), state, doing=bool(doing))

                log.open()
                servers.close(keep=(party.folder, how.user.folder))
                self._keep(who, suite, play(suite, party, how, log, servers, show))

    async def _ask(self, who: str, update: Update) -> None:
        """All other suites with one model, on one engine, which starts only if answers are missing."""
        name, model, engine = self.names[who], self.models[who], None
        try:
            for suite, exam in self.exams.items():
                log, items = self.logs[who, suite], self.items[suite]
                log.open()
                stored = log.answers()
                if all(item.id in stored for item in items):
                    answers = {item.id: stored[item.id] for item in items}
                    self._keep(who, suite, ExamProgress(exam.name, len(answers), answers, resumed=len(answers)))
                    continue
                if engine is None:
                    update(f"{name}: starting the engine", 0, 1, "")
                    engine = await start_engine(
                        model.engine,
                        model.model,
                        context=model.budgets.context,
                        dtype=model.dtype,
                        concurrent=min(model.concurrent, max(map(len, self.items.values()))),
                    )
                run = ExamRun(
                    exam, items, model, engine, log, lambda state: _show(update, f"{name}: {state.suite}", state)
                )
                self._keep(who, suite, await run.finish())
        finally:
            if engine is not None:
                await engine.close()

    def _keep(self, who: str, suite: str, done: ExamProgress) -> None:
        self.answers[who, suite] = done.answers
        text = f"{self.names[who]}: {done.suite}: {len(done.answers)} items"
        if done.resumed:
            text += f", {done.resumed} were already there"
        if done.restarts:
            text += f"; the engine died and was restarted {done.restarts} times"
        if done.tokens:
            text += f"; {done.tokens:,} tokens sampled in {done.seconds:.1f} s"
        print_line(self.console, text)

    def _report(self) -> None:
        names, rows, by_suite = self.names, list[ExamRow](), dict[str, list[Answer]]()
        notes = [f"{exam.name}: {note}" for exam in self.exams.values() for note in exam.notes()]
        for suite in self.suites:
            own, name = self.answers["model", suite], suite
            order = list(own)
            if suite in self.exams:
                order, name = [item.id for item in self.items[suite]], self.exams[suite].name
            elif self.how is not None:
                notes.append(f"{suite}: {self.how.note}")
            rows += exam_rows(name, [own[item] for item in order], self.answers.get(("base", suite)))
            by_suite[name] = list(own.values())
        base = names.get("base")
        self.console.print(exam_table(rows, names["model"] + (f" and {base}" if base else "")))
        for note in notes:
            print_line(self.console, note)
        settings = {who: model.settings() for who, model in self.models.items()}
        write(self.out, rows, model=names["model"], base=base, notes=notes, settings=settings, answers=by_suite)
        print_line(self.console, f"tables in {self.out / 'exam.md'} and exam.json, answers below {self.out}")


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
