"""Runs of whole rounds in tests: `built` starts one, `Run.round` plays a round and returns its report."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

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
        assert self.algorithm.report is not None
        self.reports.append(self.algorithm.report)
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
    try:
        yield run
    finally:
        algorithm.stop()


def all_weights(run: Run) -> dict[str, dict[str, torch.Tensor]]:
    """The learnt weights by agent."""
    return {name: dict(agent.weights()) for name, agent in run.algorithm.agents.items() if agent.spec.trainable}


def check_resumes(
    config: Callable[[], SealConfig], folder: Path, *, rounds: int = 2, moved: SealConfig | None = None
) -> Run:
    """Plays a round, and `rounds` more that a restored run, of the config `moved` if given, plays to the last bit."""
    with built(config()) as run:
        dialogues = run.play(1)
        run.algorithm.save_to_path(str(folder / "state"))
        dialogues += run.play(rounds)
        state, expected = timeless_state(run), all_weights(run)
    with built(moved or config()) as again:
        again.algorithm.restore_from_path(str(folder / "state"))
        assert again.play(rounds) == dialogues[1:]
        assert all(map(same, map(measured, again.reports), map(measured, run.reports[1:])))
        assert timeless_state(again) == state
        weights = all_weights(again)
    assert weights.keys() == expected.keys()
    for name, tensors in expected.items():
        assert_equal(weights[name], tensors)
    return run


def timeless_state(run: Run) -> dict[str, object]:
    """The state of the rounds, without the seconds of a round that is played and not yet learnt."""
    state = run.algorithm.run.get_state()
    ahead = json.loads(state["ahead"])
    return {**state, "ahead": ahead and {**ahead, "times": {}}}


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
