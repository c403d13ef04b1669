"""Windows of a curator by simulation: the product's planning and posterior, on success rates that were measured.

`docs/results/task-rates.csv` has the plain success of 96 training tasks of the tiny preset, sampled at temperature 1 by
the model as it is shipped. `python -m tests.seal_ray.proposing.simulation` prints the table of docs/curator.md.
"""

import csv
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from seal_ray.grpo.posterior import Cell, Posterior, choose_by_posterior
from seal_ray.rollout.planner import alternating, equal_counts

RATES = Path(__file__).parents[3] / "docs" / "results" / "task-rates.csv"
PLAIN = "plain"
Effect = Literal["even", "one category"]
EFFECTS: tuple[Effect, ...] = ("one category", "even")


def recorded() -> dict[str, list[tuple[int, int]]]:
    """Category → successes and rollouts of each of its tasks."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    with RATES.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found[row["category"]].append((int(row["successes"]), int(row["rollouts"])))
    return dict(found)


@dataclass(frozen=True)
class Setting:
    """One way to run windows; the defaults are those of the tiny preset with the preset coevolved."""

    groups: int = 16
    size: int = 8
    rounds: int = 2
    plain: int = 8
    """Groups of a round on the plain interface."""
    arms: int = 3
    """Arms of a window other than the plain one and the incumbent."""
    pairs: bool = False
    """Whether half of a group under an arm is plain."""
    thompson: bool = True
    margin: float = 0.05
    promote_at: float = 0.8
    prior: float = 0.1
    discount: float = 0.9
    gain: float = 0.15
    """The gain of a good arm in success, on average over categories."""
    effect: Effect = "one category"


class Simulation:
    """One run: windows in which fresh arms come up, of which one may be better by 0.15."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting = setting
        self.random = np.random.default_rng(seed)
        self.rates = recorded()
        self.categories = sorted(self.rates)
        self.posterior = Posterior(PLAIN, prior=setting.prior, discount=setting.discount)
        self.incumbent = PLAIN
        self.drawn = 0

    def window(self, good: frozenset[str] = frozenset(), fresh: tuple[str, ...] = ()) -> None:
        """Plays a window of the incumbent, an earlier arm that may be better, and `fresh` ones."""
        setting = self.setting
        self.tasks: dict[str, tuple[str, float]] = {}
        names = [PLAIN, *dict.fromkeys([*([] if self.incumbent == PLAIN else [self.incumbent]), *self._earlier()])]
        beside = int(self.incumbent != PLAIN)
        names += fresh[: setting.arms - (len(names) - 1 - beside)]
        arms, categories = Counter[str](), Counter[str]()
        cells = dict[tuple[str, str], list[int]]()
        for _ in range(setting.rounds):
            slots = setting.groups - setting.plain
            if setting.thompson:
                counts = self.posterior.after(self._cells(cells)).share_out(names[1:], slots, self.random)
            else:
                counts = equal_counts(slots, names[1:], arms)
            tasks = self._draw(max(setting.plain, *counts))
            order = alternating([self.tasks[task][0] for task in tasks], categories)
            arms.update(dict(zip(names[1:], counts, strict=True)))
            categories.update(self.tasks[tasks[place]][0] for place in order[: max(counts)])
            for name, groups in zip(names, [setting.plain, *counts], strict=True):
                paired = setting.pairs and name != PLAIN
                members = setting.size // 2 if paired else setting.size
                for place in order[:groups]:
                    self._play(cells, name, tasks[place], members, good)
                    if paired:
                        self._play(cells, PLAIN, tasks[place], members, good)
        self.posterior = self.posterior.after(self._cells(cells))
        self.incumbent = choose_by_posterior(
            self.posterior, names, self.incumbent, margin=setting.margin, promote_at=setting.promote_at
        )

    def _earlier(self) -> list[str]:
        """As `ArmStatistics.challenger`."""
        margin = self.setting.margin
        bar = self.posterior.probability_above("never played", self.incumbent, margin)
        likely = {
            name: self.posterior.probability_above(name, self.incumbent, margin)
            for name in self.posterior.arms
            if name != self.incumbent
        }
        best = max(likely, key=lambda name: likely[name], default=None)
        return [best] if best is not None and likely[best] > bar else []

    def _draw(self, count: int) -> list[str]:
        names = []
        for _ in range(count):
            category = self.categories[self.drawn % len(self.categories)]
            done, played = self.rates[category][self.random.integers(len(self.rates[category]))]
            # The posterior of its rate, under a prior with mass at 0 and 1.
            rate = float(self.random.beta(done + 0.1, played - done + 0.1))
            names.append(f"task {self.drawn}")
            self.tasks[names[-1]] = (category, rate)
            self.drawn += 1
        return names

    def _play(self, cells: dict[tuple[str, str], list[int]], arm: str, task: str, n: int, good: frozenset[str]) -> None:
        category, rate = self.tasks[task]
        if arm in good:
            rate += (1 - rate) * rescued(self.setting.effect, category, self.setting.gain)
        cell = cells.setdefault((arm, task), [0, 0])
        cell[0] += int(self.random.binomial(n, rate))
        cell[1] += n

    def _cells(self, cells: dict[tuple[str, str], list[int]]) -> list[Cell]:
        found = []
        for (arm, task), (done, n) in cells.items():
            rate = done / n
            found.append(Cell(arm, task, self.tasks[task][0], rate, n, rate * (1 - rate) * n / (n - 1)))
        return found


