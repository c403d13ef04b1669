"""`seal-ray evaluate`: a model on a split, always on the plain interface, with tables, files and official results."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from envs.dialogue import Protocol
from envs.errors import UserError
from envs.folders import check_no_file
from envs.sources import BENCHMARK, GENERATED, OfficialResults, TaskSource, get_source
from policies import tiny
from policies.engine.choice import choose_dtype, default_kind
from policies.models import open_model
from seal_ray.cli import options as opt
from seal_ray.cli.console import make_console, print_line
from seal_ray.cli.options import check_engine, check_sampling, progress
from seal_ray.evaluation.records import (
    EvaluationProgress,
    evaluate,
    groups,
    label_table,
    open_folder,
    success_interval,
    success_table,
    write_evaluation_log,
    write_summary,
)
from seal_ray.evaluation.resumable_log import SETTINGS, claim_folder
from seal_ray.evaluation.suites import EvaluationPlan, budgets_for, check_plan, choose_tasks
from seal_ray.report.files import RunFolder
from seal_ray.run.checkpoints import model_of, name_of, run_of

Difficulty = Annotated[str | None, typer.Option(help="Difficulty of generated tasks, a code; by default the run's.")]
SplitScheme = Annotated[
    str | None, typer.Option(help="How the source divides tasks into splits; by default as the run does.")
]
Share = Annotated[float, typer.Option(help="Largest share of a GPU's memory for the engine, which must be free.")]
Official = Annotated[Path | None, typer.Option(help="Folder for result files of the benchmark's own grader.")]


def command(
    model: opt.Model = tiny.NAME,
    env: opt.Env = GENERATED,
    split: Annotated[str, typer.Option(help="train, dev or test.")] = "dev",
    limit: Annotated[int | None, typer.Option(help="Largest number of tasks, the categories in turn.", min=1)] = None,
    category: opt.Category = None,
    difficulty: Difficulty = None,
    split_scheme: SplitScheme = None,
    seeds: Annotated[int, typer.Option(help="Dialogues of each task, for sampling.", min=1)] = 1,
    seed: opt.Seed = 0,
    temperature: opt.Temperature = 0.0,
    top_p: opt.TopP = 1.0,
    context: opt.Context = None,
    response: opt.Response = 4096,
    dialect: opt.Dialect = None,
    engine: opt.EngineKind = None,
    dtype: opt.Dtype = None,
    concurrent: opt.Concurrent = 64,
    threads: Annotated[int | None, typer.Option(help="CPU threads of the engine.", min=1)] = None,
    gpu_memory_share: Share = 0.9,
    out: Annotated[Path | None, typer.Option(help="Folder of the results.")] = None,
    fresh: opt.Fresh = False,
    official_results: Official = None,
    _trust: opt.Trust = False,
) -> None:
    """Evaluate a model on the plain benchmark. After Ctrl-C, the same command resumes."""
    check_sampling(temperature, top_p)
    check_engine(engine, dtype)
    source = get_source(env, key="env")
    _check_output(source, out, official_results, seeds=seeds, share=gpu_memory_share)
    opened = open_model(model_of(model), dialect=dialect)
    scheme, difficulty = _task_options(model, source, split_scheme, difficulty)
    plan = EvaluationPlan(
        model=opened,
        environment=env,
        split=split,
        tasks=choose_tasks(
            env, split, limit=limit, categories=category or (), difficulty=difficulty, split_scheme=scheme
        ),
        split_scheme=scheme,
        budgets=budgets_for(opened, context or source.context, response),
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
    _evaluate(plan, source, name_of(model, opened), out, official_results, fresh=fresh)


def _check_output(source: TaskSource, out: Path | None, results: Path | None, *, seeds: int, share: float) -> None:
    """Raises `UserError` for folders that are files, and official results that cannot be."""
    if results is not None and (not isinstance(source, OfficialResults) or seeds > 1):
        raise UserError(
            "--official-results: the files have tasks of a benchmark with a grader, once each; give "
            f"--env {BENCHMARK} and --seeds 1."
        )
    for option, folder in (("--out", out), ("--official-results", results)):
        if folder is not None:
            check_no_file(folder, option)
    if not 0 < share <= 1:
        raise UserError(f"--gpu-memory-share: {share} is not possible; it must be above 0 and at most 1.")


def _task_options(
    model: str, source: TaskSource, scheme: str | None, difficulty: str | None
) -> tuple[str | None, str | None]:
    """Split scheme and difficulty; by default the training run's, if it has the same source."""
    if scheme is not None and source.endless:
        raise UserError(f"--split-scheme: {source.name} has none; leave it out.")
    trained = environment_of_run(model)
    if scheme is None and not source.endless and trained_on_source(trained, source):
        scheme = trained.get("split_scheme")
    return scheme, difficulty or (trained.get("difficulty") if source.takes_difficulty else None)


