"""Presets and overrides: YAML files whose sections are the config's, and `section.key=value` words.

A model preset has the model and its training; a method preset on top of it the parts of SEAL (the rows of the paper's
Table 3). A custom preset is a YAML file of the same form, which extends the package's preset `like`, if given.
"""

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from envs.errors import UserError, check_known, unknown_value
from envs.received import parse_yaml, problem_of, read_yaml, read_yaml_as_json
from envs.trusting import allow, config_folder, import_names, trust_names
from seal_ray.config.earlier import check_current, converted
from seal_ray.config.schema import KINDS, SECTIONS
from seal_ray.config.sections import (
    PLACE,
    check_key,
    check_kind_has,
    fields_of,
    is_custom_kind,
    make_section,
    section_class,
    takes,
)

FOLDER = Path(__file__).parent.parent / "presets"
DEFAULT = "tiny"
"""The model preset if none is given."""
OF_SOURCE = ("split", "split_scheme", "categories", "difficulty", "tasks")
"""Settings of `environment` that depend on its source: a preset's are dropped if another source is given."""
Values = dict[str, dict[str, Any]]
"""Section → key → value."""


def preset_names(kind: str | None = None) -> list[str]:
    """The presets of the package, of one kind ("model" or "method") if it is given."""
    names = sorted(path.stem for path in FOLDER.glob("*.yaml"))
    return [name for name in names if kind is None or read_preset(name)["kind"] == kind]


def is_preset_file(preset: str) -> bool:
    """Whether this is a file, not a preset of the package."""
    return Path(preset).suffix in (".yaml", ".yml")


def read_sections(
    presets: Sequence[str] | None = (),
    *,
    file: Path | None = None,
    overrides: Sequence[str] = (),
    shared: bool = False,
) -> tuple[Values, Any]:
    """The settings of these presets, then of the file, then of the words `section.key=value`; later ones win.

    Settings of a preset for other kinds of a union than the final one are left out.

    Args:
        presets: Names or files. The default model preset is added if none is a model preset; None is no preset at all.
        file: A config file.
        overrides: The words.
        shared: Whether words are for configs of several kinds, so that those for other kinds are left out too.

    Returns:
        The sections, with checked keys and unchecked values, and the seed of the file, 0 if it has none.

    Raises:
        UserError: For a preset, file or word that cannot be read.
    """
    by_kind: dict[str, str] = {}
    for name in presets or ():
        kind = read_preset(name)["kind"]
        if kind in by_kind:
            raise UserError(f"preset: {by_kind[kind]} and {name} are both {kind} presets; give one of them.")
        by_kind[kind] = name
    if presets is not None:
        by_kind.setdefault("model", DEFAULT)
    given, seed = {}, 0
    if file is not None:
        document, raw = _documents(file)
        if not isinstance(document, dict):
            raise UserError(f"config: {file} holds no sections; write them as the presets do, key: value under each.")
        seed = document.pop("seed", 0)
        given = _checked(document, raw, file)
    own = merged(given, parse_words(overrides))
    documents = [read_preset(by_kind[kind]) for kind in ("model", "method") if kind in by_kind]
    under = merged(*(layer for document in documents for layer in _layers(document)))
    source = own.get("environment", {}).get("source")
    if source is not None and source != under.get("environment", {}).get("source"):
        under["environment"] = {
            key: value for key, value in under.get("environment", {}).items() if key not in OF_SOURCE
        }
    for section in KINDS:
        default = SECTIONS[section].model_fields["kind"].default
        kind = own.get(section, {}).get("kind", under.get(section, {}).get("kind", default))
        if is_custom_kind(section, kind):  # its class says which settings it has
            trust_names(kind, file or Path(", ".join(presets or ())))
        fields = section_class(section, kind).model_fields
        for key in () if shared else own.get(section, {}):
            check_kind_has(section, kind, key)
        for values in (under, own) if shared else (under,):
            values[section] = {key: value for key, value in values.get(section, {}).items() if key in fields}
    return merged(under, own), seed


def merged(*layers: Values) -> Values:
    """The settings of these layers; later ones win."""
    sections: Values = {}
    for layer in layers:
        for section, values in layer.items():
            sections.setdefault(section, {}).update(values)
    return sections


def parse_words(words: Sequence[str]) -> Values:
    """The words `section.key=value`. Keys are checked, values are not. Raises `UserError` for an unreadable word."""
    values: Values = {}
    for word in words:
        name, equals, text = word.partition("=")
        section, dot, key = name.strip().partition(".")
        if not equals or not dot:
            raise UserError(f"{word!r:.80} is no setting; {_remedy(name.strip(), words)}")
        check_key(section, key)
        try:
            value = parse_yaml(text)
        except yaml.YAMLError as error:
            raise UserError(f"{section}.{key}: {text!r:.80} cannot be read as YAML ({problem_of(error)}).") from None
        values.setdefault(section, {})[key] = _meant(section, key, value, text.strip())
    return values


