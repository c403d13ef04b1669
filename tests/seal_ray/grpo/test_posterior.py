"""The posterior of arms: by hand on one task, against a dense regression, its discount, its bounds and its state."""

import json
import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from seal_ray.grpo.posterior import (
    MOST_ARMS,
    NOISE,
    Cell,
    Posterior,
)

EMPTY = Posterior("plain")


def test_one_task_and_one_arm_by_hand() -> None:
    found = EMPTY.after([Cell("plain", "t", "base", 0.25, 8), Cell("a", "t", "base", 0.75, 8)])
    # Two means of eight rollouts: a difference of 0.5 with the variance 2σ²/8, and the prior N(0, 0.1²).
    assert found.variance == pytest.approx(NOISE)
    noise = 2 * NOISE / 8
    (mean,), covariance = found.moments(["a"])
    assert mean == pytest.approx(0.5 * 0.01 / (0.01 + noise))
    assert covariance[0, 0] == pytest.approx(0.01 * noise / (0.01 + noise))
    probability = NormalDist().cdf(mean / math.sqrt(covariance[0, 0]))
    assert found.probability_above("a", "plain") == pytest.approx(probability)
    assert found.probability_above("a", "plain", 0.05) < probability
    assert found.probability_above("plain", "a") == pytest.approx(1 - probability)
    assert found.probability_above("plain", "plain") == 0.0


@pytest.mark.parametrize("own", [False, True])
def test_it_is_the_regression_on_tasks_arms_and_strata(own: bool) -> None:
    random = np.random.default_rng(1)
    cells = [
        Cell(arm, f"t{task}", f"c{task % 3}", float(random.random()), int(random.integers(2, 9)))
        for task in range(9)
        for arm in ("plain", "a", "b", "c")
        if random.random() < 0.8
    ]
    found = replace(EMPTY, own_noise=own).after(cells)
    arms, strata, tasks = ["a", "b", "c"], found.strata, sorted({cell.block for cell in cells})
    # Dense: a column a task with next to no prior, one an arm and stratum with the prior of the docstring.
    columns = [*tasks, *((arm, stratum) for arm in arms for stratum in strata)]
    rows = np.array(
        [[c == cell.block if isinstance(c, str) else c == (cell.arm, cell.stratum) for c in columns] for cell in cells],
        dtype=float,
    )
    noise = dict(zip(strata, found.variances, strict=True))
    assert len(set(noise.values())) == (3 if own else 1)
    weights = np.diag([cell.rollouts / noise[cell.stratum] for cell in cells])
    prior = np.zeros((len(columns), len(columns)))
    inner = np.linalg.inv(0.005 * (1 + len(strata) * np.eye(len(strata))))
    prior[len(tasks) :, len(tasks) :] = np.kron(np.eye(len(arms)), inner)
    covariance = np.linalg.inv(rows.T @ weights @ rows + prior)
    means = covariance @ rows.T @ weights @ np.array([cell.value for cell in cells])
    mean_of = np.zeros((len(arms), len(columns)))
    for place in range(len(arms)):
        start = len(tasks) + place * len(strata)
        mean_of[place, start : start + len(strata)] = 1 / len(strata)
    means_A, covariances_AA = found.moments(arms)
    assert means_A == pytest.approx(mean_of @ means)
    assert covariances_AA == pytest.approx(mean_of @ covariance @ mean_of.T)
    for place, stratum in enumerate(strata):
        at = [len(tasks) + arm * len(strata) + place for arm in range(len(arms))]
        means_A, covariances_AA = found.moments(arms, stratum)
        assert means_A == pytest.approx(means[at])
        assert covariances_AA == pytest.approx(covariance[np.ix_(at, at)])


def test_a_success_where_nothing_ever_succeeds_tells_more() -> None:
    random = np.random.default_rng(2)

    def cell(arm: str, task: int, rate: float, stratum: str) -> Cell:
        value = float(random.binomial(4, rate)) / 4
        return Cell(arm, f"{stratum} {task}", stratum, value, 4, value * (1 - value) * 4 / 3)

    cells = [
        cell(arm, task, rate, stratum)
        for stratum, rate in (("never", 0.0), ("often", 0.5))
        for task in range(16)
        for arm in ("plain", "a")
    ]
    before = replace(EMPTY, own_noise=True).after(cells)
    never, often = before.variances
    assert never < before.variance < often
    once = [Cell("plain", "x", "?", 0.0, 4), Cell("b", "x", "?", 0.5, 4)]
    means = {}
    for stratum in ("never", "often"):
        found = before.after([replace(each, stratum=stratum) for each in once])
        (means[stratum],), _ = found.moments(["b"], stratum)
    assert means["never"] > 1.3 * means["often"] > 0


