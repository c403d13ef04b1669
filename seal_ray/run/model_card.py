"""The model card of an exported solver: what a run's config and metrics say of its data, recipe, results and limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from envs.errors import UserError
from envs.sources import get_source
from envs.task import JSON
from seal_ray.report.metrics import categories_of

_SHOWN = {
    "solver": ("lora_rank", "lora_alpha", "prompt", "response", "context", "temperature"),
    "engine": ("dtype",),
    "training": ("groups", "group_size", "lr", "schedule", "adam_epsilon", "kl", "clip_low", "clip_high", "epochs"),
    "reweighting": ("mode", "rho"),
    "curator": ("kind", "plain_share"),
    "environment": ("difficulty", "reward", "protocol"),
}
"""Section → the settings that a card shows."""

_SUCCESS = "evaluation/success"


def model_card(
    config: Mapping[str, JSON], rows: Sequence[Mapping[str, JSON]], *, name: str, rounds: int, adapter: bool
) -> str:
    """The card, in Markdown, of the solver after so many rounds. `rows` are the run's metrics up to then."""
    environment, solver = config.get("environment", {}), config.get("solver", {})
    base = PurePath(str(solver.get("model"))).name
    source, split = str(environment.get("source")), environment.get("split")
    about, categories = _data(source)
    lines = [
        *("---", f"library_name: {'peft' if adapter else 'transformers'}", "pipeline_tag: text-generation"),
        *("tags: [tool-use, grpo, seal-ray]", "---", "", f"# {name}", ""),
        f"A tool-use solver, trained from `{base}` with seal_ray by {rounds} rounds of GRPO against an executable "
        "verifier. Its license is that of the model that it was trained from.",
        *("", "## Use", "", *_use(base, adapter)),
        *("", "## Data", ""),
        f"Dialogues that the model played itself on {about}, split `{split}`, categories "
        f"{', '.join(environment.get('categories') or categories)}. Nothing was written by people for this training.",
        *("", "## Recipe", "", "| setting | value |", "| --- | --- |", *_recipe(config, rounds)),
        *("", "## Results", "", *_results(config, rows)),
        *("", "## Limits", ""),
        "It was trained to call the tools of simulated worlds in English dialogues, and was measured on nothing else. "
        "It can call the wrong tool, with wrong values, or where it should ask or do nothing: whatever executes its "
        "calls must check them. Of what its base model can do besides, training may have taken something away.",
        "",
    ]
    return "\n".join(lines)


def _data(name: str) -> tuple[str, list[str]]:
    """What the tasks of a source are, and its categories. A run can be exported where its source is not installed."""
    try:
        source = get_source(name)
    except UserError:
        return f"tasks of `{name}`", ["all"]
    return source.about, list(source.categories)


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
        return ["The run measured nothing on tasks that it was not trained on."]
    evaluation = config.get("evaluation", {})
    source = evaluation.get("source") or config.get("environment", {}).get("source")
    first, last = measured[0], measured[-1]
    columns = [first] if first is last else [first, last]
    heads = [f"after round {row['round']}" if row["round"] else "before training" for row in columns]
    names = {"all": _SUCCESS, **{each: f"{_SUCCESS}/{each}" for each in categories_of(last)}}
    return [
        f"Success on {last.get('evaluation/dialogues', 0):g} tasks of `{source}`, split `{evaluation.get('split')}`, "
        "none of them trained on; plain interface, official protocol.",
        *("", f"| category | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}"),
        *(
            f"| {label} | {' | '.join(_percent(row.get(key)) for row in columns)} |"
            for label, key in names.items()
            if key in last
        ),
    ]


def _percent(value: Any) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
