"""`seal-ray exam`: suites that nobody trained for, asked of a model and of its base, with one table for both."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from envs.errors import UserError, check_known
from envs.exams import EXAMS, Exam, Item
from envs.folders import check_no_file
from policies.embedding import Embedder
from policies.engine.choice import DTYPES, KINDS, choose_dtype, default_kind, start_engine
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.solver import Budgets
from seal_ray.cli.console import make_console
from seal_ray.cli.options import Trust, Update, check_sampling, progress
from seal_ray.cli.played import check_playable, how_to_play, party_of, play_all, settings_of
from seal_ray.evaluation.plan import MAX_CONTEXT
from seal_ray.exams.logs import write_log
from seal_ray.exams.report import ExamRow, exam_rows, exam_table, write
from seal_ray.exams.sitting import Answer, AnswerLog, ExamProgress, ExamRun, ModelUnderTest, choose_items
from seal_ray.exams.tau2.inspecting import VARIABLE
from seal_ray.exams.tau2.playing import TURNS
from seal_ray.exams.tau2.suites import SUITES
from seal_ray.run.checkpoints import model_of, name_of

Answers = dict[tuple[str, str], dict[str, Answer]]
"""(model or base, suite) → item → answer."""


def command(
    model: Annotated[str, typer.Argument(help="A model by name, a model folder, or a run of seal-ray train.")],
    suite: Annotated[
        list[str],
        typer.Option(
            help=f"{', '.join((*EXAMS.built_in, *SUITES))}, an installed one, or package.module:Name; several times."
        ),
    ],
    data: Annotated[str | None, typer.Option(help="The folder of a benchmark, for suites that need one.")] = None,
    embeddings: Annotated[
        str | None, typer.Option(help="A model that makes vectors of texts, for suites that search by meaning.")
    ] = None,
    base: Annotated[
        str | None, typer.Option(help="Another model to ask the same items, for instance the base.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Items of a suite at most, the categories in turn.", min=1)] = None,
    category: Annotated[list[str] | None, typer.Option(help="Only this category; can be given several times.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the answers.")] = 0,
    temperature: Annotated[float, typer.Option(help="0 is greedy.", min=0.0)] = 0.0,
    top_p: Annotated[float, typer.Option(help="Nucleus of the sampling.")] = 1.0,
    context: Annotated[int | None, typer.Option(help="Tokens of a conversation in all.", min=1)] = None,
    response: Annotated[int, typer.Option(help="Tokens of one answer at most.", min=1)] = 1024,
    dialect: Annotated[str | None, typer.Option(help="How the models call: qwen, llama3_json or toolace.")] = None,
    engine: Annotated[str | None, typer.Option(help="vllm or transformers.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")] = None,
    concurrent: Annotated[int, typer.Option(help="Items at a time.", min=1)] = 64,
    out: Annotated[Path | None, typer.Option(help="Folder of answers and tables.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw away the answers that the folder holds.")] = False,
    user_model: Annotated[
        str | None,
        typer.Option(help="Who plays the user in tau2 suites: a model of Inspect's (openai/gpt-4.1) or one of ours."),
    ] = None,
    turns: Annotated[int, typer.Option(help="Times that the user speaks in a tau2 dialogue at most.", min=1)] = TURNS,
    server: Annotated[
        str | None, typer.Option(help="Address (…/v1) that serves the model for tau2 suites; else one is started.")
    ] = None,
    inspect: Annotated[
        str | None,
        typer.Option(envvar=VARIABLE, help="Python that has inspect-evals, for tau2 suites; make inspect makes one."),
    ] = None,
    _trust: Trust = False,
) -> None:
    """Let a model sit exams that it was not trained for. Stopped or killed, the same command goes on where it was."""
    check_known("engine", KINDS, engine)
    check_known("dtype", DTYPES, dtype)
    suite = list(dict.fromkeys(suite))
    check_known("suite", [*EXAMS.names(), *SUITES], *(each for each in suite if ":" not in each))
    check_sampling(temperature, top_p)
    if out is not None:
        check_no_file(out)
    named = {"model": model} if base is None else {"model": model, "base": base}
    sitters = {
        who: _sitter(name, dialect, context, response, engine, dtype, seed, temperature, top_p, concurrent)
        for who, name in named.items()
    }
    names = {who: name_of(name, sitters[who].model) for who, name in named.items()}
    played = [each for each in suite if each in SUITES]
    how = None
    if played:
        check_playable(sitters["model"], engine=engine, server=server, base=base)
        how = how_to_play(
            user_model, inspect=inspect, limit=limit, categories=category or (), turns=turns, at=concurrent
        )
    console = make_console()
    with ExitStack() as held:
        known = {"data": data, "embeddings": None if embeddings is None else Embedder(embeddings)}
        exams: dict[str, Exam] = {}
        for each in suite:
            if each not in played:
                exams[each] = EXAMS.make(each, known)
                held.callback(exams[each].close)
        if len({exam.name for exam in exams.values()}) < len(exams):
            raise UserError("suite: two of them have the same name, and one folder for their answers; give one a name.")
        chosen = {each: _chosen(exam, limit, category or ()) for each, exam in exams.items()}
        out = out or Path("runs") / "exams" / names["model"]
        given = {"data": data, "embeddings": embeddings}
        sheets = {
            (who, each): AnswerLog(
                out / who / exam.name, {**_of_suite(each, exam, given), **sitters[who].settings()}, fresh=fresh
            )
            for who in named
            for each, exam in exams.items()
        }
        answers: Answers = {}
        with progress(console) as update:

            def keep(who: str, suite: str, found: ExamProgress) -> None:
                answers[who, suite] = found.answers
                _tell(console, names[who], found)

            if how is not None:
                of_played = {
                    (who, each): AnswerLog(out / who / each, settings_of(each, sitters[who], how, server), fresh=fresh)
                    for who in named
                    for each in played
                }
                parties = {who: party_of(names[who], sitters[who], server, dtype) for who in named}
                play_all(parties, how, of_played, out, update, keep)
            for who, sitter in sitters.items():
                here = {each: sheets[who, each] for each in exams}
                done = asyncio.run(_sit(names[who], sitter, exams, chosen, here, update))
                for each, found in done.items():
                    keep(who, each, found)
            for who, each in answers:
                if each in exams:
                    items = [item.id for item in chosen[each]]
                    write_log(sheets[who, each], exams[each].name, names[who], items)
        rows = [row for each in suite for row in _rows(each, exams, chosen, answers)]
        notes = [f"{exam.name}: {note}" for exam in exams.values() for note in exam.notes()]
        notes += [f"{each}: {how.note}" for each in played if how is not None]
    title = f"{names['model']}" + (f" beside {names['base']}" if base else "")
    console.print(exam_table(rows, title))
    for note in notes:
        console.print(note, soft_wrap=True, markup=False)
    settings = {who: sitter.settings() for who, sitter in sitters.items()}
    of_model = {exams[each].name if each in exams else each: list(answers["model", each].values()) for each in suite}
    write(out, rows, model=names["model"], base=names.get("base"), notes=notes, settings=settings, answers=of_model)
    console.print(f"tables in {out / 'exam.md'} and exam.json, answers below {out}", soft_wrap=True, markup=False)


def _of_suite(name: str, exam: Exam, given: Mapping[str, str | None]) -> dict[str, Any]:
    """What the answers depend on beside the model.

    The suite, the folders or names that it was given and takes, and what it has to say of the services and packages
    that answer.
    """
    settings = getattr(EXAMS.find(name), "Settings", None)
    takes = {} if settings is None else settings.model_fields
    notes = {"notes": list(found)} if (found := exam.notes()) else {}
    return {"suite": name, **notes} | {
        key: str(Path(value).resolve()) if Path(value).exists() else value
        for key, value in given.items()
        if key in takes and value is not None
    }


def _sitter(
    name: str,
    dialect: str | None,
    context: int | None,
    response: int,
    engine: str | None,
    dtype: str | None,
    seed: int,
    temperature: float,
    top_p: float,
    concurrent: int,
) -> ModelUnderTest:
    opened = open_model(model_of(name), dialect=dialect)
    room = min(opened.context, MAX_CONTEXT) if context is None else context
    if room > opened.context:
        raise UserError(f"context: {room} is more than the {opened.context} tokens of {opened.name}.")
    return ModelUnderTest(
        opened,
        ChatFormat.load(opened.path, opened.dialect),
        Budgets(prompt=room, response=min(response, room), context=room),
        engine or default_kind(),
        choose_dtype(dtype),
        seed,
        temperature,
        top_p,
        concurrent,
    )


def _chosen(exam: Exam, limit: int | None, categories: Sequence[str]) -> list[Item]:
    items = exam.items()
    known = list(dict.fromkeys(item.category for item in items if item.counts))
    check_known("category", known, *categories)
    return choose_items(items, limit=limit, categories=categories)


async def _sit(
    name: str,
    sitter: ModelUnderTest,
    exams: dict[str, Exam],
    chosen: dict[str, list[Item]],
    sheets: dict[str, AnswerLog],
    update: Update,
) -> dict[str, ExamProgress]:
    """All suites with one model, one after the other, on one engine; none is started where all is answered."""

    def show(at: ExamProgress) -> None:
        right = sum(each.right for each in at.answers.values())
        update(f"{name}: {at.suite}", len(at.answers), at.total, f"{right} right, {at.tokens:,} tokens")

    found: dict[str, ExamProgress] = {}
    engine = None
    try:
        for each, exam in exams.items():
            sheets[each].open()
            stored = sheets[each].answers()
            if all(item.id in stored for item in chosen[each]):
                answers = {item.id: stored[item.id] for item in chosen[each]}
                found[each] = ExamProgress(exam.name, len(answers), answers, resumed=len(answers))
                continue
            if engine is None:
                update(f"{name}: starting the engine", 0, 1, "")
                engine = await start_engine(
                    sitter.engine,
                    sitter.model,
                    context=sitter.budgets.context,
                    dtype=sitter.dtype,
                    concurrent=min(sitter.concurrent, max(map(len, chosen.values()))),
                )
            found[each] = await ExamRun(exam, chosen[each], sitter, engine, sheets[each], show).finish()
    finally:
        if engine is not None:
            await engine.close()
    return found


def _rows(
    each: str, exams: Mapping[str, Exam], chosen: Mapping[str, Sequence[Item]], answers: Answers
) -> list[ExamRow]:
    model = answers["model", each]
    items = [item.id for item in chosen[each]] if each in chosen else list(model)
    name = exams[each].name if each in exams else each
    return exam_rows(name, [model[item] for item in items], answers.get(("base", each)))


def _tell(console: Console, name: str, done: ExamProgress) -> None:
    said = f"{name}: {done.suite}: {len(done.answers)} items"
    if done.resumed:
        said += f", {done.resumed} were already there"
    if done.restarts:
        said += f"; the engine died and was restarted {done.restarts} times"
    if done.tokens:
        said += f"; {done.tokens:,} tokens sampled in {done.seconds:.1f} s"
    console.print(said, soft_wrap=True, markup=False)
