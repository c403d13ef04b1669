"""`PartValues`: what turn probes of all windows say about the parts of interfaces, and so about an interface.

A probe has few points, and proposals repeat each other's guidelines. The gains are therefore regressed on the parts
that interfaces consist of: `gain = Σ values of its parts + effect of the window + noise`, by Bayes' rule with normal
priors. The window's effect is the error of the plain turns, which its interfaces share: at most that of the interface
with the smallest error.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np

from envs.interface import Interface, RecoveryLevel
from envs.task import JSON

PRIOR = 0.1
"""Standard deviation of a part's value before any probe."""
DISCOUNT = 0.8
"""Factor on the information of earlier windows, for each window since: the solver has learnt in between."""
_WINDOWS = 10


@dataclass(frozen=True, slots=True)
class Observation:
    """The gain of an interface with these parts in a window's probes, and its standard error."""

    window: int
    parts: tuple[str, ...]
    gain: float
    error: float


def parts_of(interface: Interface) -> tuple[str, ...]:
    """The parts of an interface: its schema cues, its recovery level, and its guidelines without case and spaces.

    Two guidelines are one part only if all words are equal, since one word can be the whole advice.
    """
    cues = [f"{cue.kind} {' '.join(cue.tools)}" for cue in interface.schema_cues]
    recovery = [str(interface.recovery)] if interface.recovery is not RecoveryLevel.NONE else []
    guidelines = [" ".join(text.split()).rstrip(" .").casefold() for text in interface.guidelines]
    return tuple(dict.fromkeys([*cues, *recovery, *guidelines]))


def shown_text(interface: Interface) -> frozenset[str]:
    """The content of an interface, without case, spaces, full stops and order; empty for the plain one."""
    return frozenset(parts_of(interface))


def words_in(text: str) -> frozenset[str]:
    """The words of a text without case; a name with underscores is one."""
    return frozenset(re.findall(r"\w+", text.casefold()))


def words_of(interface: Interface) -> frozenset[str]:
    """The words of an interface."""
    return words_in(" ".join((*interface.guidelines, str(interface.recovery), *map(str, interface.schema_cues))))


@dataclass(slots=True)
class PartValues:
    """The observations of the last windows. `value` reads them."""

    observations: list[Observation] = field(default_factory=list)
    window: int = 0

    def observe(self, gains: Sequence[tuple[tuple[str, ...], float, float]]) -> None:
        """Adds a window: the parts of interfaces with gain and standard error."""
        self.window += 1
        self.observations = [each for each in self.observations if each.window > self.window - _WINDOWS]
        self.observations += [Observation(self.window, *gain) for gain in gains]

    def values(self, asked: Sequence[tuple[str, ...]]) -> list[tuple[float, float]]:
        """Posterior mean and standard deviation of the gain of each tuple of parts."""
        places, means, covariance = self._posterior(part for parts in asked for part in parts)
        values = []
        for parts in asked:
            at = [places[part] for part in parts]
            values.append((float(means[at].sum()), float(covariance[np.ix_(at, at)].sum()) ** 0.5))
        return values

    def best_part(self, parts: Sequence[str]) -> str:
        """The part of these with the highest posterior mean."""
        places, means, _ = self._posterior(parts)
        return max(parts, key=lambda part: float(means[places[part]]))

    def _posterior(self, asked: Iterable[str]) -> tuple[dict[str | int, int], np.ndarray, np.ndarray]:
        """The place of each part and window, and the posterior's means and covariance in this order."""
        columns = dict.fromkeys([*asked, *(part for each in self.observations for part in each.parts)])
        windows = dict.fromkeys(each.window for each in self.observations)
        keys: list[str | int] = [*columns, *windows]
        places = {key: place for place, key in enumerate(keys)}
        precision = np.eye(len(keys)) / PRIOR**2
        for window in windows:
            # Half of a difference's variance is that of the plain turn.
            shared = min(each.error for each in self.observations if each.window == window) ** 2 / 2
            precision[places[window], places[window]] = 1 / shared
        evidence = np.zeros(len(keys))
        for each in self.observations:
            row = np.zeros(len(keys))
            row[[*(places[part] for part in each.parts), places[each.window]]] = 1.0
            weight = DISCOUNT ** (self.window - each.window) / each.error**2
            precision += weight * np.outer(row, row)
            evidence += weight * each.gain * row
        covariance = np.linalg.inv(precision)
        return places, covariance @ evidence, covariance

    def get_state(self) -> dict[str, JSON]:
        """JSON values for a checkpoint."""
        return {"window": self.window, "observations": [list(astuple(each)) for each in self.observations]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse of `get_state`."""
        self.window = state["window"]
        rows = state["observations"]
        self.observations = [Observation(window, tuple(parts), gain, error) for window, parts, gain, error in rows]
