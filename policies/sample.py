"""`Sample`: tokens of which a policy sampled some, with their log-probs. Nothing is tokenised again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sample:
    """T tokens, kept as they were sampled: those of a dialogue, or of a proposal with its prompt.

    `mask_T` is True where the policy sampled the token. `sampled_logprobs_T` are its log-probabilities (nats) under the
    distribution it was sampled from, 0 elsewhere; `versions_T` the version of the sampler's weights, -1 elsewhere.
    `seed` repeats the sampling.
    """

    seed: int
    token_ids_T: tuple[int, ...]
    mask_T: tuple[bool, ...]
    sampled_logprobs_T: tuple[float, ...]
    versions_T: tuple[int, ...]

    @property
    def sampled_tokens(self) -> int:
        """How many tokens the policy sampled."""
        return sum(self.mask_T)


@dataclass(slots=True)
class Recording:
    """A sample while it grows."""

    token_ids_T: list[int] = field(default_factory=list)
    mask_T: list[bool] = field(default_factory=list)
    sampled_logprobs_T: list[float] = field(default_factory=list)
    versions_T: list[int] = field(default_factory=list)

    def read(self, token_ids: Sequence[int]) -> None:
        """Adds tokens that the policy reads."""
        self.token_ids_T += token_ids
        self.mask_T += [False] * len(token_ids)
        self.sampled_logprobs_T += [0.0] * len(token_ids)
        self.versions_T += [-1] * len(token_ids)

    def write(self, token_ids: Sequence[int], logprobs: Sequence[float], versions: Sequence[int]) -> None:
        """Adds tokens that the policy sampled, with their log-probabilities (nats) and the version of its weights."""
        self.token_ids_T += token_ids
        self.mask_T += [True] * len(token_ids)
        self.sampled_logprobs_T += logprobs
        self.versions_T += versions

    def sample(self, seed: int) -> Sample:
        """What was recorded."""
        return Sample(
            seed, tuple(self.token_ids_T), tuple(self.mask_T), tuple(self.sampled_logprobs_T), tuple(self.versions_T)
        )
