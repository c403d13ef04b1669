"""`RoundReport`: the immutable result of a round, for recorder, progress line, trackers and callbacks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from envs.task import JSON
from seal_ray.evaluation.suites import Outcomes
from seal_ray.proposing.loop import WindowReport
from seal_ray.rollout.types import Arm, Group
from seal_ray.training.rows import RowWeight


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """An evaluation: the outcome of each task, metrics by their names below `evaluation/`, and the played groups."""

    outcomes: Outcomes
    metrics: Mapping[str, float]
    seconds: float
    groups: Sequence[Group] = ()


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One round.

    `arms` are the arms of the curator's window, the plain one first; `window_rounds` counts the window's rounds so far.
    `profile` is the failure profile after the round. `metrics` have the names of `seal_ray/metrics.py`, times among
    them. `weighted` has the advantage and weight of each rollout that gave a row, by its seed. `evaluation` is set if
    the round was followed by one.

        def on_round(report: RoundReport) -> None:
            print(report.round, report.metrics["solver/success"], len(report.curator.proposals))

        SealConfig().on_round(on_round)
    """

    round: int
    groups: tuple[Group, ...]
    arms: tuple[Arm, ...]
    window_rounds: int
    curator: WindowReport
    task_writer: WindowReport
    profile: Mapping[str, JSON]
    metrics: Mapping[str, float] = field(default_factory=dict)
    weighted: Mapping[int, RowWeight] = field(default_factory=dict)
    evaluation: EvaluationReport | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", MappingProxyType(dict(self.metrics)))


OnRound = Callable[[RoundReport], None]
"""Called after each round. Exceptions are logged, and training continues."""
