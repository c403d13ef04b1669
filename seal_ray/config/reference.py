"""The reference of all settings, made from `schema.py`. `python -m seal_ray.config.reference` writes it down."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic_core import to_jsonable_python

from seal_ray.config.fields import allowed
from seal_ray.config.presets import about, preset_names
from seal_ray.config.schema import KINDS, SECTIONS, Section
from seal_ray.config.sections import fields_of

PATH = Path(__file__).parents[2] / "docs" / "config.md"
"""The page in the repository."""

_OWN_PRESETS = """
A preset of your own is a YAML file, named by its path in the place of a name:

```yaml
# mine.yaml
kind: method              # or model
like: coevolved           # a preset of the package, of the same kind, that it goes on from; may be left out
about: As coevolved, with a curator that speaks less often.
sections:
  curator: {update_every: 5}
```

`seal-ray train --preset mine.yaml` trains with it, `seal-ray compare --arms coevolved,mine.yaml` compares it.
If it names Python code, add `--trust`, or keep it in `~/.config/seal_ray` ([security.md](security.md)).
"""

_INTRODUCTION = """# Settings

This page is made from `seal_ray/config/schema.py` by `python -m seal_ray.config.reference`.

A run's settings are those of its presets, then of the file that `--config` names, then of the words
`section.key=value` on the command line; later ones win. A file has the sections as below, and may have a `seed` beside
them; the `config.yaml` in the folder of a run is such a file. In Python each section is a method:
`SealConfig().training(groups=12).curator(kind="rules")`. What is None in Python is null in YAML.

The sections `env_runners`, `learners` and `fault_tolerance` take RLlib's other keys too, in Python only.
"""


def settings_as_markdown() -> str:
    """The page: every preset, and every section with its keys, defaults, bounds and meanings."""
    return "\n".join([_INTRODUCTION, *_presets(), *(line for name in SECTIONS for line in _section(name))])


def _presets() -> Iterator[str]:
    yield "## Presets\n"
    yield "A model preset and a method preset on top of it can be given; without a model preset, `tiny` comes first.\n"
    yield from _table(("preset", "kind", "what it is"))
    for kind in ("model", "method"):
        for name in preset_names(kind):
            yield _row(f"`{name}`", kind, about(name))
    yield _OWN_PRESETS


def _section(name: str) -> Iterator[str]:
    section: type[Section] = SECTIONS[name]
    yield f"## {name}\n"
    yield f"{section.__doc__}\n"
    yield from _table(("key", "default", "allowed", "meaning", *(["kinds"] if name in KINDS else [])))
    kinds = KINDS.get(name, {})
    for key, field in fields_of(name).items():
        default = json.dumps(to_jsonable_python(field.get_default(call_default_factory=True)))
        bounds = allowed(field).replace("None (null in YAML)", "null")
        having = [kind for kind, each in kinds.items() if key in each.model_fields]
        of_kinds = ["all" if len(having) == len(kinds) else ", ".join(having)] if kinds else []
        yield _row(f"`{key}`", f"`{default}`", bounds, " ".join((field.description or "").split()), *of_kinds)
    yield ""


def _table(titles: tuple[str, ...]) -> tuple[str, str]:
    return _row(*titles), _row(*["---"] * len(titles))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    PATH.write_text(settings_as_markdown(), encoding="utf-8")
