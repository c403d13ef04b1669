"""Turn probes: proposed interfaces are compared with the plain one where the last window's rollouts failed.

A probe replays a recorded dialogue up to a turn under an interface, samples that turn with the present weights, and
reads its verdict. This costs a turn instead of dialogues. Sampling from intermediate states serves the credit of a
solver elsewhere: VinePPO (arXiv 2410.01679), RTMC (2604.11037), TRACE (2606.11119).
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
from seal_ray.proposing.part_values import words_in, words_of
from seal_ray.rollout.planner import Play
from seal_ray.rollout.types import PLAIN_ARM, Arm, Group, GroupPlan, played_trajectories

STAGES = (0.25, 0.5, 1.0)
"""Shares of the points after which the worse half of the interfaces is left out (successive halving)."""
_LEAST_POINTS = 4
_USEFUL_POINTS = 24
"""Points below which probes distinguish little: then fewer interfaces are probed."""
_PRIOR_VARIANCE, _PRIOR_DIFFERENCES = 0.1, 2
"""Variance of a difference before any probe, and the number of differences that it counts as."""
_STARTS = TypeAdapter(list[TurnStart])


@dataclass(frozen=True, slots=True)
class ProbeValue:
    """An interface's gain over the plain one in the share of rollouts that pass a probed turn, with standard error.

    `stage` counts the stages of successive halving that it was in; each has more `points`. `repaired` are the tools and
    arguments of failed turns that the interface names and that pass more often under it.
    """

    gain: float
    error: float
    points: int
    stage: int
    repaired: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The value of each interface, None for one that was not probed, and what probing took: sampled tokens, seconds."""

    values: Sequence[ProbeValue | None]
    tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Probed:
    """An interface with its points in the order of playing, and the plain rollouts that they represent."""

    arm: Arm
    words: frozenset[str]
    points: Sequence[int]
    rollouts: Mapping[Kind, int]


