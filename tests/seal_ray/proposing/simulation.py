"""Windows of a curator by simulation: the product's planning and posterior, on success rates that were measured.

`docs/results/task-rates.csv` has the plain success of 96 training tasks of the tiny preset, sampled at temperature 1 by
the shipped model. Rounds and windows are as in the presets tiny and coevolved.
"""

import csv
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from seal_ray.grpo.posterior import Cell, Posterior, choose_by_posterior
from seal_ray.rollout.planner import alternating

RATES = Path(__file__).parents[3] / "docs" / "results" / "task-rates.csv"
PLAIN = "plain"
GROUPS, SIZE, ROUNDS, ARMS = 16, 8, 2, 3
"""Groups of a round, members of a group, rounds of a window, and its arms besides the plain one and the incumbent."""
MARGIN, PROMOTE_AT = 0.05, 0.8
GAIN = 0.15
"""The gain of a good arm in success, on average over categories."""
Effect = Literal["even", "one category"]
EFFECTS: tuple[Effect, ...] = ("one category", "even")


@cache
def recorded() -> dict[str, list[tuple[int, int]]]:
    """Category → successes and rollouts of each of its tasks."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    with RATES.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found[row["category"]].append((int(row["successes"]), int(row["rollouts"])))
    return dict(found)


@dataclass(frozen=True)
class Setting:
    """Groups of a round on the plain interface, and whether half of a group under an arm is plain."""

    plain: int
    pairs: bool
    effect: Effect = "one category"


QUARTER = Setting(plain=4, pairs=False)
PAIRED = Setting(plain=1, pairs=True)


class Simulation:
    """One run: windows in which fresh arms come up, of which one may be better."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting = setting
        self.random = np.random.default_rng(seed)
        self.categories = sorted(recorded())
        self.posterior = Posterior(PLAIN)
        self.incumbent = PLAIN
        self.drawn = 0

    def window(self, good: frozenset[str] = frozenset(), fresh: tuple[str, ...] = ()) -> None:
        """Plays a window of the incumbent, an earlier arm that may be better, and `fresh` ones."""
        setting = self.setting
        self.tasks: dict[str, tuple[str, float]] = {}
        names = [PLAIN, *dict.fromkeys([*([] if self.incumbent == PLAIN else [self.incumbent]), *self._earlier()])]
        names += fresh[: ARMS - (len(names) - 1 - int(self.incumbent != PLAIN))]
        categories = Counter[str]()
        cells = dict[tuple[str, str], list[int]]()
        for _ in range(ROUNDS):
            so_far = self.posterior.after(self._cells(cells))
            counts = so_far.share_out(names[1:], GROUPS - setting.plain, self.random)
            tasks = self._draw(max(setting.plain, *counts))
            order = alternating([self.tasks[task][0] for task in tasks], categories)
            categories.update(self.tasks[tasks[place]][0] for place in order[: max(counts)])
            for name, groups in zip(names, [setting.plain, *counts], strict=True):
                paired = setting.pairs and name != PLAIN
                members = SIZE // 2 if paired else SIZE
                for place in order[:groups]:
                    for arm in (name, PLAIN) if paired else (name,):
                        self._play(cells, arm, tasks[place], members, good)
        self.posterior = self.posterior.after(self._cells(cells))
        self.incumbent = choose_by_posterior(
            self.posterior, names, self.incumbent, margin=MARGIN, promote_at=PROMOTE_AT
        )

    def _earlier(self) -> list[str]:
        """As `ArmStatistics.challenger`."""
        likely = {
            name: self.posterior.probability_above(name, self.incumbent, MARGIN)
            for name in ("never played", *self.posterior.arms)
            if name != self.incumbent
        }
        best = max(likely, key=lambda name: likely[name])
        return [best] if likely[best] > likely["never played"] else []

    def _draw(self, count: int) -> list[str]:
        names = []
        for _ in range(count):
            category = self.categories[self.drawn % len(self.categories)]
            rates = recorded()[category]
            done, played = rates[self.random.integers(len(rates))]
            # The posterior of its rate, under a prior with mass at 0 and 1.
            rate = float(self.random.beta(done + 0.1, played - done + 0.1))
            names.append(f"task {self.drawn}")
            self.tasks[names[-1]] = (category, rate)
            self.drawn += 1
        return names

    def _play(self, cells: dict[tuple[str, str], list[int]], arm: str, task: str, n: int, good: frozenset[str]) -> None:
        category, rate = self.tasks[task]
        if arm in good:
            rate += (1 - rate) * rescued(self.setting.effect, category)
        cell = cells.setdefault((arm, task), [0, 0])
        cell[0] += int(self.random.binomial(n, rate))
        cell[1] += n

    def _cells(self, cells: dict[tuple[str, str], list[int]]) -> list[Cell]:
        return [
            Cell(arm, task, self.tasks[task][0], done / n, n, done / n * (1 - done / n) * n / (n - 1))
            for (arm, task), (done, n) in cells.items()
        ]


def rescued(effect: Effect, category: str) -> float:
    """Share of failures that an arm turns into successes, so that success grows by `GAIN` on average."""
    means = {name: float(np.mean([k / n for k, n in tasks])) for name, tasks in recorded().items()}
    if effect == "even":
        return GAIN / (1 - float(np.mean(list(means.values()))))
    rarest = min(means, key=lambda name: means[name])
    return GAIN * len(means) / (1 - means[rarest]) if category == rarest else 0.0


def replaced_without_effect(setting: Setting, *, runs: int, windows: int) -> float:
    """Share of windows in which the incumbent is replaced although no arm does anything."""
    replaced = 0
    for run in range(runs):
        found = Simulation(setting, run)
        for number in range(windows):
            before = found.incumbent
            found.window(fresh=tuple(f"{number}.{place}" for place in range(ARMS)))
            replaced += found.incumbent != before
    return replaced / (runs * windows)


def promoted_within_two(setting: Setting, *, runs: int) -> float:
    """Share of runs in which the one good arm is promoted in the first or second window."""
    promoted = 0
    for run in range(runs):
        found = Simulation(setting, 10_000 + run)
        after = []
        for number in range(2):
            fresh = tuple("good" if place == number == 0 else f"{number}.{place}" for place in range(ARMS))
            found.window(frozenset({"good"}), fresh)
            after.append(found.incumbent)
        promoted += "good" in after
    return promoted / runs
