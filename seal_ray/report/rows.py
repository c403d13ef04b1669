"""Checks of the rows of a run's files, which others may have written."""

from __future__ import annotations

import re
from collections.abc import Mapping

from envs.interface.json_form import interface_from_dict
from envs.task import JSON
from envs.text import visible
from seal_ray.metrics import bounds_of

MAX_ROUNDS = 10**7
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_./ -]{0,119}")
"""Names of metrics, suites and categories."""
_MAX_ID = 200


def check_round(row: Mapping[str, JSON]) -> None:
    """Raises `ValueError` for a row without a round."""
    number = row.get("round")
    if type(number) is not int or not 0 <= number <= MAX_ROUNDS:
        raise ValueError("it has no whole number as its round")


def check_metrics(row: Mapping[str, JSON]) -> None:
    """Raises `ValueError` unless the row has a round, and numbers or null under names; a share is from 0 to 1."""
    check_round(row)
    _check_numbers(row)


def check_evaluation(row: Mapping[str, JSON]) -> None:
    """Raises `ValueError` unless the row has a round, and under `suites` suite → category → task → 0 to 1, or null."""
    check_round(row)
    _check_outcomes(row.get("suites"))


def check_start(row: Mapping[str, JSON]) -> None:
    """Raises `ValueError` unless the row has `metrics` and `suites` as rows of metrics and evaluations."""
    _check_numbers(_mapping(row.get("metrics"), "metrics"))
    _check_outcomes(row.get("suites"))


def check_interfaces(row: Mapping[str, JSON]) -> None:
    """Raises `ValueError` unless the row has a round, and interfaces with `id` and `number`."""
    check_round(row)
    interfaces = row.get("interfaces")
    if not isinstance(interfaces, list):
        raise ValueError("it has no list of interfaces")
    for document in interfaces:
        values = dict(_mapping(document, "an interface"))
        if type(values.pop("number", 0)) is not int or not isinstance(values.pop("id", ""), str):
            raise ValueError("an interface has no text as its id, or no whole number")
        interface_from_dict(values)


def _check_numbers(values: Mapping[str, JSON]) -> None:
    for name, value in values.items():
        _check_name(name)
        if value is None:
            continue
        if type(value) not in (int, float):
            raise ValueError(f"{name} is no number")
        least, most = bounds_of(name)
        if not least <= value <= most:
            raise ValueError(f"{name} is not from {least:g} to {most:g}")


def _check_outcomes(suites: JSON) -> None:
    for suite, categories in _mapping(suites, "suites").items():
        _check_name(suite)
        for category, tasks in _mapping(categories, suite).items():
            _check_name(category)
            for task, outcome in _mapping(tasks, category).items():
                if len(task) > _MAX_ID or not task.isprintable():
                    raise ValueError(f"{visible(task)[:40]} is no task's id")
                if outcome is not None and (type(outcome) not in (int, float) or not 0 <= outcome <= 1):
                    raise ValueError(f"the outcome of {task[:40]} is not from 0 to 1")


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{visible(name)[:40]!r} is no name")


def _mapping(value: JSON, what: str) -> Mapping[str, JSON]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no object")
    return value
