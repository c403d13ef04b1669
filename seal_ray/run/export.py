"""Releasing a trained solver: the model folder or the PEFT adapter of a checkpoint, with a card."""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envs.errors import UserError
from envs.received import check_no_links
from envs.sources import TaskSource, get_source
from envs.task import JSON
from policies.engine.adapters import CONFIG_FILE
from policies.models import public_name, read_json
from policies.models.writing import copy_files
from seal_ray.metrics import categories_of
from seal_ray.report.files import RunFolder, note_on_runs
from seal_ray.run import checkpoints

_CARD = "README.md"
_WEIGHTS = (".safetensors", ".safetensors.index.json")
_ONLY_MODELS = {"config.json", "generation_config.json"}
_SHOWN = {
    "solver": ("lora_rank", "lora_alpha", "prompt", "response", "context", "temperature"),
    "engine": ("dtype",),
    "training": ("groups", "group_size", "lr", "schedule", "adam_epsilon", "kl", "clip_low", "clip_high", "epochs"),
    "reweighting": ("mode", "rho"),
    "curator": ("kind", "plain_share"),
    "environment": ("difficulty", "reward", "protocol"),
}
"""Section → settings in the card."""
_UNSAFE = re.compile(r"[^\w./ -]")
"""Characters that names of models do not have; the card has the name in code."""
_SUCCESS = "evaluation/success"
_TURNS = "evaluation/turns_done"


