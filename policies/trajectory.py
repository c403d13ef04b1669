"""`Trajectory`: one dialogue as the policy lived it, in tokens: what it saw, what it sampled, and how it was judged."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from envs.diagnosis import Diagnosis
from envs.interface import Interface
from envs.interface.document import dump_interface
from envs.text import map_texts, valid_text
from envs.trace import Trace
from policies.sample import Sample


class End(StrEnum):
    """What ended a dialogue."""

    FINISHED = "finished"
    """The last turn ended, or the protocol ended the dialogue before: by its step limit, or at a failed turn."""
    PROMPT = "prompt"
    """The opening is longer than the prompt budget; nothing was sampled."""
    RESPONSE = "response"
    """A completion reached its budget without a stop token."""
    CONTEXT = "context"
    """The dialogue filled the context."""
    STEPS = "steps"
    """As many completions were sampled as the budget allows."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One completion's place in a trajectory: `token_ids_T[begin:end]`, its stop token included.

    The prompt it was sampled from is exactly `token_ids_T[:begin]`. `cached` of these tokens came from the engine's
    cache.
    """

    begin: int
    end: int
    cached: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory(Sample):
    """The sample of a dialogue of T tokens, and how the dialogue was judged. `reward` is the verifier's, 0 or 1."""

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

    def to_dict(self) -> dict[str, Any]:
        """The trajectory as JSON values, with the dialogue in words beside the tokens. Every text is valid Unicode."""
        words = [
            {
                "label": str(turn.label),
                "outcome": str(turn.verdict.outcome),
                "detail": turn.detail,
                "flags": sorted(turn.flags),
                "steps": [
                    {
                        "completion": step.completion,
                        "results": [record.result for record in step.calls],
                        "parse_errors": [error.message for error in step.parse_errors],
                    }
                    for step in steps
                ],
            }
            for turn, steps in zip(self.diagnosis.turns, self.trace.turns, strict=True)
        ]
        return {
            "task": self.task,
            "category": self.category,
            "interface": self.interface,
            "protocol": self.protocol,
            "policy": self.policy,
            "seed": self.seed,
            "reward": self.reward,
            "end": str(self.end),
            "turns": map_texts(words, valid_text),
            "token_ids": list(self.token_ids_T),
            "mask": [int(sampled) for sampled in self.mask_T],
            "logprobs": [round(value, 6) for value in self.sampled_logprobs_T],
            "versions": list(self.versions_T),
            "sampled": [[span.begin, span.end, span.cached] for span in self.sampled],
        }


def interface_id(interface: Interface) -> str:
    """A short name of an interface: "plain", or a fingerprint of its JSON document."""
    if interface == Interface.plain():
        return "plain"
    return hashlib.blake2b(dump_interface(interface).encode(), digest_size=6).hexdigest()


def derive_seed(*parts: object) -> int:
    """A seed of 63 bits from a run's seed, a task's id, a member's number and so on; the same in every process."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
