"""`python -m tests.bench.windows` draws the proposals of curators with turn probes, window by window, as a PNG."""

from matplotlib.figure import Figure

from seal_ray.report.pictures import BLACK, BLUE, RED, finish, save_picture
from tests.results import RESULTS, comparison
from tuning.comparison.pictures import draw_band, estimates, rounds_of

EXPERIMENT = "curators-tiny-rare"
COLOURS = {"coevolved-probed": RED, "llm-frozen-probed": BLUE, "shuffled-probed": BLACK}
PANELS = {
    "Proposals that help by more than the error of their credit, share": "curator/helping",
    "Gain by turn probes, mean of the proposals": "curator/probe_gain",
    "Entropy, nats a token": "curator/entropy",
    "KL from the first policy, nats a token": "curator/kl",
}
"""Title of a panel → its metric. A frozen curator has no KL."""


def main() -> None:
    runs = comparison(EXPERIMENT)
    figure = Figure(figsize=(12.0, 7.0), dpi=100, layout="constrained")
    for axes, (title, metric) in zip(figure.subplots(2, 2).flat, PANELS.items(), strict=True):
        axes.set_title(title, fontsize=10)
        for arm, colour in COLOURS.items():
            draw_band(axes, estimates(runs.arm_trials(arm), metric), (colour, "solid"), arm)
        finish(axes, rounds_of(runs))
    save_picture(figure, RESULTS / f"{EXPERIMENT}.png")


if __name__ == "__main__":
    main()
