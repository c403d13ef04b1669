"""`seal-ray evaluate`: a model on a split, always on the plain interface, with tables, files and official results."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from envs.dialogue import Protocol
from envs.errors import UserError, check_known
from envs.folders import check_no_file
from envs.sources import BENCHMARK, GENERATED, OfficialResults, TaskSource, get_source
from policies import tiny
from policies.engine.choice import DTYPES, KINDS, choose_dtype, default_kind
from policies.models import ModelFolder, open_model
from policies.solver import Budgets
from seal_ray.cli.console import make_console
from seal_ray.cli.options import Env, Trust, check_sampling, progress
from seal_ray.evaluation.plan import MAX_CONTEXT, EvaluationPlan, check_plan, choose_tasks
from seal_ray.evaluation.records import (
    EvaluationProgress,
    claim_folder,
    evaluate,
    groups,
    label_table,
    open_folder,
    success_table,
    write_summary,
)
from seal_ray.report.files import RunFolder
from seal_ray.run.checkpoints import model_of, name_of, run_of


def command(
    model: Annotated[
        str, typer.Option(help="A model by name, a model folder, or a run of seal-ray train.")
    ] = tiny.NAME,
    env: Env = GENERATED,
    split: Annotated[str, typer.Option(help="train, dev or test.")] = "dev",
    limit: Annotated[int | None, typer.Option(help="Tasks at most, the categories in turn.", min=1)] = None,
    category: Annotated[list[str] | None, typer.Option(help="Only this category; can be given several times.")] = None,
    difficulty: Annotated[
        str | None,
        typer.Option(help="Difficulty of generated tasks, a code or long; else the run's, or the default one."),
    ] = None,
    split_scheme: Annotated[
        str | None,
        typer.Option(help="How the source divides tasks into splits; the default is the run's, or the source's."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Dialogues of each task, for sampling.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the evaluation.")] = 0,
    temperature: Annotated[float, typer.Option(help="0 is greedy.", min=0.0)] = 0.0,
    top_p: Annotated[float, typer.Option(help="Nucleus of the sampling.")] = 1.0,
    context: Annotated[int | None, typer.Option(help="Tokens of a dialogue in all.", min=1)] = None,
    response: Annotated[int, typer.Option(help="Tokens of one completion at most.", min=1)] = 4096,
    dialect: Annotated[str | None, typer.Option(help="How the model calls: qwen, llama3_json or toolace.")] = None,
    engine: Annotated[str | None, typer.Option(help="vllm or transformers.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")] = None,
    concurrent: Annotated[int, typer.Option(help="Dialogues at a time.", min=1)] = 64,
    threads: Annotated[int | None, typer.Option(help="CPU threads of the engine.", min=1)] = None,
    gpu_memory_share: Annotated[
        float, typer.Option(help="Share of a GPU's memory that the engine takes at most, and that must be free.")
    ] = 0.9,
    out: Annotated[Path | None, typer.Option(help="Folder of the results.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw away what the folder holds.")] = False,
    official_results: Annotated[
        Path | None, typer.Option(help="Folder for result files that the benchmark's own grader reads.")
    ] = None,
    _trust: Trust = False,
) -> None:
    """Evaluate a model on the plain benchmark. Stopped with Ctrl-C, the same command goes on where it was."""
    source = get_source(env, key="env")
    grader = source if isinstance(source, OfficialResults) else None
    results = official_results
    if results is not None and (grader is None or seeds > 1):
        raise UserError(
            "--official-results: the files hold tasks of a benchmark that has a grader, once each; give "
            f"--env {BENCHMARK} and --seeds 1."
        )
    for option, folder in (("--out", out), ("--official-results", results)):
        if folder is not None:
            check_no_file(folder, option)
    check_sampling(temperature, top_p)
    if not 0 < gpu_memory_share <= 1:
        raise UserError(f"--gpu-memory-share: {gpu_memory_share} is not possible; it must be above 0 and at most 1.")
    check_known("engine", KINDS, engine)
    check_known("dtype", DTYPES, dtype)
    opened = open_model(model_of(model), dialect=dialect)
    name = name_of(model, opened)
    trained = _environment_of(model)
    if split_scheme is not None and source.endless:
        raise UserError(f"--split-scheme: {source.name} has none; leave it out.")
    if split_scheme is None and not source.endless and _is_source(trained, source):
        split_scheme = trained.get("split_scheme")
    plan = EvaluationPlan(
        model=opened,
        environment=env,
        split=split,
        tasks=choose_tasks(
            *(env, split),
            limit=limit,
            categories=category or (),
            difficulty=difficulty or (trained.get("difficulty") if source.takes_difficulty else None),
            division=split_scheme,
        ),
        division=split_scheme,
        budgets=_budgets(opened, context or source.context, response),
        engine=engine or default_kind(),
        dtype=choose_dtype(dtype),
        seeds=seeds,
        seed=seed,
        temperature=temperature,
        top_p=top_p,
        concurrent=concurrent,
        threads=threads,
        gpu_memory_share=gpu_memory_share,
        protocol=Protocol(source.protocol),
    )
    if results is not None and grader is not None and not all(grader.grades(task.id) for task in plan.tasks):
        raise UserError(
            f"--official-results: the benchmark's grader does not know the tasks of {env}, {split}; give another --env "
            "or --split."
        )
    form = check_plan(plan)
    out = out or Path("runs") / "evaluations" / f"{name}-{source.name}-{split}"
    if results is not None:
        claim_folder(plan, results, "--official-results", fresh=fresh)
    records = open_folder(plan, out, fresh=fresh)
    console = make_console(markup=False)
    with progress(console) as update:

        def show(at: EvaluationProgress) -> None:
            done = len(at.records)
            playing = done > at.resumed or done == at.total
            more = f"success {at.success:.1%}, {at.tokens_per_second:,.0f} tokens/s" if playing else ""
            update("dialogues" if playing else "starting the engine", done, at.total, more)

        done = asyncio.run(evaluate(plan, form, records, report=show))
    counted = groups(done.records, source.categories)
    part = split if split_scheme is None else f"{split} ({split_scheme})"
    title = f"{name} on {source.name} {part}, plain interface, {plan.protocol} protocol"
    console.print(success_table(counted, title))
    console.print(label_table(counted))
    write_summary(plan, done, out)
    _print_ends(console, done, out)
    if results is not None and grader is not None:
        command = grader.write_results(results, done.records, opened.dialect.name)
        console.print(f"official grading: {command}", soft_wrap=True)


def _budgets(model: ModelFolder, context: int | None, response: int) -> Budgets:
    room = min(model.context, MAX_CONTEXT) if context is None else context
    return Budgets(prompt=room, response=min(response, room), context=room)


def _environment_of(model: str) -> Mapping[str, str]:
    """What a run, or a checkpoint's run, says of its tasks: its evaluations play the same. Empty for other models."""
    run = run_of(Path(model))
    if not (run / "checkpoints").is_dir():
        return {}
    environment = RunFolder(run).read_config().get("environment") or {}
    return {key: value for key, value in environment.items() if isinstance(value, str)}


def _is_source(trained: Mapping[str, str], source: TaskSource) -> bool:
    """Whether this source was trained on: another scheme's splits may hold training tasks."""
    try:
        return bool(trained) and get_source(trained.get("source", GENERATED)) is source
    except UserError:  # one's own, which cannot be imported here
        return False


def _print_ends(console: Console, done: EvaluationProgress, out: Path) -> None:
    cut = len([record for record in done.records if record.end != "finished"])
    if cut:
        console.print(f"{cut} of {len(done.records)} dialogues were cut off by a token budget (not_reached)")
    if done.resumed:
        console.print(f"{done.resumed} dialogues were already there")
    if done.restarts:
        console.print(f"the engine died and was restarted {done.restarts} times; its dialogues were played again")
    console.print(
        f"{done.tokens} tokens sampled in {done.seconds:.1f} s ({done.tokens_per_second:,.0f} tokens/s); "
        f"dialogues and summary in {out}",
        soft_wrap=True,
    )
