"""`Sample`: tokens of which a policy sampled some; `Trajectory`: the tokens of a dialogue, with verdict and diagnosis.

Nothing is tokenised again.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

from envs.diagnosis import Diagnosis
from envs.interface import Interface
from envs.interface.json_form import dump_interface
from envs.task import JSON
from envs.text import map_texts, valid_text
from envs.trace import Step, Trace

S = TypeVar("S", bound="Sample")


@dataclass(frozen=True, slots=True)
class Sample:
    """T sampled tokens with their context: a dialogue, or a proposal with its prompt.

    `mask_T` is True for tokens that the policy sampled. `sampled_logprobs_T` are their log-probabilities (nats) under
    the distribution that was sampled from, 0 for others; `versions_T` the version of the sampler's weights, -1 for
    others. `seed` repeats the sampling.
    """

    seed: int
    token_ids_T: tuple[int, ...]
    mask_T: tuple[bool, ...]
    sampled_logprobs_T: tuple[float, ...]
    versions_T: tuple[int, ...]

    @property
    def sampled_tokens(self) -> int:
        return sum(self.mask_T)

    def extended(self, kind: Callable[..., S], **more: object) -> S:
        """The same tokens as a sample of another kind, which has `more` fields."""
        return kind(**{each.name: getattr(self, each.name) for each in fields(Sample)}, **more)


@dataclass(slots=True)
class Recording:
    """A sample while it grows."""

    token_ids_T: list[int] = field(default_factory=list)
    mask_T: list[bool] = field(default_factory=list)
    sampled_logprobs_T: list[float] = field(default_factory=list)
    versions_T: list[int] = field(default_factory=list)

    def read(self, token_ids: Sequence[int]) -> None:
        """Adds tokens that the policy reads."""
        self._add(token_ids, False, [0.0] * len(token_ids), [-1] * len(token_ids))

    def write(self, token_ids: Sequence[int], logprobs: Sequence[float], versions: Sequence[int]) -> None:
        """Adds tokens that the policy sampled, with their log-probabilities (nats) and the version of its weights."""
        self._add(token_ids, True, logprobs, versions)

    def _add(self, token_ids: Sequence[int], mask: bool, logprobs: Sequence[float], versions: Sequence[int]) -> None:
        self.token_ids_T += token_ids
        self.mask_T += [mask] * len(token_ids)
        self.sampled_logprobs_T += logprobs
        self.versions_T += versions

    def sample(self, seed: int) -> Sample:
        """The recorded sample."""
        return Sample(seed, *(tuple(getattr(self, each.name)) for each in fields(self)))


class End(StrEnum):
    """What ended a dialogue."""

    FINISHED = "finished"
    """The last turn ended, or the protocol ended the dialogue earlier, by its step limit or at a failed turn."""
    PROMPT = "prompt"
    """The opening is longer than the prompt budget; nothing was sampled."""
    RESPONSE = "response"
    """A completion reached its budget without a stop token."""
    CONTEXT = "context"
    """The dialogue filled the context."""
    STEPS = "steps"
    """As many completions were sampled as the budget allows."""
    TURN = "turn"
    """The turn that was to be played has ended: a turn probe."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One completion's place in a trajectory: `token_ids_T[begin:end]`, its stop token included.

    Its prompt is exactly `token_ids_T[:begin]`, of which `cached` tokens came from the engine's cache.
    """

    begin: int
    end: int
    cached: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory(Sample):
    """The sample of a dialogue of T tokens, with its outcome. `reward` is the verifier's, 0 or 1.

    `unread` is the completion that a budget cut off, which is not in the trace.
    """

    task: str
    category: str
    interface: str
    protocol: str
    policy: str
    sampled: tuple[Sampled, ...]
    reward: float
    diagnosis: Diagnosis
    trace: Trace
    end: End
    unread: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The trajectory as JSON values, with the dialogue as text too. Every text is valid Unicode."""
        texts = [*self.trace.user, *[None] * (len(self.trace.turns) - len(self.trace.user))]
        turns = [
            {
                "user": text,
                "label": str(turn.label),
                "outcome": str(turn.verdict.outcome),
                "detail": turn.detail,
                "flags": sorted(turn.flags),
                "tool": turn.tool,
                "argument": turn.argument,
                "wrong_state": sorted(turn.verdict.wrong_state),
                "steps": list(map(_step_to_dict, steps)),
            }
            for turn, steps, text in zip(self.diagnosis.turns, self.trace.turns, texts, strict=True)
        ]
        return {
            **{name: getattr(self, name) for name in _PLAIN_FIELDS},
            "end": str(self.end),
            "system": self.trace.system,
            "turns": map_texts(turns, valid_text),
            "unread": valid_text(self.unread),
            "token_ids": list(self.token_ids_T),
            "mask": [int(sampled) for sampled in self.mask_T],
            "logprobs": [round(value, 6) for value in self.sampled_logprobs_T],
            "versions": list(self.versions_T),
            "sampled": [[span.begin, span.end, span.cached] for span in self.sampled],
        }


def _step_to_dict(step: Step) -> dict[str, Any]:
    """The step as JSON values. `cues` are the ends of the shown texts that an interface has added."""
    errors = [error.message for error in step.parse_errors]
    results = [record.result for record in step.calls]
    texts = [*results, *(f"[ERROR] {error}" for error in errors)]
    return {
        "completion": step.completion,
        "calls": [[record.call.name, dict(map(_argument, record.call.arguments.items()))] for record in step.calls],
        "failed": [record.is_error for record in step.calls],
        "results": results,
        "parse_errors": errors,
        "cues": [shown.removeprefix(valid_text(text)) for shown, text in zip(step.shown, texts, strict=False)],
    }


def _argument(item: tuple[str, JSON]) -> tuple[str, JSON]:
    """An argument whose value is JSON text unless every reader of JSON takes it."""
    key, value = item
    number = isinstance(value, int | float) and abs(value) < 2**53
    return key, value if number or isinstance(value, str | None) else json.dumps(value)


_PLAIN_FIELDS = ("task", "category", "interface", "protocol", "policy", "seed", "reward")


def interface_id(interface: Interface) -> str:
    """A short name of an interface: "plain", or a fingerprint of its JSON document."""
    if interface == Interface.plain():
        return "plain"
    return hashlib.blake2b(dump_interface(interface).encode(), digest_size=6).hexdigest()


def derive_seed(*parts: object) -> int:
    """A seed of 63 bits from a run's seed, a task's id and so on; the same in every process."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
