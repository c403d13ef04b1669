"""Building the tiny base: tokenizer, warm start, folder, card. One recipe gives the same weights on one machine."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from envs.errors import UserError
from envs.folders import make_folder
from envs.task import Category
from policies.models import read_json
from policies.prompting import ChatFormat
from policies.tiny.behaviours import RATES, Behaviour
from policies.tiny.demonstrations import DIALECT
from policies.tiny.measure import PLAIN, Measured
from policies.tiny.measure_writer import WriterMeasured
from policies.tiny.specifications import DEEPEST
from policies.tiny.training import Progress, Recipe, model_for, tokenizer_for, train
from policies.tiny.world import NAME

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

STATE = "build.state"
"""What an interrupted build goes on from; removed at its end."""
UNLOCKED = 0.5
"""Share of right decisions that a guideline should bring its behaviour above."""
_OF_LOADING = ("is_local", "local_files_only")
"""What a tokenizer that was read from a folder remembers of it; a built one does not have it."""
_START = "The model starts from weights in which heads that look back and heads that copy are put in place by hand."
_RARE = "\nHere {behaviours} are never right in demonstrations unless a cue for them is shown.\n"
MAX_BYTES = 10 << 20
"""Size of the folder at most, so that the package stays small."""


def build(out: Path, recipe: Recipe, *, progress: Progress) -> None:
    """Builds the model into `out`. Called again after an interruption it goes on from the last saved state, or is done.

    Raises `UserError` where `out` holds something else.
    """
    if out.is_dir() and any(out.iterdir()) and not (out / STATE).exists() and not (out / "recipe.json").exists():
        raise UserError(f"--out: {out} holds something else; give an empty or new folder.")
    written_last = out / "recipe.json"
    if written_last.exists() and written_last.read_text(encoding="utf-8") == _as_json(recipe):
        return
    make_folder(out)
    tokenizer = tokenizer_for(recipe)
    model = model_for(recipe, tokenizer)
    form = ChatFormat(tokenizer, DIALECT, name="the tiny base")
    train(model, form, recipe, progress=progress, state=out / STATE)
    _sharpen(model, recipe.sharpness)
    _save(out, recipe, model, tokenizer)
    (out / STATE).unlink(missing_ok=True)


def _as_json(recipe: Recipe) -> str:
    return json.dumps(asdict(recipe), indent=1) + "\n"


def _sharpen(model: Qwen2ForCausalLM, sharpness: float) -> None:
    """Multiplies the logits, by the weights of the last norm."""
    model.model.norm.weight.data *= sharpness


def _save(out: Path, recipe: Recipe, model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    import torch
    from transformers import GenerationConfig

    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True, temperature=1.0
    )
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.init_kwargs = {key: value for key, value in tokenizer.init_kwargs.items() if key not in _OF_LOADING}
    tokenizer.save_pretrained(out)
    size = sum(path.stat().st_size for path in out.iterdir() if path.name != STATE)
    if size > MAX_BYTES:
        raise UserError(f"recipe: the folder has {size / 2**20:.1f} MiB, more than the {MAX_BYTES >> 20} it may have.")
    (out / "recipe.json").write_text(_as_json(recipe), encoding="utf-8")


def only_writes(folder: Path) -> bool:
    """Whether the folder's model was built from task specifications alone, by its recipe."""
    recipe = folder / "recipe.json"
    if not recipe.is_file():
        return False
    phases = read_json(recipe).get("phases")
    return isinstance(phases, list) and all(
        isinstance(phase, dict) and phase.get("specifications") == 1.0 for phase in phases
    )


def write_card(folder: Path, measured: Mapping[str, Measured], greedy: Mapping[str, Measured], *, tasks: int) -> None:
    """Writes the model card: what it is, how it was made, and what it was measured to do."""
    recipe = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    missed = [str(each) for each in Behaviour if measured[f"guideline: {each}"].behaviours[each].share <= UNLOCKED]
    categories = list(next(iter(greedy.values())).success)
    rare = recipe["rare"]
    shares = {name: [_cell(found, each, name, rare) for each in Behaviour] for name, found in measured.items()}
    successes = {
        name: [f"{100 * found.success[category].share:.0f}" for category in categories]
        for name, found in greedy.items()
    }
    template = (Path(__file__).parent / "card.md").read_text(encoding="utf-8")
    card = template.format(
        source=NAME,
        tokens=sum(phase["tokens"] for phase in recipe["phases"]),
        tasks=tasks,
        behaviours=_table(list(Behaviour), shares),
        unlocked=100 * UNLOCKED,
        missed=", ".join(missed) or "none",
        start=_START if recipe["start"] is None else f"It starts from the weights of `{recipe['start']}`.",
        command="seal-ray tiny build --rare" if rare else "seal-ray tiny build",
        rare=_RARE.format(behaviours=" and ".join(f"`{each}`" for each in rare)) if rare else "",
        categories=_table(categories, successes),
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def write_writer_card(folder: Path, measured: Mapping[str, WriterMeasured]) -> None:
    """Writes the card of a model that writes specifications: how it was made, and what it was measured to write."""
    recipe = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    categories = [str(each) for each in Category]
    depths = sorted({depth for found in measured.values() for depth in found.depths})
    rates = {
        name: [str(found.read.needed), str(found.read), str(found.made), str(found.distinct)]
        for name, found in measured.items()
    }
    counts = {
        name: [found.categories.get(each, 0) for each in categories] + [found.depths.get(each, 0) for each in depths]
        for name, found in measured.items()
    }
    kinds = {
        name: [f"{100 * count / max(1, measured[name].made.right):.0f}" for count in each]
        for name, each in counts.items()
    }
    template = (Path(__file__).parent / "card_writer.md").read_text(encoding="utf-8")
    card = template.format(
        source=NAME,
        tokens=sum(phase["tokens"] for phase in recipe["phases"]),
        start=recipe["start"],
        sharpness=recipe["sharpness"],
        deepest=DEEPEST,
        rates=_table(["written", "read", "task", "different"], rates, first="profiles"),
        kinds=_table([*categories, *(f"{each} requests" for each in depths)], kinds, first="profiles"),
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def _table(columns: Sequence[str], rows: Mapping[str, Sequence[str]], *, first: str = "interface") -> str:
    """A table in Markdown; the first column has the names of the rows."""
    lines = [(first, *columns), ["---"] * (len(columns) + 1), *((name, *cells) for name, cells in rows.items())]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(found: Measured, behaviour: Behaviour, name: str, rare: Collection[str]) -> str:
    count = found.behaviours[behaviour]
    text = str(count)
    if name == PLAIN:
        text += f" ({0 if behaviour in rare else 100 * RATES[behaviour].plain:.0f})"
    elif name == f"guideline: {behaviour}":
        text += f" ({100 * RATES[behaviour].guided:.0f})"
    return text
