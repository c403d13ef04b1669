"""How much each parameter of a sweep matters: functional ANOVA over the trials, with intervals from a bootstrap."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.study import Study
from optuna.trial import create_trial

from tuning.statistics import LEVEL, Estimate
from tuning.sweep.anova import Axis, Floats, main_effects
from tuning.sweep.parameter import SweptParameter, Value

FEWEST = 4
"""Trials under which nothing is said."""

_DRAWS = 40
"""Resamples of the bootstrap."""

_TREES = 32
"""Trees of a forest."""


def importances(
    parameters: Sequence[SweptParameter],
    points: Sequence[Sequence[Value]],
    scores: Sequence[float],
    *,
    draws: int = _DRAWS,
    seed: int = 0,
) -> Mapping[str, Estimate]:
    """Parameter → the share of the scores' variance that it explains, the most important first.

    `points[i]` are the values of trial i, in the order of the parameters. A share is that of the parameter alone, in
    functional ANOVA on a random forest (`anova.py`); what they lack to 1 is explained by parameters together. A
    parameter with `log` is weighed on its logarithmic scale, as its values are drawn. The interval is a percentile
    bootstrap over the trials. Empty for fewer than `FEWEST` trials, or where all scores are the same.
    """
    if len(points) < FEWEST or len(set(scores)) < 2:
        return {}
    rng = np.random.default_rng(seed)
    whole = _shares(parameters, points, scores, rng)
    drawn = rng.integers(len(points), size=(draws, len(points)))
    samples = [
        _shares(parameters, [points[i] for i in rows], [scores[i] for i in rows], rng)
        for rows in drawn
        if len({scores[i] for i in rows}) > 1
    ]
    low, high = np.quantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return {
        parameters[i].name: Estimate(float(whole[i]), float(low[i]), float(high[i]), len(points))
        for i in np.argsort(-whole, kind="stable")
    }


def study_of(parameters: Sequence[SweptParameter], points: Sequence[Sequence[Value]], scores: Sequence[float]) -> Study:
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
    parameters: Sequence[SweptParameter],
    points: Sequence[Sequence[Value]],
    scores: Sequence[float],
    rng: np.random.Generator,
) -> Floats:
    axes = [_axis(parameter, [point[i] for point in points]) for i, parameter in enumerate(parameters)]
    return main_effects(axes, np.array(scores, dtype=np.float64), trees=_TREES, rng=rng)


def _axis(parameter: SweptParameter, values: Sequence[Value]) -> Axis:
    if parameter.choices is not None:
        return Axis.of_choices([parameter.choices.index(value) for value in values], len(parameter.choices))
    # A whole number stands for all that are rounded to it.
    half = 0.5 if parameter.whole else 0.0
    ends = [parameter.low - half, parameter.high + half]
    scaled = np.array([*ends, *values], dtype=np.float64)
    scaled = np.log(scaled) if parameter.log else scaled
    low, high = scaled[:2]
    return Axis.of_numbers((scaled[2:] - low) / ((high - low) or 1.0))


def _distribution(parameter: SweptParameter) -> BaseDistribution:
    if parameter.choices is not None:
        return CategoricalDistribution(parameter.choices)
    if parameter.whole:
        return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
