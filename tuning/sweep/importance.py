"""How much each parameter of a sweep matters: functional ANOVA over the trials, with intervals from a bootstrap."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.importance import FanovaImportanceEvaluator
from optuna.study import Study
from optuna.trial import create_trial

from tuning.statistics import LEVEL, Estimate
from tuning.sweep.parameter import Parameter, Value

FEWEST = 4
"""Trials under which nothing is said."""

_DRAWS = 40
"""Resamples of the bootstrap."""


def importances(
    parameters: Sequence[Parameter],
    points: Sequence[Sequence[Value]],
    scores: Sequence[float],
    *,
    draws: int = _DRAWS,
    seed: int = 0,
) -> Mapping[str, Estimate]:
    """Parameter → the share of the scores' variance that it explains, the most important first.

    `points[i]` are the values of trial i, in the order of the parameters. Functional ANOVA on a random forest (Hutter,
    Hoos and Leyton-Brown 2014, ICML), as Optuna has it; shares sum to about 1. The interval is a percentile bootstrap
    over the trials. Empty for fewer than `FEWEST` trials, or where all scores are the same.
    """
    if len(points) < FEWEST or len(set(scores)) < 2:
        return {}
    drawn = np.random.default_rng(seed).integers(len(points), size=(draws, len(points)))
    whole = _shares(parameters, points, scores, seed)
    samples = [
        _shares(parameters, [points[i] for i in rows], [scores[i] for i in rows], seed)
        for rows in drawn
        if len({scores[i] for i in rows}) > 1
    ]
    edges = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    found = {}
    for name in sorted(whole, key=lambda each: -whole[each]):
        low, high = np.quantile([each[name] for each in samples], edges)
        found[name] = Estimate(whole[name], float(low), float(high), len(points))
    return found


def study_of(parameters: Sequence[Parameter], points: Sequence[Sequence[Value]], scores: Sequence[float]) -> Study:
    """The trials as a study of Optuna, which maximises the scores."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
        spread = {each.name: _distribution(each) for each in parameters}
        for point, score in zip(points, scores, strict=True):
            values = dict(zip(spread, point, strict=True))
            study.add_trial(create_trial(params=values, distributions=spread, value=score))
    return study


def _shares(
    parameters: Sequence[Parameter], points: Sequence[Sequence[Value]], scores: Sequence[float], seed: int
) -> Mapping[str, float]:
    study = study_of(parameters, points, scores)
    found = FanovaImportanceEvaluator(n_trees=32, seed=seed).evaluate(study)
    # A parameter that took one value alone explains nothing, and Optuna leaves it out.
    return {each.name: float(found.get(each.name, 0.0)) for each in parameters}


def _distribution(parameter: Parameter) -> BaseDistribution:
    if parameter.choices is not None:
        return CategoricalDistribution(parameter.choices)
    if parameter.whole:
        return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
