"""Importance of a sweep's parameters: Optuna's PED-ANOVA, with a permutation null."""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.study import Study
from optuna.trial import create_trial

from seal_ray.statistics import LEVEL
from tuning.sweep.parameter import SweptParameter, Value

FEWEST = 4
"""Fewest trials that have importances."""
TOP = 0.25
"""Share of the trials, the best ones, whose values are compared with all trials' values."""
_DRAWS = 100
"""Permutations of the scores."""


Importance = tuple[float, float]
"""The importance of a parameter, as a share of the sum over all, and its 95 % quantile if scores are permuted.

Below the quantile there is no evidence that the parameter matters.
"""


def importances(
    parameters: Sequence[SweptParameter],
    points: Sequence[Sequence[Value]],
    scores: Sequence[float],
    *,
    draws: int = _DRAWS,
) -> Mapping[str, Importance]:
    """Parameter → its importance, the most important first.

    PED-ANOVA (Watanabe, Bansal and Hutter 2023, arXiv 2304.10255) measures how much a parameter's distribution among
    the best `TOP` of the trials differs from its distribution among all trials. A parameter that never changed has 0.

    Args:
        points: The values of every trial, in the order of the parameters.

    Returns:
        Empty for fewer than `FEWEST` trials, or if all scores are equal.
    """
    if len(points) < FEWEST or len(set(scores)) < 2:
        return {}
    study, rng = study_of(parameters, points, scores), np.random.default_rng(0)
    varied = [
        each.name for each, values in zip(parameters, zip(*points, strict=True), strict=True) if len({*values}) > 1
    ]

    def evaluate(order: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float64]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna warns that low targets are best
            values = get_param_importances(
                study,
                evaluator=PedAnovaImportanceEvaluator(target_quantile=TOP),
                params=varied,
                target=lambda trial: -scores[order[trial.number]],
                normalize=False,
            )
        return np.array([values[name] for name in varied])

    observed = evaluate(range(len(scores)))
    null = np.quantile([evaluate(rng.permutation(len(scores))) for _ in range(draws)], LEVEL, axis=0)
    total = observed.sum() or 1.0
    shares = {
        name: (float(value / total), float(chance / total))
        for name, value, chance in zip(varied, observed, null, strict=True)
    }
    shares |= {each.name: (0.0, 0.0) for each in parameters if each.name not in shares}
    return dict(sorted(shares.items(), key=lambda item: -item[1][0]))


def study_of(parameters: Sequence[SweptParameter], points: Sequence[Sequence[Value]], scores: Sequence[float]) -> Study:
    """The trials as a study of Optuna that maximises the scores."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    distributions = {parameter.name: _distribution(parameter) for parameter in parameters}
    for point, score in zip(points, scores, strict=True):
        values = dict(zip(distributions, point, strict=True))
        study.add_trial(create_trial(params=values, distributions=distributions, value=score))
    return study


def _distribution(parameter: SweptParameter) -> BaseDistribution:
    if parameter.choices is not None:
        return CategoricalDistribution(parameter.choices)
    if parameter.whole:
        return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
