"""`python -m tests.bench.forest` draws `forest.png` and writes `guided.csv` in `docs/results/`, from the runs there."""

from dataclasses import replace

from matplotlib.figure import Figure

from seal_ray.report.pictures import BLACK, save_picture
from tests.results import PIECES, RESULTS, TABLES, comparison, measure_of, values_of
from tuning.comparison.measures import GUIDED, results_of
from tuning.comparison.pictures import draw_differences
from tuning.record import write_csv


def main() -> None:
    runs = [
        (each, arm, seed, f"{value:.6f}")
        for each in PIECES
        for arm in comparison(each).manifest.arms
        for seed, value in values_of(each, arm, GUIDED).items()
    ]
    write_csv(RESULTS / "guided.csv", [("experiment", "arm", "seed", "guided_minus_plain"), *runs])
    figure = Figure(figsize=(8.0, 13.0), dpi=100, layout="constrained")
    experiments = [*PIECES, *TABLES]
    sizes = [len(comparison(each).manifest.arms) for each in experiments]
    for axes, each in zip(figure.subplots(len(sizes), 1, sharex=True, height_ratios=sizes), experiments, strict=True):
        found = [(one.difference, one) for one in results_of(comparison(each), measure_of(each, "final"))]
        known = sorted(((one, result) for one, result in found if one), key=lambda pair: -pair[0].mean)
        draw_differences(axes, [replace(result, arm=f"{result.arm}, {one.count} seeds") for one, result in known])
        for line in axes.lines:
            line.set_color(BLACK)
        axes.set_title(f"{each}: final success minus {comparison(each).manifest.baseline}", loc="left", fontsize=10)
        axes.label_outer()
    save_picture(figure, RESULTS / "forest.png")


if __name__ == "__main__":
    main()
