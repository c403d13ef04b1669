"""Groups of learners for a tiny random model, rows for them, and the same learning written plainly."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn

from envs.roles import CURATOR, SOLVER
from envs.text_space import UnicodeText
from seal_ray.algorithm.config import SealConfig
from seal_ray.config.resolve import LORA_TARGETS, AgentSpec
from seal_ray.config.schema import TrainingSection
from seal_ray.grpo.losses import GRPOLoss
from seal_ray.grpo.rows import Row, make_row
from seal_ray.training.learner import SealLearner
from seal_ray.training.learner_group import SealLearnerGroup
from tests.policies.models import VOCABULARY, load
from tests.seal_ray.grpo.reference import batch_loss, scores

PREFIX = "language_model."
WHOLE = ["learner/rl_module", "learner/optimizer"]
"""Parts of the state that sharded learners store only by name."""
OFF_POLICY_WEIGHT = "sqrt"
DUAL_CLIP = GRPOLoss.Settings().dual_clip or math.inf
OPENING = 6
"""Tokens that the rows of a minibatch begin with; a learner computes them once for the rows of a group."""
LENGTHS = ((19, 33, 8, 27, 14), (21,), (30, 9, 25, 12))
"""Rows of each minibatch; of the second, one of two learners gets none."""


class LearnerOnTwoMachines(SealLearner):
    """One of four learners, of which two are on a machine."""

    @property
    def machine(self) -> str:
        return f"machine {dist.get_rank() // 2}"


class TwoMachines(SealConfig):
    def get_default_learner_class(self) -> type:
        return LearnerOnTwoMachines


def learner_config(
    model: Path,
    *,
    solver: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    machines: int = 1,
    **learners: Any,
) -> SealConfig:
    """A config for learning alone: float32, small micro-batches, a rate at which three steps change a lot."""
    settings = {"rounds": 8, "groups": 12, "minibatch_groups": 4, "lr": 2e-4, "kl": 0.05, "microbatch_tokens": 48}
    return (
        (SealConfig if machines == 1 else TwoMachines)()
        .solver(**{"model": str(model), "context": 256, "dtype": "float32", "temperature": 0.9, **(solver or {})})
        .training(**{**settings, "warm_up": 4, **(training or {})})
        .learners(**{"num_cpus_per_learner": 0.5, "threads": 1, **learners})
    )


def build_group(config: SealConfig) -> SealLearnerGroup:
    texts: Any = (UnicodeText(), UnicodeText())
    spaces = {"__env__": texts, "__env_single__": texts, SOLVER: texts, CURATOR: texts}
    group = config.build_learner_group(rl_module_spec=config.get_multi_rl_module_spec(spaces=spaces))
    assert isinstance(group, SealLearnerGroup)
    return group


def set_weights(group: SealLearnerGroup, weights: Mapping[str, Tensor]) -> None:
    group.set_weights({SOLVER: {"weights": dict(weights)}})


def disturb(group: SealLearnerGroup) -> None:
    """Moves all that learns away from the reference policy: so adapters do something, and the KL is not 0."""
    torch.manual_seed(5)
    weights = group.module_weights(SOLVER)
    lora = any("lora_" in name for name in weights)
    set_weights(group, {name: w + torch.randn(w.shape) * (0.02 if lora else 0.002) for name, w in weights.items()})


class PlainLearner:
    """The same learning as plainly as can be: row by row and token by token in float64, by torch's own AdamW."""

    def __init__(
        self, config: SealConfig, model: Path, weights: Mapping[str, Tensor], *, stripped: bool = False
    ) -> None:
        self.stripped = stripped
        self.solver: AgentSpec = config.spec.agents[SOLVER]
        self.training = self.solver.training
        self.frozen = load(model).double()
        self.model: nn.Module = load(model)
        if self.solver.lora_rank:
            rank, alpha = self.solver.lora_rank, self.solver.lora_alpha
            lora = LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(LORA_TARGETS), lora_dropout=0.0)
            self.model = get_peft_model(self.model, lora)
        self.model.double()
        self.learning = {PREFIX + name: p for name, p in self.model.named_parameters() if p.requires_grad}
        assert self.learning.keys() == weights.keys()
        with torch.no_grad():
            for name, parameter in self.learning.items():
                parameter.copy_(weights[name])
        epsilon = self.training.adam_epsilon
        self.optimizer = torch.optim.AdamW(self.learning.values(), eps=epsilon, weight_decay=0.0)
        self.steps = 0

    @torch.no_grad()
    def values(self, model: nn.Module, rows: Sequence[Row]) -> list[list[float]]:
        return [[float(each) for each in scores(model, row, self.solver.temperature)] for row in rows]

    def minibatches(self, lengths: Sequence[Sequence[int]] = LENGTHS, *, seed: int = 7) -> list[list[Row]]:
        """Rows with a common opening, whose sampling log-probs differ from the model's by enough to clip."""
        numbers = np.random.default_rng(seed)
        found = []
        for each in lengths:
            opening = numbers.integers(0, VOCABULARY, OPENING)
            rows = []
            for number, length in enumerate(each):
                mask_T = numbers.random(length) < 0.6
                mask_T[:OPENING], mask_T[-1] = False, True
                token_ids_T = np.concatenate([opening, numbers.integers(0, VOCABULARY, length - OPENING)])
                advantage = (-1.0) ** number * (0.5 + number / 4)
                # Every second row with a positive advantage.
                stripped_of = f"arm {number // 4}" if self.stripped and not number % 4 else None
                row = make_row(token_ids_T, mask_T, np.full(length, -1.0), advantage, stripped_of=stripped_of)
                sampled_logprobs_T = row.sampled_logprobs_T.copy()
                current = np.array(self.values(self.model, [row])[0])
                spread = 0.2 if stripped_of is None else 1.0
                sampled_logprobs_T[mask_T] = current + numbers.normal(0, spread, len(current))
                rows.append(replace(row, sampled_logprobs_T=sampled_logprobs_T))
            found.append(rows)
        return found

    def learn(self, minibatches: Sequence[Sequence[Row]]) -> dict[str, float]:
        """One step for each minibatch. Returns the metrics that can be known plainly."""
        t = self.training
        settings = GRPOLoss.Settings(
            clip_low=t.clip_low, clip_high=t.clip_high, kl=t.kl, importance_cap=t.importance_cap
        )
        proximal = [self.values(self.model, rows) for rows in minibatches]
        totals = {"loss": 0.0, "kl": 0.0, "kl_sampler": 0.0}
        ratios: dict[bool, list[float]] = {False: [], True: []}
        tokens, norm, rate, first_error = {False: 0, True: 0}, 0.0, 0.0, 0.0
        clipped, capped = {False: 0, True: 0}, 0
        for number, (rows, start) in enumerate(zip(minibatches, proximal, strict=True)):
            reference, now = self.values(self.frozen, rows), self.values(self.model, rows)
            for row, of_start, of_reference, current in zip(rows, start, reference, now, strict=True):
                own = row.stripped_of is not None
                sampled = row.sampled_logprobs_T[row.mask_T].tolist()
                old = of_start if own or t.importance_cap is not None else sampled
                if not number:
                    ratios[own] += [math.exp(c - o) for c, o in zip(current, old, strict=True)]
                totals["kl"] += sum(_k3(r - c) for c, r in zip(current, of_reference, strict=True)) * (not own)
                totals["kl_sampler"] += sum(_k3(c - o) for c, o in zip(current, sampled, strict=True)) * (not own)
                tokens[own] += len(current)
                clipped[own] += sum(
                    _is_clipped(math.exp(c - o), row.advantage, t) for c, o in zip(current, old, strict=True)
                )
                if t.importance_cap is not None and not own:
                    capped += sum(math.exp(p - o) >= t.importance_cap for p, o in zip(of_start, sampled, strict=True))
            if not number:
                first_error = math.sqrt(2 * totals["kl_sampler"] / tokens[False])
            loss = batch_loss(self.model, rows, settings, self.solver.temperature, reference, start, OFF_POLICY_WEIGHT)
            totals["loss"] += loss.item() * sum(map(len, now))
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            norm = float(nn.utils.clip_grad_norm_(self.learning.values(), t.grad_clip))
            rate = t.lr * min(1.0, (self.steps + 1) / max(1, t.warm_up))
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
            self.steps += 1
        self.proximal = proximal
        every = sum(tokens.values())
        return {
            **{name: value / (every if name == "loss" else tokens[False]) for name, value in totals.items()},
            "ratio_first": sum(ratios[False]) / len(ratios[False]),
            "ratio_first_error": first_error,
            "hint_stripped_ratio_first": sum(ratios[True]) / max(1, len(ratios[True])),
            "gradient_norm": norm,
            "learning_rate": rate,
            "tokens": every,
            "hint_stripped_tokens": tokens[True],
            "clip_fraction": sum(clipped.values()) / every,
            "hint_stripped_clip_fraction": clipped[True] / max(1, tokens[True]),
            "capped_fraction": capped / tokens[False],
            "steps": len(minibatches),
        }

    def moments(self, key: str) -> dict[str, Tensor]:
        return {name: self.optimizer.state[parameter][key] for name, parameter in self.learning.items()}


