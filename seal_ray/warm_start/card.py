"""The model card of a warm start."""

from __future__ import annotations

from policies.models import ModelFolder
from seal_ray.warm_start.plan import WarmStart

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