def parse_places(words: Sequence[str], option: str) -> Values:
    """The same of words that change only where and how fast a run computes. Raises `UserError` for others."""
    values = parse_words(words)
    for section, keys in values.items():
        for key in keys:
            if key not in PLACE.get(section, ()):
                raise UserError(
                    f"{option}: {section}.{key} is the run's own; only places can change: settings of engine (not kind "
                    "and dtype), env_runners and learners, their timeouts, and training.microbatch_tokens."
                )
    return values


def _remedy(name: str, words: Sequence[str]) -> str:
    """What to write instead of a word that is no setting."""
    if os.path.isdir(name):
        return f"to resume the run in that folder, write --resume {name:.80}."
    sections = sorted((each for each in SECTIONS if name in fields_of(each)), key=lambda each: each != "training")
    if sections:
        return f"did you mean {' or '.join(f'{section}.{name}' for section in sections)}?"
    if "=" in words:
        return f"write {''.join(words):.80} without spaces."
    return "write section.key=value, for instance training.rounds=10."


def read_settings(path: Path) -> dict[str, Any]:
    """The recorded config of a run: `seed`, and the settings by section.

    Present settings are checked, settings of an earlier version are `converted`. Nothing that it names is imported.
    Raises `UserError`.
    """
    document = read_yaml_as_json(path, "config")
    if not isinstance(document, dict):
        raise UserError(f"config: {path} holds no sections of settings.")
    for name, values in document.items():
        if type(values) is not (int if name == "seed" else dict):
            raise UserError(f"config: {path}: {name}: {values!r:.80} does not fit.")
    document = converted(document)
    for name in SECTIONS:
        values = document.get(name, {})
        try:
            if is_custom_kind(name, values.get("kind")):  # not imported: its settings are checked as a model's are
                values = {**values, "kind": "llm"}
            known = section_class(name, values.get("kind")).model_fields
            make_section(name, {key: value for key, value in values.items() if key in known})
        except UserError as error:
            raise UserError(f"config: {path}: {error}") from None
    return document


def _checked(document: dict[str, Any], raw: Mapping[str, Any], path: Path) -> Values:
    """The sections of a file, with checked keys and values as they were meant."""
    for section, settings in document.items():
        if isinstance(settings, dict):
            for key in settings:
                check_current(section, str(key))
        if section not in SECTIONS:
            raise unknown_value(f"config: {path}: section", section, [*SECTIONS, "seed"])
        if not isinstance(settings, dict):
            raise UserError(f"config: {path}: {section}: {settings!r:.80} is no section; write key: value under it.")
        for key, value in settings.items():
            check_key(section, str(key))
            settings[key] = _meant(section, key, value, raw[section][key])
    return document


def _meant(section: str, key: str, value: Any, text: str) -> Any:
    """The value, or its text if the setting takes text: a model may be called 123."""
    return text if isinstance(value, int | float) and takes(fields_of(section)[key], "string") else value


def _layers(document: Mapping[str, Any]) -> list[Values]:
    """A preset's sections, after the sections of the preset that it is like."""
    under = _layers(read_preset(document["like"])) if "like" in document else []
    return [*under, document["sections"]]


def read_preset(name: str) -> dict[str, Any]:
    """`kind`, `about` and `sections` of a preset of the package or a file. Raises `UserError` if there is none."""
    if is_preset_file(name):
        if not Path(name).is_file():
            near = difflib.get_close_matches(Path(name).stem, preset_names(), n=1)
            raise UserError(
                f"preset: there is no file {name!r:.80}; give the path of one"
                f"{f', or the preset {near[0]}' if near else ', or a preset of `seal-ray presets`'}."
            )
        return _read_file(Path(name))
    if name not in {path.stem for path in FOLDER.glob("*.yaml")}:
        raise unknown_value("preset", name, [*preset_names("method"), *preset_names("model")])
    path = FOLDER / f"{name}.yaml"
    document: dict[str, Any] = _documents(path)[0]
    return document


def _read_file(path: Path) -> dict[str, Any]:
    """A custom preset, checked as a config file is."""
    document, raw = _documents(path)
    if not isinstance(document, dict) or set(document) - {"like"} != {"kind", "about", "sections"}:
        needs = "it needs kind, about and sections, and can have like, and no other key"
        raise UserError(f"preset: {path} is none; {needs}.")
    check_known(f"preset: {path}: kind", ("model", "method"), str(document["kind"]))
    if "like" in document:
        check_known(f"preset: {path}: like", preset_names(document["kind"]), str(document["like"]))
    if not isinstance(document["about"], str) or "\n" in document["about"]:
        raise UserError(f"preset: {path}: about: {document['about']!r:.80} is no line of text; say what the preset is.")
    if not isinstance(document["sections"], dict):
        raise UserError(f"preset: {path}: sections holds none; write them as the presets do, key: value under each.")
    return {**document, "sections": _checked(document["sections"], raw["sections"], path)}


def _documents(path: Path) -> tuple[Any, Any]:
    """The content of a YAML file, and the same with every scalar as text: a folder may be called 007."""
    document = read_yaml(path, "config")
    if any(path.resolve().is_relative_to(own) for own in (config_folder().resolve(), FOLDER.resolve())):
        allow(import_names(document))
    return document, read_yaml(path, "config", as_text=True)