def _is_clipped(ratio: float, advantage: float, settings: TrainingSection) -> bool:
    if advantage > 0:
        return ratio > 1 + settings.clip_high
    return ratio < 1 - settings.clip_low or ratio > DUAL_CLIP


def _k3(log_ratio: float) -> float:
    assert log_ratio <= 10, "beyond 10 nats the loss has its tangent"
    return math.exp(log_ratio) - log_ratio - 1


def distance(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """The largest relative distance of a tensor. A tensor that is almost 0 is compared with a thousandth of all."""
    assert found.keys() == expected.keys()
    whole = torch.stack([tensor.double().norm() for tensor in expected.values()]).norm()
    assert whole > 0
    return max(
        float((found[name].double() - tensor).norm() / (tensor.double().norm() + 1e-3 * whole))
        for name, tensor in expected.items()
    )


def flat(state: Mapping[str, Any], prefix: str = "") -> dict[str, Tensor]:
    """A nested state's tensors, by path."""
    found: dict[str, Tensor] = {}
    for key, value in state.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}/")
        elif isinstance(value, Tensor):
            found[prefix + key] = value
    return found


def state_of(group: SealLearnerGroup) -> dict[str, Tensor]:
    """Weights and optimizer of the solver, by path."""
    found = flat(group.get_state(WHOLE)["learner"])
    assert found
    return found


def assert_equal(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """To the last bit."""
    assert found.keys() == expected.keys()
    assert [name for name, tensor in expected.items() if not torch.equal(found[name], tensor)] == []


def moments_of(group: SealLearnerGroup, key: str) -> dict[str, Tensor]:
    return {name.split("/")[-2]: tensor for name, tensor in state_of(group).items() if name.endswith(f"/{key}")}
