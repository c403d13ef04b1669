"""Sections of settings from values, with one sentence for a wrong key or value."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from envs.errors import UserError, check_known, unknown_value
from policies.curator.base import CURATORS
from policies.proposer import is_model
from policies.task_writer.base import TASK_WRITERS
from seal_ray.config import schema
from seal_ray.config.earlier import check_current, check_kind
from seal_ray.config.fields import complaint
from seal_ray.config.schema import KINDS, SECTIONS, S, Section

_NEVER_IN_EVALUATION = ("interface", "curator", "guidelines", "schema_cues", "recovery", "protocol")


def section_name(section: type[Section]) -> str:
    return next(name for name, base in SECTIONS.items() if issubclass(section, base))


def section_class(name: str, kind: Any = None) -> type[Section]:
    """The class of a section, of a union by this kind. Raises `UserError` for an unknown custom kind."""
    if name not in KINDS:
        return SECTIONS[name]
    if not isinstance(kind, str):
        return SECTIONS[name]  # whose check reports the kind
    if kind in KINDS[name]:
        return KINDS[name][kind]
    check_kind(name, kind)
    if name == "curator":
        return schema.LLMCuratorSection if is_model(CURATORS, kind) else schema.InterfaceCuratorSection
    return schema.LLMTaskWriterSection if is_model(TASK_WRITERS, kind) else schema.WritingTaskWriterSection


def is_custom_kind(name: str, kind: Any) -> bool:
    """Whether the kind of a union is none of the package: its class is known once it is imported."""
    return name in KINDS and isinstance(kind, str) and kind not in KINDS[name]


def fields_of(name: str) -> dict[str, FieldInfo]:
    """All settings of a section, of a union the settings of all kinds."""
    fields: dict[str, FieldInfo] = {}
    for section in (SECTIONS[name], *KINDS.get(name, {}).values()):
        for key, field in section.model_fields.items():
            fields.setdefault(key, field)
    return fields


def check_key(section: str, key: str, *, more: Collection[str] = ()) -> None:
    """Raises `UserError` with the nearest right name for an unknown section or key; `more` keys are allowed too."""
    if key not in more:
        check_current(section, key)
    check_known("config section", SECTIONS, section)
    if section == "evaluation" and key in _NEVER_IN_EVALUATION:
        raise UserError(
            f"evaluation.{key}: evaluation always plays the plain interface by its source's rules; leave it out."
        )
    known = list(dict.fromkeys((*fields_of(section), *more)))
    if key in known:
        return
    others = [f"{name}.{key}" for name in SECTIONS if key in fields_of(name)]
    if others:
        raise UserError(f"{section}.{key}: there is no such key; did you mean {' or '.join(others)}?")
    raise unknown_value(f"config key of {section}", key, known)


def check_kind_has(section: str, kind: Any, key: str) -> None:
    """Raises `UserError` if the kind of a union does not have this setting, which others have."""
    if key not in section_class(section, kind).model_fields:
        kinds = [name for name, each in KINDS[section].items() if key in each.model_fields]
        have = f"{kinds[0]} does" if len(kinds) == 1 else f"{', '.join(kinds)} do"
        raise UserError(f"{section}.{key}: {section}.kind={kind} does not have it; {have}.")


def make_section(section: str, values: Mapping[str, Any]) -> Section:
    """The section with these values. Raises `UserError` with the key, the value and the allowed values."""
    for key in values:
        check_key(section, key)
    model = SECTIONS[section]
    if section in KINDS:
        kind = values.get("kind", model.model_fields["kind"].default)
        model = section_class(section, kind)
        for key in values:
            check_kind_has(section, kind, key)
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise complaint(section, model.model_fields, values, problem) from None


def section_of(kind: type[S], values: Mapping[str, Any]) -> S:
    """The section of this class, or of a subclass for its kind, with these values."""
    made = make_section(section_name(kind), values)
    assert isinstance(made, kind)
    return made
