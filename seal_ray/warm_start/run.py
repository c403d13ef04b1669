"""Runs a warm start: steps of learning, with measurements on held-out dialogues; it can be stopped at any time."""

import asyncio
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from envs.dialogue import Protocol
from envs.received import read_json_object
from envs.roles import SOLVER
from envs.sources import get_source
from envs.text_space import UnicodeText
from policies.engine.choice import choose_dtype, choose_kind
from policies.models import ModelFolder, open_model
from policies.prompting import ChatFormat
from policies.solver import Budgets
from seal_ray.algorithm.checks import check_run
from seal_ray.algorithm.config import SealConfig
from seal_ray.evaluation.records import evaluate, groups, open_folder
from seal_ray.evaluation.resumable_log import claim_folder
from seal_ray.evaluation.suites import EvaluationPlan, check_plan, choose_tasks
from seal_ray.grpo.rows import Minibatch
from seal_ray.report.files import JsonLines, replace_folder, settle_folder
from seal_ray.report.pictures import BLUE, DPI, GREEN, GREY, ORANGE, PINK, RED, as_share, save_picture
from seal_ray.run.checkpoints import ADAPTER, MODEL
from seal_ray.run.cluster import connected
from seal_ray.training.learner_group import SealLearnerGroup
from seal_ray.warm_start.plan import WarmStart
from seal_ray.warm_start.rows import batches, held_out_rows

_CARD = """\
# {name}, warm-started

{name}, taught by supervised learning on {tokens:,} tokens of demonstrations ({kind}) of the training tasks of
{sources}; no task of a dev or test part was shown. Settings are in `warm_start/plan.json`, what was measured on the way
in `warm_start/metrics.jsonl`. The licence is that of {name}.
{base}"""


def card(plan: WarmStart, model: ModelFolder, tokens: int) -> str:
    """The text of the card of a model that saw so many tokens, followed by the card of the initial model."""
    sources = ", ".join(f"{each.name} ({100 * each.share:.0f} %)" for each in plan.sources)
    readme = model.path / "README.md"
    base = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    return _CARD.format(
        name=model.name,
        tokens=tokens,
        kind=plan.demonstrations,
        sources=sources,
        base=f"\n## The model that it starts from\n\n{base}" if base else "",
    )


_COLOURS = (GREEN, ORANGE, PINK, BLUE)


def draw(rows: Sequence[Mapping[str, Any]], path: Path, *, title: str) -> None:
    """Draws the metrics of a warm start to a PNG file."""
    figure = Figure(figsize=(10.0, 4.0), dpi=DPI, layout="constrained")
    figure.suptitle(f"warm start of {title}", parse_math=False)
    loss, success = figure.subplots(1, 2)
    _line(loss, rows, "loss", GREY, "training")
    _line(loss, rows, "held_out_loss", RED, "held out")
    loss.set_ylabel("loss on what the model says (nats a token)")
    loss.set_ylim(bottom=0)
    names = sorted({name for row in rows for name in totals(row)})
    for place, name in enumerate(names):
        _line(success, rows, name, _COLOURS[place % len(_COLOURS)], f"{name.removeprefix('success/')}, dev")
    as_share(success, "success, greedy, plain")
    for axes in (loss, success):
        axes.set_xlabel("tokens")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False)
    save_picture(figure, path)


def totals(row: Mapping[str, Any]) -> list[str]:
    """The names of a row's metrics of success on a whole source."""
    return [name for name in row if name.startswith("success/") and name.count("/") == 1]


def _line(axes: Axes, rows: Sequence[Mapping[str, Any]], name: str, colour: str, label: str) -> None:
    points = [(row["tokens"], row[name]) for row in rows if row.get(name) is not None]
    if points:
        x, y = zip(*points, strict=True)
        axes.plot(x, y, color=colour, label=label, marker="o" if len(points) < 30 else None, markersize=3)


