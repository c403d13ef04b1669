"""The namespace of metrics: names, families, and the refusal of what nobody defined."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from envs import sources
from envs.diagnosis import Label, TurnDiagnosis
from envs.errors import UserError
from envs.task import Category
from envs.verifier import Outcome, TurnVerdict
from seal_ray.metrics import METRICS, categories_of, check, describe

PREFIXES = {"solver", "curator", "task_writer", "pool", "diagnosis", "interface", "perf", "evaluation"}


def test_every_metric_has_a_unit_and_a_meaning_of_its_own() -> None:
    names = [name for metric in METRICS for name in metric.names()]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert metric.unit
        assert metric.meaning.endswith(".")
    for name in names:
        assert name == "round" or name.split("/")[0] in PREFIXES
        assert re.fullmatch(r"[a-z_]+(/[a-z0-9_]+)*", name)


def test_a_name_of_a_family_is_found() -> None:
    assert describe("solver/success").meaning != describe("solver/success/base").meaning
    for category in Category:
        assert describe(f"evaluation/success/{category}").name == "evaluation/success/CATEGORY"
    for label in Label:
        assert describe(f"diagnosis/share/{label}").unit == "share"
    for outcome in Outcome:
        for label in Label:
            turn = TurnDiagnosis(0, label, "", TurnVerdict(0, outcome))
            assert describe(f"diagnosis/rho/{turn.paper_label}").name == "diagnosis/rho/LABEL"


@pytest.mark.parametrize("name", ["", "solver", "solver/success/CATEGORY", "solver/success/bose", "perf/", "Round"])
def test_an_unknown_metric_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"metric: .* is not known"):
        describe(name)
    # Among a run's own metrics it is a bug, not a user's mistake.
    with pytest.raises(ValueError, match=r"metric: .* is not known") as caught:
        check({"round": 1, name: 0.5})
    assert not isinstance(caught.value, UserError)


def test_a_category_of_a_source_that_is_known_has_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "own_sources", [])
    with pytest.raises(ValueError, match="metric: 'evaluation/success/told' is not known"):
        check({"evaluation/success/told": 0.5})
    sources.get_source("examples.own_source:SOURCE")
    check({"evaluation/success/told": 0.5, "solver/success/cannot": 1.0})
    assert describe("solver/success/told").name == "solver/success/CATEGORY"
    with pytest.raises(UserError, match="metric: 'solver/success/tld' is not known"):
        describe("solver/success/tld")


def test_the_categories_are_those_that_metrics_tell_of() -> None:
    assert categories_of(["round", "solver/success/told"]) == list(Category)
    assert categories_of(["evaluation/success/base"]) == list(Category)
    assert categories_of([f"evaluation/success/{name}" for name in ("told", "base", "asked")]) == [
        *("base", "told", "asked")
    ]


def test_a_misspelt_metric_is_answered_with_the_right_one() -> None:
    with pytest.raises(UserError, match="did you mean 'solver/success"):
        describe("solver/succes")


@pytest.mark.parametrize("value", [None, True, "0.5", [0.5], np.float32(0.5), np.int64(1), 1j])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"metric solver/kl: .* not a float or int"):
        check({"solver/kl": value})


def test_numbers_are_let_through() -> None:
    check({})
    check({"round": 1, "solver/kl": float("nan"), "solver/reward": np.float64(0.5), "diagnosis/rho/pass": 1})