def _evaluate(
    plan: EvaluationPlan, source: TaskSource, name: str, out: Path | None, results: Path | None, *, fresh: bool
) -> None:
    grader = source if isinstance(source, OfficialResults) else None
    if results is not None and grader is not None and not all(grader.grades(task.id) for task in plan.tasks):
        raise UserError(
            f"--official-results: the benchmark's grader lacks tasks of {plan.environment}, {plan.split}; give another "
            "--env or --split."
        )
    form = check_plan(plan)
    out = out or Path("runs") / "evaluations" / f"{name}-{source.name}-{plan.split}"
    if results is not None:
        claim_folder(results, SETTINGS, json.dumps(plan.settings(), indent=1), "--official-results", fresh=fresh)
    records = open_folder(plan, out, fresh=fresh)
    console = make_console()
    with progress(console) as update:

        def show(state: EvaluationProgress) -> None:
            finished = len(state.records)
            playing = finished > state.resumed or finished == state.total
            if not playing:
                update("starting the engine", finished, state.total, "")
                return
            success = success_interval(state.records)
            details = f"success {success.share:.1%}, {state.tokens_per_second:,.0f} tokens/s"
            update("dialogues", finished, state.total, details, success)

        done = asyncio.run(evaluate(plan, form, records, report=show))
    by_category = groups(done.records, source.categories)
    split = plan.split if plan.split_scheme is None else f"{plan.split} ({plan.split_scheme})"
    title = f"{name} on {source.name} {split}, plain interface, {plan.protocol} protocol"
    console.print(success_table(by_category, title))
    console.print(label_table(by_category))
    write_summary(plan, done, out)
    write_evaluation_log(plan, records, out, model=name)
    _print_end(console, done, out)
    if results is not None and grader is not None:
        grading = grader.write_results(results, done.records, plan.model.dialect.name)
        print_line(console, f"official grading: {grading}")


def environment_of_run(model: str) -> Mapping[str, str]:
    """The environment settings of a run, or a checkpoint's run; empty for other models."""
    run = run_of(Path(model))
    if not (run / "checkpoints").is_dir():
        return {}
    environment = RunFolder(run).read_config().get("environment") or {}
    return {key: value for key, value in environment.items() if isinstance(value, str)}


def trained_on_source(trained: Mapping[str, str], source: TaskSource) -> bool:
    """Whether a run trained on this source; another split scheme may have training tasks in its splits."""
    try:
        return bool(trained) and get_source(trained.get("source", GENERATED)) is source
    except UserError:  # a custom source that cannot be imported here
        return False


def _print_end(console: Console, done: EvaluationProgress, out: Path) -> None:
    cut = sum(record.end != "finished" for record in done.records)
    lines = {
        f"{cut} of {len(done.records)} dialogues were cut off by a token budget (not_reached)": cut,
        f"{done.resumed} dialogues were already there": done.resumed,
        f"the engine died and was restarted {done.restarts} times; its dialogues were played again": done.restarts,
        f"{done.tokens} tokens sampled in {done.seconds:.1f} s ({done.tokens_per_second:,.0f} tokens/s); "
        f"dialogues and summary in {out}": True,
    }
    for line, applies in lines.items():
        if applies:
            print_line(console, line)
