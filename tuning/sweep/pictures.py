"""Pictures of a sweep: its trials as parallel coordinates, and the importance of its parameters."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from seal_ray.report.pictures import BLUE, save_picture
from tuning.sweep.importance import FEWEST, Importance, study_of
from tuning.sweep.parameter import SweptParameter, Value

_DPI = 100


def draw_parallel(
    parameters: Sequence[SweptParameter], points: Sequence[Sequence[Value]], scores: Sequence[float], path: Path
) -> None:
    """Draws every trial as a line through its values, coloured by its last evaluation success."""
    if not points:
        _draw_nothing(path, "no trial was evaluated yet")
        return
    from optuna.visualization.matplotlib import plot_parallel_coordinate

    # Optuna draws with pyplot, whose style it changes globally.
    with mpl.rc_context({"backend": "agg"}), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        axes = plot_parallel_coordinate(study_of(parameters, points, scores), target_name="evaluation success")
        figure = axes.figure
        assert isinstance(figure, Figure)
        figure.set_size_inches(max(8.0, 1.6 * len(parameters)), 6.0)
        figure.set_dpi(_DPI)
        figure.tight_layout()
        save_picture(figure, path)
        mpl.pyplot.close(figure)


def draw_importances(values: Mapping[str, Importance], path: Path, *, trials: int, at_round: int | None) -> None:
    """Draws the importance of the parameters, the most important on top, with the quantile of permuted scores."""
    if not values:
        _draw_nothing(path, f"importance needs {FEWEST} trials that differ in success; there are {trials}")
        return
    figure = Figure(figsize=(9.0, 1.5 + 0.35 * len(values)), dpi=_DPI, layout="constrained")
    axes = figure.subplots()
    axes.set_title(f"Importance for success after round {at_round} ({trials} trials)")
    names = list(values)[::-1]
    shares, chances = zip(*(values[name] for name in names), strict=True)
    axes.barh(names, shares, color=BLUE, alpha=0.6)
    axes.scatter(chances, names, marker="|", s=200, color="black", zorder=3)
    axes.set_xlim(0, 1.05 * max(1.0, *chances))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axes.set_xlabel("importance (% of the sum, PED-ANOVA); black: 95 % quantile if scores are permuted")
    axes.grid(visible=True, axis="x", alpha=0.25)
    save_picture(figure, path)


def _draw_nothing(path: Path, why: str) -> None:
    figure = Figure(figsize=(8.0, 2.0), dpi=_DPI)
    figure.text(0.5, 0.5, why, ha="center", va="center", color="#666666")
    save_picture(figure, path)