WORK = "warm_start"
"""Folder in the model's: plan, metrics, plot, and until the end the learner's state."""
PLAN, METRICS, PICTURE = "plan.json", "metrics.jsonl", "curves.png"
_STATE, _PLACE = "state", "place.json"
_SAVE_EVERY = 25
"""Steps between two saved states."""

Report = Callable[[str, int, int, str], None]
"""Called with the stage, the numbers of done and of all, and further information."""


def warm_start(plan: WarmStart, out: Path, report: Report) -> Path:
    """Runs the rest of the plan, and writes the model to the folder `out`, which it returns.

    An interrupted warm start resumes from its last state and reaches the same weights. Raises `UserError`.
    """
    config = plan.config()
    spec = config.spec
    model = check_run(spec)
    claim_folder(out, f"{WORK}/{PLAN}", plan.as_json(), "--out")
    if not (out / "config.json").is_file():  # it is written last
        several = bool(spec.learners.num_learners)
        with connected() if several else nullcontext(), _learners(config) as learners:
            _Run(plan, config, model, out, learners, report).learn()
    return out


class _Run:
    def __init__(
        self,
        plan: WarmStart,
        config: SealConfig,
        model: ModelFolder,
        out: Path,
        learners: SealLearnerGroup,
        report: Report,
    ) -> None:
        self._plan, self._model, self._learners, self._report = plan, model, learners, report
        self._solver, self._engine = config.spec.solver, config.spec.engine
        self._out, self._work = out, out / WORK
        self._metrics = JsonLines(self._work / METRICS)
        self._form = ChatFormat.load(model.path, model.dialect)
        self._context = min(self._solver.context, model.context)
        self._held_out = held_out_rows(plan, self._form, context=self._context)

    def learn(self) -> None:
        done, number, tokens = self._restore()
        if not done:
            self._log(self._measured(0, 0))
        drawn = batches(self._plan, self._form, context=self._context, begin=number)
        for step in range(done + 1, self._plan.steps + 1):
            started = time.perf_counter()
            batch = next(drawn)
            learnt = self._learners.learn(SOLVER, [Minibatch.of([batch.rows])])
            tokens += batch.tokens
            row = {
                "step": step,
                "tokens": tokens,
                "loss": learnt["loss"],
                "learning_rate": learnt["learning_rate"],
                "seconds": round(time.perf_counter() - started, 3),
            }
            evaluated = step == self._plan.steps or step % self._plan.evaluate_every == 0
            if evaluated:
                row |= self._measured(step, tokens)
            # Before the state, so that a resumed warm start has the row of its step.
            self._log(row)
            if evaluated or step % _SAVE_EVERY == 0:
                self._save_state(step, batch.next, tokens)
            self._report("learning, steps", step, self._plan.steps, _summary(row))
        self._export(self._out, tokens)
        for name in (_STATE, MODEL):
            shutil.rmtree(self._work / name, ignore_errors=True)

    def _restore(self) -> tuple[int, int, int]:
        """Done steps, the next demonstration, and tokens, of the last state. Metrics of later steps are dropped."""
        state = self._work / _STATE
        settle_folder(state)
        place = {"step": 0, "number": 0, "tokens": 0}
        if (state / _PLACE).is_file():
            place = read_json_object(state / _PLACE)
            self._learners.restore_from_path(str((state / "learners").resolve()))
        kept = [row for row in self._metrics.rows() if int(row["step"]) <= place["step"]]
        self._metrics.replace(kept if place["step"] else [])
        return place["step"], place["number"], place["tokens"]

    def _save_state(self, step: int, number: int, tokens: int) -> None:
        """Writes the state; a kill leaves the previous one."""
        part, whole = (self._work / name for name in (f"{_STATE}.part", _STATE))
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        self._learners.save_to_path(str((part / "learners").resolve()))
        place = json.dumps({"step": step, "number": number, "tokens": tokens})
        (part / _PLACE).write_text(place, encoding="utf-8")
        replace_folder(whole, part)

    def _measured(self, step: int, tokens: int) -> dict[str, Any]:
        """The loss on held-out demonstrations, and success on each source's dev split, greedy and plain."""
        row: dict[str, Any] = {"step": step, "tokens": tokens}
        if self._held_out:
            row["held_out_loss"] = self._learners.loss_of(SOLVER, self._held_out)
        if self._plan.tasks:
            folder = self._work / MODEL
            shutil.rmtree(folder, ignore_errors=True)
            self._export(folder, tokens)
            for source in self._plan.sources:
                if "dev" in source.tasks.parts:
                    row |= self._success(folder, source.name, step)
        return row

    def _success(self, folder: Path, source: str, step: int) -> dict[str, float]:
        tasks = get_source(source)
        model = open_model(str(folder), dialect=self._model.dialect.name)
        room = min(self._context, tasks.context or self._context)
        difficulty = self._plan.difficulties[0] if tasks.takes_difficulty else None
        plan = EvaluationPlan(
            model=model,
            environment=source,
            split="dev",
            tasks=choose_tasks(source, "dev", limit=self._plan.tasks, difficulty=difficulty),
            budgets=Budgets(prompt=room, response=min(self._solver.response, room), context=room),
            engine=choose_kind(self._engine.kind),
            dtype=choose_dtype(self._engine.dtype),
            concurrent=self._engine.concurrent,
            threads=self._engine.threads,
            gpu_memory_share=self._engine.gpu_memory_share,
            protocol=Protocol(tasks.protocol),
        )
        out = self._work / "evaluations" / f"{step:06d}-{source.replace(':', '.')}"
        records = open_folder(plan, out, fresh=True)
        played = asyncio.run(
            evaluate(
                plan,
                check_plan(plan),
                records,
                report=lambda done: self._report(f"{source} dev, dialogues", len(done.records), done.total, ""),
            )
        )
        *by_category, whole = groups(played.records, tasks.categories)
        return {f"success/{source}": whole.success.share} | {
            f"success/{source}/{group.name}": group.success.share for group in by_category
        }

    def _export(self, out: Path, tokens: int) -> None:
        """Writes the model; with LoRA its merged weights, and the adapter too."""
        part = self._work / "export.part"
        shutil.rmtree(part, ignore_errors=True)
        self._learners.export(SOLVER, self._model, part, dtype="bfloat16", adapter=part / ADAPTER)
        (part / "README.md").write_text(card(self._plan, self._model, tokens), encoding="utf-8")
        out.mkdir(parents=True, exist_ok=True)
        # config.json marks the model as complete.
        for path in sorted(part.iterdir(), key=lambda each: each.name == "config.json"):
            target = out / path.name
            if target.is_dir():
                shutil.rmtree(target)
            path.replace(target)
        part.rmdir()

    def _log(self, row: Mapping[str, Any]) -> None:
        self._metrics.append(row)
        if "held_out_loss" in row or totals(row):
            draw(self._metrics.rows(), self._work / PICTURE, title=self._model.name)


@contextmanager
def _learners(config: SealConfig) -> Iterator[SealLearnerGroup]:
    logging.getLogger("ray").setLevel(logging.ERROR)  # as `ray.init` does in a run
    texts: Any = (UnicodeText(), UnicodeText())
    spaces = {"__env__": texts, "__env_single__": texts, SOLVER: texts}
    group: Any = config.build_learner_group(rl_module_spec=config.get_multi_rl_module_spec(spaces=spaces))
    try:
        yield group
    finally:
        group.shutdown()


def _summary(row: Mapping[str, Any]) -> str:
    parts = [f"loss {row['loss']:.3f}"]
    if "held_out_loss" in row:
        parts.append(f"held out {row['held_out_loss']:.3f}")
    parts += [f"{name.removeprefix('success/')} {100 * row[name]:.0f} %" for name in totals(row)]
    return ", ".join(parts)
