"""The plan of a warm start, checked completely before anything starts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from envs.errors import UserError, check_known
from envs.mixture import Mixture, parse_shares
from envs.sources import GENERATED, SEEDS, TaskSource, get_source
from policies.models import open_model
from seal_ray.algorithm.config import SealConfig, apply
from seal_ray.config.presets import parse_words
from seal_ray.config.schema import SolverSection
from seal_ray.evaluation.suites import MAX_CONTEXT

Kind = Literal["oracle", "behaviours", "rare"]
KINDS: tuple[Kind, ...] = ("oracle", "behaviours", "rare")
LEARNING: Mapping[str, Mapping[str, Any]] = {
    "solver": {"temperature": 1.0},
    "curator": {"kind": "none"},
    "training": {
        "loss": "rwr",
        "kl": 0.0,
        "lr": 2e-4,
        "schedule": "cosine",
        "warm_up": 10,
        "microbatch_tokens": 4096,
        "groups": 1,
        "minibatch_groups": 1,
        "epochs": 1,
    },
}
"""Default settings of a warm start. With one group a round is a gradient step."""
SEQUENCE = 910_000
"""Seed of the sequence of generated tasks, far from the seeds of runs and of the small models."""
_RESPONSE = 1024
"""Largest number of tokens of a completion in evaluation."""
_FIXED = {
    "training": {"loss", "kl", "groups", "minibatch_groups", "epochs", "rounds"},
    "curator": {"kind"},
    "solver": {"model"},
}


@dataclass(frozen=True, slots=True)
class Source:
    """A task source, and its share of the demonstrations."""

    name: str
    share: float

    @property
    def tasks(self) -> TaskSource:
        return get_source(self.name, key="--source")


@dataclass(frozen=True, slots=True)
class WarmStart:
    """A warm start. Tokens count everything that the model reads, including prompts and results.

    `difficulties` are drawn evenly for sources that have one; None is the default difficulty. The demonstrations
    `behaviours` have the rates of the small models (`policies/tiny/behaviours.py`), for generated tasks alone; in
    `rare` ones abstaining and recovering need a cue. `proposals` is the share of a curator's demonstrations.
    """

    model: str
    sources: tuple[Source, ...]
    difficulties: tuple[str | None, ...]
    demonstrations: Kind
    proposals: float
    tokens: int
    batch_tokens: int
    evaluate_every: int
    tasks: int
    held_out: int
    seed: int
    overrides: tuple[str, ...]

    def __post_init__(self) -> None:
        check_known("--demonstrations", KINDS, self.demonstrations)
        if self.tokens < self.batch_tokens:
            raise UserError(f"--tokens: {self.tokens} is less than one step, --batch-tokens {self.batch_tokens}.")
        for each in self.sources:
            if isinstance(each.tasks, Mixture):
                raise UserError(f"--source: {each.name} is a mixture; give --source for each of its sources.")
            if "train" not in each.tasks.parts:
                raise UserError(f"--source: {each.name} has no training part to demonstrate.")
        if not 0 <= self.seed < SEEDS - SEQUENCE:
            raise UserError(f"--seed: {self.seed} is not possible; it must be from 0 to {SEEDS - SEQUENCE - 1}.")
        self._check_difficulties()
        if self.demonstrations != "oracle" and [each.name for each in self.sources] != [GENERATED]:
            raise UserError(f"--demonstrations: {self.demonstrations} are known for {GENERATED} alone; take oracle.")
        if self.demonstrations != "oracle" and self.difficulties != (None,):
            raise UserError(f"--difficulty: {self.demonstrations} have difficulties of their own; leave it out.")

    def _check_difficulties(self) -> None:
        taking = [each.tasks for each in self.sources if each.tasks.takes_difficulty]
        for code in filter(None, self.difficulties):
            if not taking:
                raise UserError(f"--difficulty: {code!r:.80} is given, and no source has one.")
            for source in taking:
                source.pool("train", difficulty=code)

    @property
    def steps(self) -> int:
        """Gradient steps."""
        return self.tokens // self.batch_tokens

    def config(self) -> SealConfig:
        """The learner's config. Raises `UserError` for settings that a warm start sets itself."""
        config = apply(SealConfig(), LEARNING)
        own = parse_words(self.overrides)
        for section, values in own.items():
            for key in values:
                if key in _FIXED.get(section, ()):
                    raise UserError(f"{section}.{key}: a warm start sets it itself.")
        apply(config, own)
        room = min(open_model(self.model).context, MAX_CONTEXT)
        if "context" in own.get("solver", {}):
            room = config.section(SolverSection).context
        apply(config, {"solver": {"context": room, "prompt": room, "response": min(room, _RESPONSE)}})
        apply(config, own)
        apply(config, {"solver": {"model": self.model}, "training": {"rounds": self.steps}})
        config.seed = self.seed
        return config

    def as_json(self) -> str:
        """All that the outcome depends on, as JSON."""
        return json.dumps({**asdict(self), "model_files": open_model(self.model).fingerprint()}, indent=1) + "\n"


def parse_sources(words: Sequence[str]) -> tuple[Source, ...]:
    """Reads sources NAME or NAME:SHARE, with `parse_shares`. Raises `UserError`."""
    return tuple(Source(name, share) for name, share in parse_shares(words, key="--source").items())
