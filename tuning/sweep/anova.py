"""Functional ANOVA over a random forest (Hutter, Hoos and Leyton-Brown 2014, ICML). Of NumPy alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Axis:
    """One parameter, in cells within which no split falls."""

    cells: Whole
    """The cell of each point."""
    widths: Floats
    """Share of the parameter's range that each cell takes."""
    left: Bools
    """Splits × cells: which lie on a split's left."""

    @classmethod
    def of_numbers(cls, places: Floats) -> Axis:
        """An axis of places between 0 and 1, which is split halfway between neighbours."""
        levels, cells = np.unique(places, return_inverse=True)
        width = np.diff((levels[1:] + levels[:-1]) / 2, prepend=0.0, append=1.0)
        return cls(cells, width, np.tri(len(levels) - 1, len(levels), dtype=np.bool_))

    @classmethod
    def of_choices(cls, choices: Sequence[int], count: int) -> Axis:
        """An axis of `count` choices, of which a split parts one from the others."""
        return cls(np.array(choices), np.full(count, 1 / count), np.eye(count, dtype=np.bool_))


def main_effects(axes: Sequence[Axis], scores: Floats, *, trees: int, rng: np.random.Generator) -> Floats:
    """The share of the forest's variance over the whole space that each parameter explains alone, a mean over trees.

    What the shares lack to 1 is explained by parameters together. A tree grows on a bootstrap of the points until its
    leaves are pure. Zeros where no tree varies.
    """
    found = []
    for _ in range(trees):
        leaves = list(_grow(axes, scores, rng.integers(len(scores), size=len(scores)), rng))
        values = np.array([value for _, value in leaves])
        volumes = np.array([[box[a] @ axis.widths for box, _ in leaves] for a, axis in enumerate(axes)])
        weights = np.prod(volumes, axis=0)
        mean = values @ weights
        variance = (values - mean) ** 2 @ weights
        if variance <= 0:
            continue
        inside = [np.array([box[a] for box, _ in leaves]) for a in range(len(axes))]
        marginals = [(values * weights / volume) @ each for volume, each in zip(volumes, inside, strict=True)]
        shares = [(each - mean) ** 2 @ axis.widths / variance for each, axis in zip(marginals, axes, strict=True)]
        found.append([0.0 if each.all() else share for each, share in zip(inside, shares, strict=True)])
    return np.mean(found, axis=0) if found else np.zeros(len(axes))


def _grow(
    axes: Sequence[Axis], scores: Floats, rows: Whole, rng: np.random.Generator
) -> Iterator[tuple[list[Bools], float]]:
    """The leaves of a regression tree on the rows: each its cells of every axis, and its mean score."""
    left_of = np.concatenate([axis.left.T[axis.cells] for axis in axes], axis=1)
    places = [(a, k) for a, axis in enumerate(axes) for k in range(len(axis.left))]
    axis_of = np.array([a for a, _ in places], dtype=np.int64)
    waiting = [(rows, [np.ones(len(axis.widths), dtype=np.bool_) for axis in axes])]
    while waiting:
        rows, box = waiting.pop()
        own, of_rows = scores[rows], left_of[rows]
        counts = of_rows.sum(axis=0)
        splits = np.flatnonzero((counts > 0) & (counts < len(rows)))
        if not len(splits) or np.ptp(own) == 0:
            yield box, float(own.mean())
            continue
        count, sums, total = counts[splits], own @ of_rows[:, splits], own.sum()
        gains = sums**2 / count + (total - sums) ** 2 / (len(rows) - count)
        # Few points leave many equal splits: one is drawn, its parameter first, so that none leads by its place.
        best = splits[gains >= gains.max() - 1e-12]
        split = best[np.argmax(rng.random(len(axes))[axis_of[best]] + 1e-9 * rng.random(len(best)))]
        a, k = places[split]
        for side, cells in ((of_rows[:, split], axes[a].left[k]), (~of_rows[:, split], ~axes[a].left[k])):
            waiting.append((rows[side], [*box[:a], box[a] & cells, *box[a + 1 :]]))
