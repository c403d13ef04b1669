"""The section on exact tests, and the warning of arms that learn with some seeds and not with others."""

from collections.abc import Iterator
from itertools import pairwise

from seal_ray.statistics import Estimate
from tuning.comparison.collect import Comparison
from tuning.comparison.findings import markdown_table, section, shown_p, threshold_source
from tuning.comparison.measures import AREA, FINAL, categories_in, in_category, results_by_arm, value_of
from tuning.comparison.threshold import threshold_of

_GAP = 0.2
"""Smallest distance in success between runs that learnt and runs that did not."""


def exact_lines(comparison: Comparison) -> list[str]:
    """The section on runs that learnt and on exact tests; empty without a threshold or a second arm."""
    threshold = threshold_of(comparison)
    if threshold is None or len(comparison.manifest.arms) < 2:
        return []
    rows = [
        [results[0].arm, shown_count(results[0].estimate), *map(shown_p, results)]
        for results in results_by_arm(comparison, threshold.learnt, FINAL, AREA)
    ]
    return section(
        "## Exact tests",
        markdown_table(["arm", "learnt", "Fisher's p, learnt", "sign-flip p, final", "sign-flip p, area"], rows),
        f"**Learnt**: runs that end with a success of {100 * threshold.level:.1f} % or more, "
        f"{threshold_source(comparison, threshold)}, with Wilson's interval in percent. Tests are two-sided, against "
        f"{comparison.manifest.baseline}; in brackets after Holm's correction for the number of arms. Fisher's test "
        "compares the runs that learnt. The sign-flip test is over seeds: with n pairs its p is 2^(1 − n) or more.",
    )


def shown_count(estimate: Estimate | None) -> str:
    """A share of runs as a count, with its interval in percent; "–" if there is none."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return "–"
    count = round(estimate.mean * estimate.count)
    return f"{count} of {estimate.count} [{100 * estimate.low:.0f}, {100 * estimate.high:.0f}]"


def all_or_nothing(comparison: Comparison) -> Iterator[str]:
    """Names the arms whose runs end in two groups, further from each other than the runs of a group."""
    split = []
    for measure in (FINAL, *(in_category(FINAL, each) for each in categories_in(comparison))):
        for arm in comparison.manifest.arms:
            values = sorted(v for each in comparison.arm_trials(arm) if (v := value_of(each, measure)) is not None)
            gaps = [right - left for left, right in pairwise(values)]
            if len(gaps) < 2:
                continue
            place = gaps.index(max(gaps))
            low, high = values[place : place + 2]
            if gaps[place] >= max(_GAP, low - values[0], values[-1] - high):
                ends = f"{place + 1} of {len(values)} at {100 * low:.0f} % or less, others from {100 * high:.0f} %"
                split.append(f"{arm} in {measure.name} ({ends})")
    if split:
        yield ""
        yield (
            f"**All or nothing:** {'; '.join(split)}. With three to five seeds, Student's intervals are too narrow for "
            "such arms: look at the runs that learnt, and at the exact tests."
        )
