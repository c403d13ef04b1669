"""Every ground truth and as many perturbed calls get the official judgement; the differences are of listed reasons."""

from collections import Counter

from tests.bench.apibank_parity import REASONS, compared
from tests.envs.apibank.folder import needs_data


@needs_data
def test_every_difference_to_the_official_evaluator_has_a_listed_reason() -> None:
    found = list(compared(1))
    reasons = Counter(each.reason() for each in found)
    assert len(found) > 1000
    assert reasons["unknown"] == 0, [each for each in found if each.reason() == "unknown"][:5]
    assert set(reasons) - {None} <= set(REASONS)
    assert reasons[None] > 0.8 * len(found)
    truths = [each for each in found if each.kind == "ground truth"]
    assert (len(truths), sum(each.ours for each in truths)) == (508, 484)
