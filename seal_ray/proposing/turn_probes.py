"""Turn probes: proposed interfaces are compared with the plain one where the last window's rollouts failed.

A probe replays a recorded dialogue up to a turn under an interface, samples that turn with the present weights, and
reads its verdict. This costs a turn instead of dialogues. Sampling from intermediate states serves the credit of a
solver elsewhere: VinePPO (arXiv 2410.01679), RTMC (2604.11037), TRACE (2606.11119).
"""

import itertools
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from envs.dialogue import Protocol
from envs.interface import Interface
from envs.task import JSON
from policies.trajectory import derive_seed
from policies.turn_start import Kind, TurnStart, turn_start, turn_to_probe
from seal_ray.config.resolve import RunSpec
from seal_ray.config.schema import LLMCuratorSection
from seal_ray.rollout.planner import Play
from seal_ray.rollout.types import PLAIN_ARM, Arm, Group, GroupPlan, played_trajectories

STAGES = (0.25, 0.5, 1.0)
"""Shares of the points after which the worse half of the interfaces is left out (successive halving)."""
_LEAST_POINTS = 4
_USEFUL_POINTS = 16
"""Points below which probes distinguish little: so many interfaces are probed as this leaves room for."""
_STARTS = TypeAdapter(list[TurnStart])


@dataclass(frozen=True, slots=True)
class ProbeValue:
    """An interface's gain over the plain one in the share of rollouts that pass a probed turn, with standard error.

    `stage` counts the stages of successive halving that it was in; each has more `points`.
    """

    gain: float
    error: float
    points: int
    stage: int


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The value of each interface, None for one that was not probed, and what probing took: sampled tokens, seconds."""

    values: Sequence[ProbeValue | None]
    tokens: int = 0
    seconds: float = 0.0


class TurnProber:
    """Collects the plain rollouts of a window, and scores interfaces at its end. `play` plays groups."""

    def __init__(self, spec: RunSpec, play: Play) -> None:
        assert isinstance(spec.curator, LLMCuratorSection)
        self._section = spec.curator
        self._protocol = Protocol(spec.environment.protocol)
        self._temperature = spec.solver.temperature
        self._play = play
        self.start_window()

    def start_window(self) -> None:
        """Removes the rollouts of the last window."""
        self._rollouts: Counter[Kind] = Counter()
        """Kind → plain rollouts whose probed turn is of this kind."""
        self._starts: dict[tuple[Kind, str], TurnStart] = {}
        """(kind, task) → one beginning of such a turn."""
        self._tokens = 0

    def observe(self, groups: Sequence[Group]) -> None:
        """Adds a round's rollouts to the window."""
        for group in groups:
            for member in group.played:
                trajectory = member.trajectory
                self._tokens += trajectory.sampled_tokens
                turn = turn_to_probe(trajectory) if member.arm.plain else None
                start = None if turn is None else turn_start(trajectory, turn)
                if start is not None:
                    self._rollouts[start.kind] += 1
                    self._starts.setdefault((start.kind, start.task), start)

    def room(self) -> int:
        """The number of interfaces that can be probed at enough points."""
        points, turns = min(self._section.probe_points, _USEFUL_POINTS), self._turns()
        return next(n for n in itertools.count() if turns_of(points, n + 1) > turns)

    def _turns(self) -> float:
        """The number of turns that the budget allows."""
        tokens = sum(start.tokens for start in self._starts.values())
        return self._section.probe_budget * self._tokens * len(self._starts) / tokens if tokens else 0.0

    def score(self, interfaces: Sequence[Interface], seed: int) -> ProbeReport:
        """Probes these interfaces, which differ. The same arguments and window give the same values."""
        began = perf_counter()
        section, starts = self._section, list(self._starts.values())
        if not starts or not interfaces:
            return ProbeReport([None] * len(interfaces))
        budget, turns = section.probe_budget * self._tokens, self._turns()
        most = max((n for n in range(section.probe_points + 1) if turns_of(n, len(interfaces)) <= turns), default=0)
        points = choose_points(starts, self._rollouts, most, section.probe_failing, random.Random(seed))
        if len(points) < _LEAST_POINTS:
            return ProbeReport([None] * len(interfaces))
        arms = [PLAIN_ARM, *map(Arm, interfaces)]
        passed_AP = np.full((len(arms), len(points)), np.nan)
        values: dict[int, ProbeValue] = {}
        left, before, tokens, played = list(range(1, len(arms))), 0, 0, 0
        for stage, share in enumerate(STAGES, 1):
            after = math.ceil(share * len(points))
            if tokens:  # hinted turns can take more tokens than the recorded ones
                after = min(after, before + int((budget / tokens - 1) * played / (1 + len(left))))
            if after <= before:
                break
            cells = [(arm, point) for arm in (0, *left) for point in range(before, after)]
            groups = self._play(
                [
                    self._plan(place, arms[arm], points[point], derive_seed(seed, point))
                    for place, (arm, point) in enumerate(cells)
                ]
            )
            for group in groups:
                for trajectory in group.trajectories:
                    arm, point = cells[group.plan.number]
                    passed_AP[arm, point] = trajectory.diagnosis.turns[points[point].turn].label.is_done
            tokens += sum(trajectory.sampled_tokens for trajectory in played_trajectories(groups))
            played += len(cells)
            for arm in left:
                gain, error = stratified_gain(points, self._rollouts, passed_AP[arm] - passed_AP[0])
                values[arm] = ProbeValue(gain, error, after, stage)
            left = sorted(sorted(left, key=lambda arm: -values[arm].gain)[: math.ceil(len(left) / 2)])
            before = after
        return ProbeReport([values[arm] for arm in range(1, len(arms))], tokens, perf_counter() - began)

    def _plan(self, number: int, arm: Arm, start: TurnStart, seed: int) -> GroupPlan:
        return GroupPlan(
            number=number,
            task=start.task,
            category=start.category,
            arm=arm,
            protocol=self._protocol,
            seeds=(seed,),
            temperature=self._temperature,
            start=start,
        )

    def get_state(self) -> dict[str, JSON]:
        """JSON values for a checkpoint."""
        return {
            "rollouts": [[*kind, n] for kind, n in self._rollouts.items()],
            "starts": _STARTS.dump_python(list(self._starts.values()), mode="json"),
            "tokens": self._tokens,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse of `get_state`."""
        self._starts = {(start.kind, start.task): start for start in _STARTS.validate_python(state["starts"])}
        self._rollouts = Counter({(category, label): n for category, label, n in state["rollouts"]})
        self._tokens = state["tokens"]


def turns_of(points: int, interfaces: int) -> int:
    """The number of turns that probing so many interfaces samples, those on the plain interface included."""
    turns, before, left = points, 0, interfaces
    for share in STAGES:
        after = math.ceil(share * points)
        turns += left * (after - before)
        before, left = after, math.ceil(left / 2)
    return turns


def choose_points(
    starts: Sequence[TurnStart], rollouts: Mapping[Kind, int], most: int, failing: float, rng: random.Random
) -> list[TurnStart]:
    """At most `most` starts, of which a share of `failing` failed, each kind by its rollouts, spread over tasks.

    Every beginning of the list is stratified in the same way, since successive halving uses it first.
    """
    by_kind: dict[Kind, list[TurnStart]] = {}
    for start in rng.sample(starts, len(starts)):
        by_kind.setdefault(start.kind, []).append(start)
    taken: Counter[Kind] = Counter()
    tasks: Counter[str] = Counter()
    points: list[TurnStart] = []
    while by_kind and len(points) < most:
        failed = sum(point.label.is_failure for point in points)
        wants_failure = failed < failing * (len(points) + 1)
        kinds = [kind for kind, left in by_kind.items() if left[0].label.is_failure == wants_failure] or list(by_kind)
        kind = min(kinds, key=lambda kind: ((taken[kind] + 1) / rollouts[kind], kind))
        point = min(by_kind[kind], key=lambda start: tasks[start.task])
        by_kind[kind].remove(point)
        if not by_kind[kind]:
            del by_kind[kind]
        taken[kind] += 1
        tasks[point.task] += 1
        points.append(point)
    return points


def stratified_gain(
    points: Sequence[TurnStart], rollouts: Mapping[Kind, int], differences_P: Sequence[float] | np.ndarray
) -> tuple[float, float]:
    """`Σ_k (share of kind k) · (mean difference at its points)`, and its standard error.

    Differences are 1, 0 or −1, or nan for a lost pair. Failed and passed turns keep their shares of the rollouts; a
    kind without points is replaced by the others on its side. Variances are pooled on each side, and half an
    observation is added to them, so that a few equal differences have an error.
    """
    gain = variance = 0.0
    everything = sum(rollouts.values())
    pairs = [(point, float(d)) for point, d in zip(points, differences_P, strict=False) if not math.isnan(d)]
    for side in (True, False):
        played = [(point.kind, d) for point, d in pairs if point.label.is_failure == side]
        if not played:
            continue
        counts = Counter(kind for kind, _ in played)
        share = sum(n for kind, n in rollouts.items() if bool(kind[1]) == side) / everything
        covered = sum(rollouts[kind] for kind in counts)
        weights = np.array([share * rollouts[kind] / covered / counts[kind] for kind, _ in played])
        values = np.array([d for _, d in played])
        mean = float(weights @ values / weights.sum())
        spread = (float(((values - mean) ** 2).sum()) + 0.5) / len(played)
        gain += share * mean
        variance += spread * float(weights @ weights)
    return gain, math.sqrt(variance)