class TurnProber:
    """Collects the plain rollouts of a window, and scores interfaces at its end. `play` plays groups.

    An interface that names a failed turn's tool or argument is probed at such failed turns alone, and at passed turns:
    the others count as failed again. One that names none is probed at all.
    """

    def __init__(self, spec: RunSpec, play: Play) -> None:
        assert isinstance(spec.curator, LLMCuratorSection)
        self._section = spec.curator
        self._protocol = Protocol(spec.environment.protocol)
        self._temperature = spec.solver.temperature
        self._play = play
        self.start_window()

    def start_window(self) -> None:
        """Removes the rollouts of the last window."""
        self._rollouts: Counter[tuple[Kind, tuple[str, ...]]] = Counter()
        """Kind and names → plain rollouts with such a probed turn."""
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
                    self._rollouts[start.kind, start.names] += 1
                    self._starts.setdefault((start.kind, start.task), start)

    def score(self, interfaces: Sequence[Interface], seed: int) -> ProbeReport:
        """Probes these interfaces, which differ; the first of them if the budget is too small for all.

        The same arguments and window give the same values.
        """
        began = perf_counter()
        points = choose_points(
            list(self._starts.values()),
            self._by_kind(lambda _: True),
            self._section.probe_points,
            self._section.probe_failing,
            random.Random(seed),
        )
        probed, everything = self._affordable(interfaces, points), sum(self._rollouts.values())
        values: list[ProbeValue | None] = [None] * len(interfaces)
        passed_AP = np.full((1 + len(probed), len(points)), np.nan)
        left, taken, tokens, turns = list(range(len(probed))), [0] * len(probed), 0, 0
        for stage, share in enumerate(STAGES, 1):
            most = len(points)
            if tokens:  # hinted turns can take more tokens than the recorded ones
                most = max(0, int((self._section.probe_budget * self._tokens / tokens - 1) * turns / (1 + len(left))))
            cells: dict[tuple[int, int], None] = {}
            for place in left:
                until = min(math.ceil(share * len(probed[place].points)), taken[place] + most)
                new = probed[place].points[taken[place] : until]
                cells |= dict.fromkeys((0, point) for point in new if math.isnan(passed_AP[0, point]))
                cells |= dict.fromkeys((1 + place, point) for point in new)
                taken[place] += len(new)
            if not cells:
                break
            tokens += self._sample(list(cells), [PLAIN_ARM, *(each.arm for each in probed)], points, passed_AP, seed)
            turns += len(cells)
            for place in left:
                differences_P = passed_AP[1 + place] - passed_AP[0]
                gain, error = stratified_gain(points, probed[place].rollouts, differences_P, everything)
                repaired = _repaired(points, probed[place].words, differences_P)
                values[place] = ProbeValue(gain, error, taken[place], stage, repaired)
            gains = [0.0 if value is None else value.gain for value in values]
            left = sorted(sorted(left, key=lambda place: -gains[place])[: math.ceil(len(left) / 2)])
        return ProbeReport(values, tokens, perf_counter() - began)

    def naming(self, parts: Sequence[str]) -> tuple[str, ...]:
        """The parts of an interface that name the tool or the argument of a failed turn of the window."""
        words = {part: words_in(part) for part in parts}
        return tuple(part for part in parts if any(_is_named(names, words[part]) for _, names in self._rollouts))

    def _by_kind(self, counts: Callable[[tuple[Kind, tuple[str, ...]]], bool]) -> Counter[Kind]:
        """Kind → plain rollouts that count."""
        rollouts = Counter[Kind]()
        for key, n in self._rollouts.items():
            rollouts[key[0]] += n * counts(key)
        return rollouts

    def _affordable(self, interfaces: Sequence[Interface], points: Sequence[TurnStart]) -> list[_Probed]:
        """As many of the first interfaces as the budget allows, with as many points as all of them can have."""
        tokens = sum(start.tokens for start in self._starts.values())
        turns = self._section.probe_budget * self._tokens * len(self._starts) / tokens if tokens else 0.0
        for most in range(len(points), _LEAST_POINTS - 1, -1):
            probed = [self._probed(each, points[:most]) for each in interfaces]
            n = max(n for n in range(len(probed) + 1) if turns_of([each.points for each in probed[:n]]) <= turns)
            if n == len(probed) or (n and most <= _USEFUL_POINTS):
                return probed[:n]
        return []

    def _probed(self, interface: Interface, points: Sequence[TurnStart]) -> _Probed:
        """The interface with the points that concern it."""
        words = words_of(interface)
        failed = [place for place, point in enumerate(points) if _is_named(point.names, words)]
        if not failed:
            return _Probed(Arm(interface), words, range(len(points)), self._by_kind(lambda _: True))
        passed = [place for place, point in enumerate(points) if not point.label.is_failure]
        rollouts = self._by_kind(lambda key: not key[0][1] or _is_named(key[1], words))
        return _Probed(Arm(interface), words, [*failed, *passed], rollouts)

    def _sample(
        self,
        cells: Sequence[tuple[int, int]],
        arms: Sequence[Arm],
        points: Sequence[TurnStart],
        passed_AP: np.ndarray,
        seed: int,
    ) -> int:
        """Samples the turns of these arms and points. Returns the number of sampled tokens."""
        groups = self._play(
            [
                self._group(place, arms[arm], points[point], derive_seed(seed, point))
                for place, (arm, point) in enumerate(cells)
            ]
        )
        for group in groups:
            for trajectory in group.trajectories:
                arm, point = cells[group.plan.number]
                passed_AP[arm, point] = trajectory.diagnosis.turns[points[point].turn].label.is_done
        return sum(trajectory.sampled_tokens for trajectory in played_trajectories(groups))

    def _group(self, number: int, arm: Arm, start: TurnStart, seed: int) -> GroupPlan:
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
            "rollouts": [[*kind, *names, n] for (kind, names), n in self._rollouts.items()],
            "starts": _STARTS.dump_python(list(self._starts.values()), mode="json"),
            "tokens": self._tokens,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse of `get_state`."""
        self._starts = {(start.kind, start.task): start for start in _STARTS.validate_python(state["starts"])}
        rows = state["rollouts"]
        self._rollouts = Counter({((category, label), tuple(names)): n for category, label, *names, n in rows})
        self._tokens = state["tokens"]


def _is_named(names: Sequence[str], words: frozenset[str]) -> bool:
    return any(frozenset() < words_in(name) <= words for name in names)


def _repaired(points: Sequence[TurnStart], words: frozenset[str], differences_P: np.ndarray) -> tuple[str, ...]:
    """The names among these words whose turns pass more often."""
    passes = Counter[str]()
    for point, difference in zip(points, differences_P, strict=True):
        for name in point.names:
            passes[name] += 0 if math.isnan(difference) or not _is_named([name], words) else int(difference)
    return tuple(sorted(name for name, n in passes.items() if n > 0))


def turns_of(points: Sequence[Sequence[int]]) -> int:
    """The number of turns that probing interfaces at these points samples at most, those on the plain one included."""
    turns = len({point for each in points for point in each})
    before, left = 0.0, sorted(map(len, points), reverse=True)
    for share in STAGES:
        turns += sum(math.ceil(share * n) - math.ceil(before * n) for n in left)
        before, left = share, left[: math.ceil(len(left) / 2)]
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
    points: Sequence[TurnStart],
    rollouts: Mapping[Kind, int],
    differences_P: Sequence[float] | np.ndarray,
    everything: int,
) -> tuple[float, float]:
    """`Σ_k (share of kind k) · (mean difference at its points)`, and its standard error.

    A share is the kind's `rollouts` over `everything`; rollouts that are in no kind have no difference.
    Differences are 1, 0 or −1, or nan for a lost pair. Failed and passed turns keep their shares of the rollouts; a
    kind without points is replaced by the others on its side. A side without points has no difference, and an error.
    Variances are pooled on each side with prior ones, so that a few equal differences have an error.
    """
    gain = variance = 0.0
    pairs = [(point, float(d)) for point, d in zip(points, differences_P, strict=False) if not math.isnan(d)]
    for side in (True, False):
        played = [(point.kind, d) for point, d in pairs if point.label.is_failure == side]
        share = sum(n for kind, n in rollouts.items() if bool(kind[1]) == side) / everything
        if not played:
            variance += share**2 * _PRIOR_VARIANCE
            continue
        counts = Counter(kind for kind, _ in played)
        covered = sum(rollouts[kind] for kind in counts)
        weights = np.array([share * rollouts[kind] / covered / counts[kind] for kind, _ in played])
        values = np.array([d for _, d in played])
        mean = float(weights @ values / weights.sum())
        known = _PRIOR_DIFFERENCES * _PRIOR_VARIANCE + float(((values - mean) ** 2).sum())
        gain += share * mean
        variance += known / (_PRIOR_DIFFERENCES + len(played)) * float(weights @ weights)
    return gain, math.sqrt(variance)