def rescued(effect: Effect, category: str, gain: float = 0.15) -> float:
    """Share of failures that an arm turns into successes, so that success grows by `gain` on average."""
    means = {name: float(np.mean([k / n for k, n in tasks])) for name, tasks in recorded_once().items()}
    if effect == "even":
        return gain / (1 - float(np.mean(list(means.values()))))
    rarest = min(means, key=lambda name: means[name])
    return gain * len(means) / (1 - means[rarest]) if category == rarest else 0.0


_RECORDED: dict[str, list[tuple[int, int]]] = {}


def recorded_once() -> dict[str, list[tuple[int, int]]]:
    if not _RECORDED:
        _RECORDED.update(recorded())
    return _RECORDED


def replaced_without_effect(setting: Setting, *, runs: int, windows: int, seed: int = 0) -> float:
    """Share of windows in which the incumbent is replaced where no arm does anything."""
    replaced = 0
    for run in range(runs):
        found = Simulation(setting, seed + run)
        for number in range(windows):
            before = found.incumbent
            found.window(fresh=tuple(f"{number}.{place}" for place in range(setting.arms)))
            replaced += found.incumbent != before
    return replaced / (runs * windows)


def promoted_within_two(setting: Setting, *, runs: int, seed: int = 10_000) -> tuple[float, float]:
    """Share of runs in which the one good arm is promoted in the first window, and in the first or second."""
    first = second = 0
    for run in range(runs):
        found = Simulation(setting, seed + run)
        good = frozenset({"good"})
        others = [tuple(f"{number}.{place}" for place in range(setting.arms)) for number in range(2)]
        found.window(good, ("good", *others[0][1:]))
        after_one = found.incumbent == "good"
        found.window(good, others[1])
        first += after_one
        second += after_one or found.incumbent == "good"
    return first / runs, second / runs


def in_common(setting: Setting, *, runs: int, windows: int = 6, seed: int = 400_000) -> tuple[float, float]:
    """Where every arm adds the same: share of runs that end with another incumbent than plain, and what that is taken
    to be worth on average over these runs."""
    every = [tuple(f"{number}.{place}" for place in range(setting.arms)) for number in range(windows)]
    good = frozenset(name for names in every for name in names)
    gains = []
    for run in range(runs):
        found = Simulation(setting, seed + run)
        for fresh in every:
            found.window(good, fresh)
        if found.incumbent != PLAIN:
            gains.append(float(found.posterior.moments([found.incumbent])[0][0]))
    return len(gains) / runs, float(np.mean(gains)) if gains else 0.0


TINY = Setting()
"""The preset tiny with the preset coevolved, before the fade-out."""
QUARTER = replace(TINY, plain=4)
"""The same with a quarter of the groups plain."""
PAIRED = replace(TINY, plain=1, pairs=True)
"""Half of each group under an arm is plain, and one group of a round."""
TABLE = {
    "half plain": TINY,
    "a quarter plain": QUARTER,
    "pairs": PAIRED,
    "pairs, taking turns": replace(PAIRED, thompson=False),
    "a quarter plain, taking turns": replace(QUARTER, thompson=False),
    "a quarter plain, 4 arms": replace(QUARTER, arms=4),
    "pairs, 4 arms": replace(PAIRED, arms=4),
    "pairs, discount 0.8": replace(PAIRED, discount=0.8),
    "pairs, margin 0": replace(PAIRED, margin=0.0),
}


def main(runs: int = 400) -> None:
    """With other seeds than those of the tests and of what was tried before."""
    print("| | replaced without effect | +0.15 in one category | +0.15 in all |")
    print("| --- | --- | --- | --- |")
    for name, setting in TABLE.items():
        null = replaced_without_effect(setting, runs=runs, windows=5, seed=200_000)
        shares = [promoted_within_two(replace(setting, effect=each), runs=runs, seed=300_000) for each in EFFECTS]
        cells = [f"{second:.0%} ({first:.0%})" for first, second in shares]
        print(f"| {name} | {null:.1%} | {' | '.join(cells)} |", flush=True)
    share, gain = in_common(replace(PAIRED, effect="even", gain=0.1), runs=runs)
    print(f"\nPairs, every arm +0.1: after six windows one is shown in {share:.0%} of runs, and taken for {gain:+.3f}.")


if __name__ == "__main__":
    main()
