"""`Sample`: tokens of which a policy sampled some, with their log-probs. Nothing is tokenised again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TypeVar

S = TypeVar("S", bound="Sample")


@dataclass(frozen=True, slots=True)
class Sample:
    """T tokens as they were sampled: those of a dialogue, or of a proposal with its prompt.

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
