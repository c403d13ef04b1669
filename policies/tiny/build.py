"""Builds the tiny base: tokenizer, training, folder, card. A recipe gives the same weights again on one machine."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.errors import UserError
from envs.folders import make_folder
from envs.task import Category
from policies.models import read_json
from policies.prompting import ChatFormat
from policies.tiny.behaviours import RATES, Behaviour
from policies.tiny.demonstrations import DIALECT
from policies.tiny.hidden import FULL, PROPOSALS
from policies.tiny.measure import PLAIN, Count, Measured
from policies.tiny.measure_writer import WriterMeasured
from policies.tiny.specifications import DEEPEST
from policies.tiny.training import Progress, Recipe, model_for, tokenizer_for, train
from policies.tiny.world import NAME

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

STATE = "build.state"
"""The file from which an interrupted build resumes; removed at its end."""
UNLOCKED = 0.5
"""Share of right decisions that a behaviour should exceed under its guideline."""
_LOADING_KEYS = ("is_local", "local_files_only")
"""Keys of a tokenizer that was loaded from a folder; a built one does not have them."""
_START = "The model starts from weights in which heads that look back and heads that copy are put in place by hand."
_RARE = "\nHere {behaviours} are never right in demonstrations unless a cue for them is shown.\n"
MAX_BYTES = 10 << 20
"""Largest size of the folder, so that the package stays small."""


def build(out: Path, recipe: Recipe, *, progress: Progress) -> None:
    """Builds the model into `out`, resuming from the last saved state if there is one.

    Raises `UserError` if `out` holds something else.
    """
    written_last = out / "recipe.json"
    if out.is_dir() and any(out.iterdir()) and not (out / STATE).exists() and not written_last.exists():
        raise UserError(f"--out: {out} holds something else; give an empty or new folder.")
    if written_last.exists() and written_last.read_text(encoding="utf-8") == _as_json(recipe):
        return
    make_folder(out)
    tokenizer = tokenizer_for(recipe)
    model = model_for(recipe, tokenizer)
    form = ChatFormat(tokenizer, DIALECT, name="the tiny base")
    train(model, form, recipe, progress=progress, state=out / STATE)
    model.model.norm.weight.data *= recipe.sharpness  # which multiplies the logits
    _save(out, recipe, model, tokenizer)
    (out / STATE).unlink(missing_ok=True)


def _as_json(recipe: Recipe) -> str:
    return json.dumps(asdict(recipe), indent=1) + "\n"


def _save(out: Path, recipe: Recipe, model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    import torch
    from transformers import GenerationConfig

    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True, temperature=1.0
    )
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.init_kwargs = {key: value for key, value in tokenizer.init_kwargs.items() if key not in _LOADING_KEYS}
    tokenizer.save_pretrained(out)
    size = sum(path.stat().st_size for path in out.iterdir() if path.name != STATE)
    if size > MAX_BYTES:
        raise UserError(f"recipe: the folder has {size / 2**20:.1f} MiB, more than the {MAX_BYTES >> 20} it may have.")
    (out / "recipe.json").write_text(_as_json(recipe), encoding="utf-8")


def only_writes(folder: Path) -> bool:
    """Whether the folder's model was trained on task specifications alone, by its recipe."""
    return all(phase.get("specifications") == 1.0 for phase in _phases(folder))


def has_hidden_conventions(folder: Path) -> bool:
    """Whether the folder's model was trained on tools with hidden conventions, by its recipe."""
    return all("mixture" in phase for phase in _phases(folder))


def _phases(folder: Path) -> list[dict[str, Any]]:
    """The phases of the folder's recipe; an empty one if it has none."""
    recipe = folder / "recipe.json"
    phases = read_json(recipe).get("phases") if recipe.is_file() else None
    known = isinstance(phases, list) and all(isinstance(phase, dict) for phase in phases)
    return phases if known and phases else [{}]


