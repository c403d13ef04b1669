"""The findings of a comparison in words: which arm is better, how soon, and where it is worse."""

from __future__ import annotations

from collections.abc import Iterator

from tuning.comparison.collect import Comparison
from tuning.comparison.measures import FINAL, GAIN, TURNS, TURNS_GAIN
from tuning.comparison.results import ArmResult, regressions, results_of
from tuning.comparison.texts import counted, markdown_table, shown, shown_difference, shown_given_seeds
from tuning.comparison.threshold import Threshold, threshold_of
from tuning.statistics import LEVEL, remark


def verdicts(comparison: Comparison) -> Iterator[str]:
    """What is shown of each arm's final success, and how far to trust it."""
    baseline = comparison.manifest.baseline
    others = [each for each in results_of(comparison, FINAL) if each.arm != baseline]
    for result in others:
        yield _verdict(result, baseline)
    if not others:
        yield "There is one arm, and nothing to compare it with."
    pairs = [each.difference.count for each in others if each.difference is not None]
    note = remark(min(pairs)) if pairs else None
    if note:
        yield ""
        yield note
    if len(pairs) > 1:
        yield ""
        yield (
            f"{len(pairs)} arms are held against the baseline: Holm's correction of the t statistics' p-values is for "
            "this number, in each measure by itself; intervals are not corrected."
        )


def _verdict(result: ArmResult, baseline: str) -> str:
    found, adjusted = result.difference, result.adjusted_p
    if found is None:
        return f"* **{result.arm}** and {baseline} have no finished seed in common yet."
    over = counted(found.count, "pair") + (f" and {counted(found.tasks, 'task')}" if found.tasks else "")
    text = f"* **{result.arm}** − {baseline}: {shown(found, sign=True)} points of final success over {over}"
    if found.low is None or found.high is None or found.p is None or adjusted is None:
        return f"{text}; no interval from one pair."
    if not found.tasks:
        text += ", seeds only"
    tests = f"p = {found.p:.2g}, {adjusted:.2g} after Holm's correction"
    if found.low <= 0 <= found.high:
        return f"{text}; the interval holds 0, so that neither is shown to be better ({tests})."
    side = f"the interval lies {'above' if found.low > 0 else 'below'} 0"
    if adjusted > 1 - LEVEL:
        return f"{text}; {side}, but for the number of arms that is not enough ({tests})."
    return f"{text}; {side} ({tests})."


def gain_lines(comparison: Comparison) -> list[str]:
    """The section on what training did, and on these trials alone; empty where no model was evaluated before."""
    gains, finals = results_of(comparison, GAIN), results_of(comparison, FINAL)
    if not any(each.estimate for each in gains):
        return []
    baseline = comparison.manifest.baseline
    rows = [
        [
            gain.arm,
            shown(gain.estimate, sign=True),
            shown_given_seeds(gain.estimate),
            "baseline" if final.arm == baseline else shown_given_seeds(final.difference),
        ]
        for gain, final in zip(gains, finals, strict=True)
    ]
    return [
        "## What training did",
        "",
        *markdown_table(
            ["arm", "gain", "gain, these trials alone", f"final − {baseline}, these trials alone"],
            rows,
        ),
        "",
        "**Gain**: success after the last round less that of the model before training, in points, over seeds and "
        "evaluation tasks. **These trials alone**: over the tasks only. It says how well the success of these trained "
        "models is known on other tasks, and nothing about other seeds.",
        "",
    ]


def turn_lines(comparison: Comparison) -> list[str]:
    """The section on single turns; empty where no evaluation counted them."""
    turns, gains = results_of(comparison, TURNS), results_of(comparison, TURNS_GAIN)
    if not any(each.estimate for each in turns):
        return []
    baseline = comparison.manifest.baseline
    rows = [
        [
            each.arm,
            shown(each.estimate),
            shown(gain.estimate, sign=True),
            "baseline" if each.arm == baseline else shown_difference(each),
        ]
        for each, gain in zip(turns, gains, strict=True)
    ]
    return [
        "## Turns",
        "",
        *markdown_table(["arm", "turns done %", "gain", f"− {baseline}"], rows),
        "",
        "Turns of the last evaluation that passed, or in which the solver rightly called nothing, of all turns of its "
        "tasks: they tell models apart that seldom get through a whole dialogue. Intervals are over seeds.",
        "",
    ]


def threshold_lines(comparison: Comparison) -> list[str]:
    """The section on rounds and rollouts to a threshold; empty where there is no threshold."""
    threshold = threshold_of(comparison)
    if threshold is None:
        return []
    baseline = comparison.manifest.baseline
    what = "as given by `--threshold`" if threshold.given else f"the mean final success of {baseline}"
    head = ["arm", "reached by"]
    for unit in (threshold.rounds.unit, threshold.rollouts.unit):
        head += [f"{unit}, median", f"{unit}, restricted mean", "− baseline"]
    return [
        "## To the threshold",
        "",
        "Rounds and training rollouts to the first evaluation with a success of "
        f"{100 * threshold.level:.1f} %, {what}.",
        "",
        *markdown_table(head, list(_times(comparison, threshold))),
        "",
        *_never(comparison, threshold),
        "Medians are Kaplan and Meier's; – where less than half get there. Restricted means count a trial that did "
        "not get there with the whole time for which all were watched, and have Student's interval over seeds. An arm "
        "that is sooner has a difference below 0.",
        "",
    ]


def _times(comparison: Comparison, threshold: Threshold) -> Iterator[list[str]]:
    measures = (threshold.rounds, threshold.rollouts)
    for results in zip(*(results_of(comparison, each) for each in measures), strict=True):
        arm = results[0].arm
        reached = threshold.reached(comparison, arm)
        row = [arm, f"{reached.trials - len(reached.never)} of {reached.trials}"]
        for median, result in zip((reached.median_rounds, reached.median_rollouts), results, strict=True):
            row += ["–" if median is None else f"{median:.0f}", shown(result.estimate, unit=result.measure.unit)]
            row.append("baseline" if arm == comparison.manifest.baseline else shown_difference(result))
        yield row


def _never(comparison: Comparison, threshold: Threshold) -> Iterator[str]:
    names = [name for arm in comparison.manifest.arms for name in threshold.reached(comparison, arm).never]
    if names:
        yield f"**{len(names)} never reached it, and are censored at their last round:** {', '.join(names)}."
        yield ""


def regression_lines(comparison: Comparison) -> Iterator[str]:
    """The categories in which an arm is worse than the baseline."""
    baseline = comparison.manifest.baseline
    found = list(regressions(comparison))
    if found:
        yield f"**Regressions**, categories in which an arm is below {baseline} with its whole interval:"
        yield ""
        for category, result in found:
            p = "" if result.adjusted_p is None else f"; p = {result.adjusted_p:.2g} after Holm's correction"
            measure = result.measure.name.partition("/")[0]
            yield f"* **{result.arm}**, {category}: {shown_difference(result)} points of {measure}{p}"
    elif len(comparison.manifest.arms) > 1:
        yield f"**Regressions:** in no category is an arm below {baseline} with its whole interval."
    if len(comparison.manifest.arms) > 1:
        yield ""
        yield "Categories are many, and nothing is corrected for their number."
