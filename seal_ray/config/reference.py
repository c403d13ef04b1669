"""The reference of all settings, made from `schema.py`. `python -m seal_ray.config.reference` writes it down."""

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from seal_ray.config.presets import preset_names, read_preset
from seal_ray.config.schema import KINDS, SECTIONS, Section
from seal_ray.config.sections import allowed, fields_of

PATH = Path(__file__).parents[2] / "docs" / "config.md"
"""The page in the repository."""

_CUSTOM_PRESETS = """
A custom preset is a YAML file, given by its path:

```yaml
# mine.yaml
kind: method              # or model
like: coevolved           # a preset of the package, of the same kind, that it extends; optional
about: As coevolved, with a curator that proposes less often.
sections:
  curator: {update_every: 5}
```

`seal-ray train --preset mine.yaml` trains with it, `seal-ray compare --arms coevolved,mine.yaml` compares it.
If it names Python code, add `--trust`, or keep it in `~/.config/seal_ray` ([security.md](security.md)).
"""

_INTRODUCTION = """# Settings

This page is made from `seal_ray/config/schema.py` by `python -m seal_ray.config.reference`.

A run's settings are those of its presets, then of the file `--config`, then of the words `section.key=value` on the
command line; later ones win. A file has the sections below, and optionally a `seed`; the `config.yaml` of a run is such
a file. In Python each section is a method: `SealConfig().training(groups=12).curator(kind="rules")`. None in Python is
null in YAML.

`curator` and `task_writer` have other settings for each kind. The sections `env_runners`, `learners` and
`fault_tolerance` take RLlib's other keys too, in Python only.
"""

COMMON = (
    *("environment.source", "environment.categories", "environment.difficulty", "environment.reward"),
    *("engine.num_engines", "engine.concurrent", "engine.num_gpus_per_engine", "engine.gpu_memory_share"),
    *("solver.model", "solver.response", "solver.context", "solver.temperature", "solver.lora_rank"),
    *("curator.kind", "curator.trainable", "task_writer.kind", "reweighting.mode"),
    *("training.rounds", "training.groups", "training.group_size", "training.lr", "training.kl", "training.view"),
    *("evaluation.interval", "learners.num_learners"),
)
"""The settings that people change."""


def settings_as_markdown() -> str:
    """The page: the common settings, every preset, and every section with its keys, defaults, bounds and meanings."""
    sections = (line for name in SECTIONS for line in _section(name))
    return "\n".join([_INTRODUCTION, *_common(), *_presets(), *sections])


def _common() -> Iterator[str]:
    yield f"## The {len(COMMON)} that people change\n"
    yield from _table(("setting", "default", "meaning"))
    for name in COMMON:
        section, _, key = name.partition(".")
        field = fields_of(section)[key]
        yield _row(f"`{name}`", f"`{_default(field)}`", _meaning(field))
    yield ""


def _presets() -> Iterator[str]:
    yield "## Presets\n"
    yield "A model preset and a method preset on top of it can be given; without a model preset, `tiny` comes first.\n"
    yield from _table(("preset", "kind", "what it is"))
    for kind in ("model", "method"):
        for name in preset_names(kind):
            yield _row(f"`{name}`", kind, read_preset(name)["about"])
    yield _CUSTOM_PRESETS


def _section(name: str) -> Iterator[str]:
    section: type[Section] = SECTIONS[name]
    yield f"## {name}\n"
    yield f"{section.__doc__}\n"
    yield from _table(("key", "default", "allowed", "meaning", *(["kinds"] if name in KINDS else [])))
    kinds = KINDS.get(name, {})
    for key, field in fields_of(name).items():
        bounds = allowed(field).replace("None (null in YAML)", "null")
        having = [kind for kind, each in kinds.items() if key in each.model_fields]
        of_kinds = ["all" if len(having) == len(kinds) else ", ".join(having)] if kinds else []
        yield _row(f"`{key}`", f"`{_default(field)}`", bounds, _meaning(field), *of_kinds)
    yield ""


def _default(field: FieldInfo) -> str:
    return json.dumps(to_jsonable_python(field.get_default(call_default_factory=True)))


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _table(titles: tuple[str, ...]) -> tuple[str, str]:
    return _row(*titles), _row(*["---"] * len(titles))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    PATH.write_text(settings_as_markdown(), encoding="utf-8")