def release(path: Path, out: Path, *, merge: bool = False) -> tuple[int, bool]:
    """Writes the solver of a run, or of one of its checkpoints, to a new folder, atomically.

    Returns its number of rounds, and whether it is an adapter.

    A run that trained a LoRA adapter gives the adapter, or with `merge` the model with it added. Tensors are exact
    copies. Raises `UserError` if there is no checkpoint, or the folder cannot be written.
    """
    run, checkpoint = _find(path)
    check_no_links(checkpoint)
    if out.exists() or out.is_symlink():
        raise UserError(f"--out: {out} exists; give a new folder.")
    folder = RunFolder(run)
    config = folder.read_config()
    number = checkpoints.round_of(checkpoint)
    rows = [row for row in folder.metrics.rows() if row.get("round", 0) <= number]
    as_adapter = bool(config.get("solver", {}).get("lora_rank")) and not merge
    adapter = checkpoint / checkpoints.ADAPTER
    if as_adapter and not adapter.is_dir():
        raise UserError(f"{checkpoint} has no adapter; give --merge for the whole model.")
    base = str(read_json(adapter / CONFIG_FILE).get("base_model_name_or_path", "")) if adapter.is_dir() else None
    card = model_card(config, rows, name=out.resolve().name, rounds=number, adapter=as_adapter, base=base)
    part = out.with_name(f"{out.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        model = checkpoint / checkpoints.MODEL
        left_out = _ONLY_MODELS if as_adapter else set()
        files = [file for file in model.iterdir() if file.is_file() and file.name not in left_out]
        copy_files(model, [file for file in files if not (as_adapter and file.name.endswith(_WEIGHTS))], part)
        if as_adapter:
            shutil.copytree(adapter, part, dirs_exist_ok=True)
        (part / _CARD).write_text(card, encoding="utf-8")
        part.rename(out)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise UserError(f"--out: {out} cannot be written ({error.strerror or error}).") from None
    return number, as_adapter


def _find(path: Path) -> tuple[Path, Path]:
    """The run and the checkpoint at a path."""
    run = checkpoints.run_of(path)
    if not (run / "config.yaml").is_file():
        raise UserError(
            f"run: {path} is no run; give a folder of seal-ray train, or one of its checkpoints.{note_on_runs(path)}"
        )
    return run, checkpoints.newest(run) if run == path else path.resolve()


def model_card(
    config: Mapping[str, JSON],
    rows: Sequence[Mapping[str, JSON]],
    *,
    name: str,
    rounds: int,
    adapter: bool,
    base: str | None = None,
) -> str:
    """The model card of a solver in Markdown.

    Args:
        rows: The run's metrics up to `rounds`.
        base: The public name of the base model, if the run has stored it.
    """
    environment, solver = config.get("environment", {}), config.get("solver", {})
    base = _UNSAFE.sub("?", base or public_name(str(solver.get("model"))))
    name_of_source, split = str(environment.get("source")), environment.get("split")
    source = _source(name_of_source)
    about, categories = (source.about, source.categories) if source else (f"tasks of `{name_of_source}`", ["all"])
    lines = [
        *("---", f"library_name: {'peft' if adapter else 'transformers'}", "pipeline_tag: text-generation"),
        *("tags: [tool-use, grpo, seal-ray]", "---", "", f"# {name}", ""),
        f"A tool-use solver, trained from `{base}` with seal_ray by {rounds} rounds of GRPO against an executable "
        "verifier. The license of that model applies.",
        *("", "## Use", "", *_use(base, adapter)),
        *("", "## Data", ""),
        f"Dialogues of the model itself on {about}, split `{split}`, categories "
        f"{', '.join(environment.get('categories') or categories)}. No data of this training is written by people.",
        *("", "## Recipe", "", "| setting | value |", "| --- | --- |", *_recipe(config, rounds)),
        *("", "## Results", "", *_results(config, rows)),
        *("", "## Limits", ""),
        "It was trained to call the tools of simulated worlds in English dialogues, and was measured on nothing else. "
        "It can call the wrong tool, with wrong values, or when it should ask or do nothing: check its calls before "
        "executing them. Training may have reduced other abilities of its base model.",
        "",
    ]
    return "\n".join(lines)


def _source(name: str) -> TaskSource | None:
    """A task source, if it is installed."""
    try:
        return get_source(name)
    except UserError:
        return None


def _use(base: str, adapter: bool) -> list[str]:
    if adapter:
        return [
            f"This folder holds a LoRA adapter in PEFT's format, to be put on `{base}`:",
            *("", "```python", "from peft import PeftModel", "from transformers import AutoModelForCausalLM", ""),
            f'model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("{base}"), "FOLDER")',
            "```",
            *("", f"or `seal-ray serve {base} --adapter FOLDER`."),
        ]
    return ["`AutoModelForCausalLM.from_pretrained(FOLDER)`, vLLM, or `seal-ray serve FOLDER`."]


def _recipe(config: Mapping[str, JSON], rounds: int) -> Iterator[str]:
    yield f"| seed | {config.get('seed', 0)} |"
    yield f"| rounds | {rounds} of {config.get('training', {}).get('rounds')} |"
    for section, keys in _SHOWN.items():
        values = config.get(section, {})
        yield from (f"| {section}.{key} | {values[key]} |" for key in keys if key in values)


def _results(config: Mapping[str, JSON], rows: Sequence[Mapping[str, JSON]]) -> list[str]:
    measured = [row for row in rows if _SUCCESS in row]
    if not measured:
        return ["The run has no evaluation on tasks that it was not trained on."]
    evaluation = config.get("evaluation", {})
    source = str(evaluation.get("source") or config.get("environment", {}).get("source"))
    known = _source(source)
    rules = f", {known.protocol} protocol" if known else ""
    first, last = measured[0], measured[-1]
    columns = [first] if first is last else [first, last]
    heads = [f"after round {row['round']}" if row["round"] else "before training" for row in columns]
    categories = {name: f"{_SUCCESS}/{name}" for name in categories_of(last)}
    names = {"all": _SUCCESS, **categories, "single turns": _TURNS}
    return [
        f"Success on {last.get('evaluation/dialogues') or 0:g} tasks of `{source}`, split `{evaluation.get('split')}`, "
        f"none of them trained on; plain interface{rules}.",
        *("", f"| category | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}"),
        *(
            f"| {label} | {' | '.join(_percent(row.get(key)) for row in columns)} |"
            for label, key in names.items()
            if key in last
        ),
    ]


def _percent(value: Any) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
