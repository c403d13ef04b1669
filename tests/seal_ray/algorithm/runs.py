"""Runs of whole rounds in tests: `built` starts one, `Run.round` plays a round and returns its report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from seal_ray.algorithm.config import SealConfig
from seal_ray.algorithm.report import RoundReport
from seal_ray.algorithm.seal import Seal

Played = list[tuple[int, int, float, tuple[int, ...]]]
"""(group, seed, reward, tokens) of each dialogue."""


@dataclass
class Run:
    """An algorithm and the reports of its rounds."""

    algorithm: Seal
    reports: list[RoundReport] = field(default_factory=list)

    def round(self) -> RoundReport:
        self.algorithm.train()
        return self.reports[-1]

    def play(self, rounds: int) -> list[Played]:
        return [played(self.round()) for _ in range(rounds)]

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """The solver's learnt weights."""
        return dict(self.algorithm.solver.weights())


@contextmanager
def built(config: SealConfig) -> Iterator[Run]:
    algorithm = config.build_algo()
    assert isinstance(algorithm, Seal)
    run = Run(algorithm)
    algorithm.subscribe(run.reports.append)
    try:
        yield run
    finally:
        algorithm.stop()


def played(report: RoundReport) -> Played:
    return [
        (group.plan.number, each.seed, each.reward, each.token_ids_T)
        for group in report.groups
        for each in group.trajectories
    ]


def measured(report: RoundReport) -> dict[str, float]:
    """All metrics but times and restarts."""
    return {name: float(value) for name, value in report.metrics.items() if not name.startswith("perf/")}


def same(left: Mapping[str, float], right: Mapping[str, float]) -> bool:
    """Whether metrics are equal; nan is equal to nan."""
    return left.keys() == right.keys() and all(left[k] == right[k] or left[k] != left[k] for k in left)


def assert_equal(weights: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    assert weights.keys() == expected.keys()
    assert [name for name, tensor in expected.items() if not torch.equal(weights[name], tensor)] == []