def write_card(folder: Path, measured: Mapping[str, Measured], greedy: Mapping[str, Measured], *, tasks: int) -> None:
    """Writes the model card, with the recipe and the measurements."""
    recipe = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    missed = [str(each) for each in Behaviour if measured[f"guideline: {each}"].behaviours[each].share <= UNLOCKED]
    categories = list(next(iter(greedy.values())).success)
    rare = recipe["rare"]
    shares = {name: [_cell(counts, each, name, rare) for each in Behaviour] for name, counts in measured.items()}
    successes = {
        name: [f"{100 * each.success[kind].share:.0f}" for kind in categories] for name, each in greedy.items()
    }
    _write_readme(
        folder,
        "card.md",
        recipe,
        tasks=tasks,
        behaviours=_table(list(Behaviour), shares),
        unlocked=100 * UNLOCKED,
        missed=", ".join(missed) or "none",
        start=_START if recipe["start"] is None else f"It starts from the weights of `{recipe['start']}`.",
        command="seal-ray tiny build --rare" if rare else "seal-ray tiny build",
        rare=_RARE.format(behaviours=" and ".join(f"`{each}`" for each in rare)) if rare else "",
        categories=_table(categories, successes),
    )


def write_writer_card(folder: Path, measured: Mapping[str, WriterMeasured]) -> None:
    """Writes the card of a model that writes specifications, with the recipe and the measurements."""
    recipe = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    categories = [str(each) for each in Category]
    depths = sorted({depth for counts in measured.values() for depth in counts.depths})
    rates, kinds = {}, {}
    for name, counts in measured.items():
        rates[name] = [str(counts.read.needed), str(counts.read), str(counts.made), str(counts.distinct)]
        numbers = [counts.categories.get(each, 0) for each in categories]
        numbers += [counts.depths.get(each, 0) for each in depths]
        kinds[name] = [f"{100 * number / max(1, counts.made.right):.0f}" for number in numbers]
    _write_readme(
        folder,
        "card_writer.md",
        recipe,
        start=recipe["start"],
        sharpness=recipe["sharpness"],
        deepest=DEEPEST,
        rates=_table(["written", "read", "task", "different"], rates, first="profiles"),
        kinds=_table([*categories, *(f"{each} requests" for each in depths)], kinds, first="profiles"),
    )


def write_hidden_card(folder: Path, measured: Mapping[str, Count]) -> None:
    """Writes the card of a model for tools with hidden conventions, with the recipe and the measurements."""
    recipe = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    table = _table(["n", "share, %"], {name: [str(count.needed), str(count)] for name, count in measured.items()})
    full = 100 * PROPOSALS[recipe["phases"][-1]["mixture"]][FULL]
    _write_readme(folder, "card_hidden.md", recipe, start=recipe["start"], full=full, measured=table)


def _write_readme(folder: Path, template: str, recipe: Mapping[str, Any], **values: Any) -> None:
    text = (Path(__file__).parent / template).read_text(encoding="utf-8")
    tokens = sum(phase["tokens"] for phase in recipe["phases"])
    (folder / "README.md").write_text(text.format(source=NAME, tokens=tokens, **values), encoding="utf-8")


def _table(columns: Sequence[str], rows: Mapping[str, Sequence[str]], *, first: str = "interface") -> str:
    """A Markdown table whose first column has the names of the rows."""
    lines = [(first, *columns), ["---"] * (len(columns) + 1), *((name, *cells) for name, cells in rows.items())]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(measured: Measured, behaviour: Behaviour, name: str, rare: Collection[str]) -> str:
    """A measured share, with the demonstrations' rate in parentheses if the interface is about the behaviour."""
    text = str(measured.behaviours[behaviour])
    if name == PLAIN:
        text += f" ({0 if behaviour in rare else 100 * RATES[behaviour].plain:.0f})"
    elif name == f"guideline: {behaviour}":
        text += f" ({100 * RATES[behaviour].guided:.0f})"
    return text
