"""Sections of settings from values, with one sentence for a wrong key or value."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from envs.errors import UserError, check_known, unknown_value
from policies.curator.base import CURATORS
from policies.proposer import is_model
from policies.task_writer.base import TASK_WRITERS
from seal_ray.config import schema
from seal_ray.config.earlier import check_current, check_kind
from seal_ray.config.schema import KINDS, SECTIONS, Section

_NATIVE = {"training.lr", "training.grad_clip"}
_NATIVE_SECTIONS = {"env_runners", "learners", "fault_tolerance"}
_BOUNDS = {
    "minimum": "of at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}

PLACE: Mapping[str, tuple[str, ...]] = {
    "engine": tuple(key for key in schema.EngineSection.model_fields if key not in ("kind", "dtype")),
    "env_runners": tuple(schema.EnvRunnersSection.model_fields),
    "learners": tuple(schema.LearnersSection.model_fields),
    "training": ("microbatch_tokens",),
    "fault_tolerance": ("engine_timeout", "learner_timeout"),
}
"""Section → settings of where and how fast a run computes; results depend on them by rounding alone."""


def attribute(section: str, key: str) -> str:
    """The config's attribute for a setting: RLlib's settings keep RLlib's names, others begin with the section."""
    native = section in _NATIVE_SECTIONS or f"{section}.{key}" in _NATIVE
    return key if native else f"{section}_{key}"


def allowed(field: FieldInfo) -> str:
    """The allowed values of a field, for instance "a whole number of at least 1, or None (null in YAML)"."""
    return _words(_schema(field))


def takes(field: FieldInfo, kind: str) -> bool:
    """Whether a field takes any value of a kind of JSON schemas, such as "string" or "number"."""
    return any(each.get("type") == kind and not _choices(each) for each in _members(_schema(field)))


def complaint(
    section: str, fields: Mapping[str, FieldInfo], values: Mapping[str, Any], problem: ErrorDetails
) -> UserError:
    """The error for pydantic's problem with these values of a section."""
    key, *inside = problem["loc"]
    schema = _schema(fields[str(key)])
    name, value, wanted = f"{section}.{key}", problem["input"], _words(schema)
    if problem["type"] == "literal_error" and isinstance(value, str):
        return unknown_value(name, value, next(filter(None, map(_choices, _members(schema)))))
    if inside:
        value = values[str(key)]
    if problem["type"] == "finite_number":
        wanted = wanted.replace("a number", "a finite number", 1)
    return UserError(f"{name}: {value!r:.80} does not fit; it must be {wanted}.")


def _schema(field: FieldInfo) -> dict[str, Any]:
    kind: Any = Annotated[field.annotation, field]
    return TypeAdapter(kind).json_schema()


def _members(schema: Mapping[str, Any]) -> list[Any]:
    return list(schema.get("anyOf", [schema]))


def _choices(schema: Mapping[str, Any]) -> list[str]:
    return schema.get("enum") or ([schema["const"]] if "const" in schema else [])


def _words(schema: Any) -> str:
    if choices := _choices(schema) if schema is not True else []:
        *first, last = choices
        return f"{', '.join(first)} or {last}" if first else last
    match schema:
        case {"anyOf": members}:
            null = {"type": "null"}
            words = " or ".join(_words(each) for each in members if each != null)
            return f"{words}, or None (null in YAML)" if null in members else words
        case {"type": "boolean"}:
            return "true or false"
        case {"type": "integer"}:
            return f"a whole number{_bounds(schema)}"
        case {"type": "number"}:
            return f"a number{_bounds(schema)}"
        case {"type": "string"}:
            return "text"
        case {"type": "array", "items": items}:
            what = f"of {', '.join(_choices(items))}" if _choices(items) else "texts"
            return f"a list of {'one' if schema.get('minItems') else 'zero'} or more {what}"
    raise TypeError(f"no words for {schema}")


def _bounds(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"minimum": least, "maximum": most}:
            return f" from {least:g} to {most:g}"
    parts = [f"{words} {schema[key]:g}" for key, words in _BOUNDS.items() if key in schema]
    return f" {' and '.join(parts)}" if parts else ""


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
