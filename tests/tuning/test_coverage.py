"""The promise of the interval of a difference: it holds the true one in 95 of 100 comparisons, by simulation.

A comparison is simulated as it is played: the logit of an arm's success on a task is the sum of the task's difficulty,
the arm's gain on it, how well the arm came out with a seed, and how it came out on just this task; then 0 or 1 is
drawn. All of these are drawn anew each time, so that the true difference is that over all tasks and seeds.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]
from scipy.special import expit  # type: ignore[import-untyped]

from seal_ray.statistics import Floats, crossed_error
from tests.conftest import TABLE

TASKS = 400
DIFFICULTY = 2.0
"""Standard deviation over tasks, in logits: most are nearly always or nearly never solved."""


@dataclass(frozen=True)
class World:
    """In logits: level and gain, and the standard deviations of seeds, of what arms share of them, and of the rest."""

    seed: float
    gain: float = 0.5
    gain_spread: float = 0.5
    shared: float = 0.0
    rest: float = 0.5
    level: float = 0.0

    def draw(self, rng: np.random.Generator, runs: int, seeds: int, tasks: int) -> tuple[Floats, Floats]:
        """The 0s and 1s of both arms: runs × seeds × tasks."""
        base = self.level + rng.normal(0, DIFFICULTY, (runs, 1, tasks)) + rng.normal(0, self.shared, (runs, seeds, 1))
        gain = self.gain + rng.normal(0, self.gain_spread, (runs, 1, tasks))
        arms = []
        for added in (0.0, gain):
            logit = base + added + rng.normal(0, self.seed, (runs, seeds, 1))
            logit = logit + rng.normal(0, self.rest, (runs, seeds, tasks))
            arms.append((rng.random((runs, seeds, tasks)) < expit(logit)).astype(float))
        return arms[0], arms[1]

    def truth(self) -> float:
        """The difference over all seeds and tasks: sums of normal logits are normal."""
        points, weights = np.polynomial.hermite_e.hermegauss(80)
        weights = weights / weights.sum()
        spread = DIFFICULTY**2 + self.seed**2 + self.shared**2 + self.rest**2
        plain = weights @ expit(self.level + np.sqrt(spread) * points)
        gained = weights @ expit(self.level + self.gain + np.sqrt(spread + self.gain_spread**2) * points)
        return float(gained - plain)


WORLDS = {
    "3 points between seeds": World(seed=0.2),
    "3 points between seeds, gains that differ much by task": World(seed=0.2, gain_spread=1.5),
    "4 points, a low level, no gain": World(seed=0.3, gain=0.0, gain_spread=1.0, level=-2.0, rest=1.0),
    "6 points between seeds": World(seed=0.4),
    "6 points, half of it shared by the arms": World(seed=0.28, shared=0.28, gain_spread=1.0),
}
UNLIKE = WORLDS["3 points between seeds, gains that differ much by task"]


@dataclass(frozen=True)
class Coverage:
    """Shares of the intervals that hold the true difference, and an arm's mean deviation over seeds in points."""

    crossed: float
    seeds_only: float
    points: float


def coverage(world: World, *, seeds: int, runs: int, tasks: int = TASKS) -> Coverage:
    rng, truth = np.random.default_rng(1), world.truth()
    crossed, alone, points = [], [], []
    for _ in range(runs // 250):
        plain, gained = world.draw(rng, 250, seeds, tasks)
        by_task = gained - plain
        off = np.abs(by_task.mean(axis=(-2, -1)) - truth)
        error, df = crossed_error(by_task)
        crossed.append(off <= stats.t.ppf(0.975, df) * error)
        of_seeds = by_task.mean(axis=-1).std(axis=-1, ddof=1) / np.sqrt(seeds)
        alone.append(off <= stats.t.ppf(0.975, seeds - 1) * of_seeds)
        points.append(plain.mean(axis=-1).std(axis=-1, ddof=1))
    return Coverage(float(np.mean(crossed)), float(np.mean(alone)), 100 * float(np.mean(points)))


def test_with_8_seeds_95_of_100_intervals_hold_the_truth(
    record_property: Callable[[str, object], None],
) -> None:
    # 1,000 comparisons: a standard error of 0.7 points.
    found = {name: coverage(world, seeds=8, runs=1000) for name, world in WORLDS.items()}
    lines = [f"{name}: {each.crossed:.1%}, seeds only {each.seeds_only:.1%}" for name, each in found.items()]
    record_property(TABLE, "intervals of 8 seeds × 400 tasks that hold the true difference\n" + "\n".join(lines))
    for name, each in found.items():
        assert 2.5 < each.points < 6.5, name
        assert 0.93 <= each.crossed <= 0.97, name


@pytest.mark.parametrize(("seeds", "tasks", "least"), [(3, 400, 0.92), (5, 400, 0.93), (8, 50, 0.93)])
def test_fewer_seeds_or_tasks_cost_little(seeds: int, tasks: int, least: float) -> None:
    assert least <= coverage(UNLIKE, seeds=seeds, tasks=tasks, runs=1000).crossed <= 0.975


def test_seeds_alone_leave_out_the_choice_of_tasks() -> None:
    found = coverage(World(seed=0.0, gain_spread=2.0), seeds=8, runs=500)
    assert 0.93 <= found.crossed <= 0.97
    assert found.seeds_only < 0.8


def test_of_categories_with_other_gains_stratified_intervals_hold_it_too_and_are_narrower() -> None:
    """A gain in one of four categories, as of a skill that a run learns; every comparison has as many tasks of each."""
    rng, gain = np.random.default_rng(4), World(seed=0.2, gain=4.0, gain_spread=0.5, level=-2.0)
    none = World(seed=0.2, gain=0.0, gain_spread=0.5, level=-2.0)
    pairs = [world.draw(rng, 500, 8, TASKS // 4) for world in (gain, none, none, none)]
    by_task = np.concatenate([gained - plain for plain, gained in pairs], axis=-1)
    off = np.abs(by_task.mean(axis=(-2, -1)) - gain.truth() / 4)
    halves = []
    for strata in (None, [str(task // (TASKS // 4)) for task in range(TASKS)]):
        error, df = crossed_error(by_task, strata)
        halves.append(stats.t.ppf(0.975, df) * error)
    whole, stratified = halves
    assert 0.93 <= np.mean(off <= stratified) <= 0.98
    assert np.mean(off <= whole) >= 0.98
    assert stratified.mean() < 0.8 * whole.mean()