def test_the_order_and_the_split_of_windows_change_nothing_without_discount() -> None:
    cells = [
        Cell(arm, f"t{task}", "base", 0.1 * task + 0.05 * place, 4, 0.2)
        for task in range(4)
        for place, arm in enumerate(("plain", "a", "b"))
    ]
    at_once = Posterior("plain", discount=1.0).after(cells)
    one_by_one = Posterior("plain", discount=1.0)
    for task in (3, 1, 0, 2):
        one_by_one = one_by_one.after([cell for cell in cells if cell.block == f"t{task}"])
    # A stratum's residuals need two of its tasks in a window, so that the noise alone is known less well.
    assert one_by_one.information_CAA == pytest.approx(at_once.information_CAA)
    assert one_by_one.evidence_CA == pytest.approx(at_once.evidence_CA)
    assert one_by_one.within_C2 == pytest.approx(at_once.within_C2)


def test_old_windows_count_less_and_are_forgotten() -> None:
    first = EMPTY.after([Cell("plain", "t", "", 0.0, 8), Cell("a", "t", "", 1.0, 8)])
    second = first.after([Cell("plain", "u", "", 0.0, 8), Cell("b", "u", "", 0.0, 8)])
    assert second.information("a") == pytest.approx(0.9 * first.information("a"))
    assert second.moments(["a"])[0][0] < first.moments(["a"])[0][0]
    for _ in range(40):
        second = second.after([])
    assert second.arms == ()
    alone = EMPTY.after([Cell("a", "t", "base", 1.0, 8), Cell("plain", "u", "base", 0.0, 8)])
    assert alone.moments(["a"])[0] == pytest.approx([0.0]), "a task of one arm alone tells nothing"
    assert not alone.knows("a")


def test_a_long_run_keeps_a_bounded_state_that_reads_back() -> None:
    found = EMPTY
    for window in range(30):
        names = ["plain", *(f"{window}.{place}" for place in range(6))]
        found = found.after([Cell(name, f"t{window}", f"c{window % 4}", 0.5, 8, 0.25) for name in names])
    assert len(found.arms) == MOST_ARMS
    state = json.loads(json.dumps(found.to_dict()))
    assert len(json.dumps(state)) < 150_000
    read = EMPTY.with_state(state)
    assert read.to_dict() == found.to_dict()
    assert read.moments(found.arms)[0] == pytest.approx(found.moments(found.arms)[0])


def test_what_is_forgotten_is_integrated_out_and_not_taken_for_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    def after(windows: int) -> Posterior:
        found = replace(EMPTY, discount=1.0)
        for window in range(windows):
            new = [f"{window}.{place}" for place in range(3)]
            values = {"plain": 0.0, "a": 0.0, **dict.fromkeys(new, 0.2)}
            found = found.after([Cell(arm, f"t{window}", "", value, 8, 0.25) for arm, value in values.items()])
        return found

    bounded = after(30)
    assert "a" in bounded.arms
    monkeypatch.setattr("seal_ray.grpo.posterior.MOST_ARMS", 10**6)
    whole = after(30)
    assert (len(bounded.arms), len(whole.arms)) == (MOST_ARMS, 91)
    # Their prior is flat where they are forgotten, and pulls them to 0, and this arm down, where they are not.
    assert whole.moments(["a"])[0][0] < bounded.moments(["a"])[0][0] <= 0.005


def test_the_noise_is_what_arms_and_tasks_leave_unexplained() -> None:
    random = np.random.default_rng(0)
    cells = [
        Cell(arm, f"t{task}", "base", float(task + 0.3 * place + random.normal(0, math.sqrt(0.4 / 8))), 8)
        for task in range(400)
        for place, arm in enumerate(("plain", "a", "b"))
    ]
    found = EMPTY.after(cells)
    assert found.variance == pytest.approx(0.4, rel=0.1)
    assert found.moments(["a", "b"])[0] == pytest.approx([0.3, 0.6], abs=0.04)


def test_groups_go_to_those_that_may_be_best_and_to_all() -> None:
    cells = [
        Cell(arm, f"t{task}", "base", value, 8)
        for task in range(20)
        for arm, value in (("plain", 0.25), ("a", 0.5), ("b", 0.0), ("c", 0.25))
    ]
    found = EMPTY.after(cells)
    counts = found.share_out(["a", "b", "c"], 30, np.random.default_rng(0))
    assert sum(counts) == 30
    assert counts == found.share_out(["a", "b", "c"], 30, np.random.default_rng(0))
    assert counts[0] > counts[2] > counts[1] >= 5
    assert sum(EMPTY.share_out(["a"], 3, np.random.default_rng(0))) == 3
    assert EMPTY.share_out(["a", "b"], 0, np.random.default_rng(0)) == [0, 0]
    even = EMPTY.share_out(["a", "b", "c"], 3000, np.random.default_rng(0))
    assert min(even) > 900
