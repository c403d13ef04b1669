"""Checks that all engines share: of requests, and of the weights in an update."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from envs.errors import UserError
from envs.received import followed, read_json_object
from policies.engine import LEAST_TEMPERATURE, BadRequest, GenRequest

Shapes = Mapping[str, tuple[int, ...]]
"""Tensor name → shape."""


def is_temperature(temperature: float) -> bool:
    """Whether engines can sample at this temperature: greedily at 0, else at `LEAST_TEMPERATURE` or more."""
    return temperature == 0 or temperature >= LEAST_TEMPERATURE  # nan is neither


def check_temperature(key: str, temperature: float) -> None:
    """Raises `UserError`, which names the key, for a temperature at which no engine can sample."""
    if not is_temperature(temperature):
        raise UserError(f"{key}: {temperature:g} is not possible; give 0, or {LEAST_TEMPERATURE:g} or more.")


@dataclass(frozen=True, slots=True)
class RequestChecker:
    """Checks requests to one model; `vocabulary` and `context` count tokens."""

    vocabulary: int
    context: int

    @classmethod
    def from_folder(cls, model: Path, context: int) -> Self:
        """The checker of the model in a folder."""
        return cls(int(read_json_object(followed(model / "config.json"), "model")["vocab_size"]), context)

    def check(self, request: GenRequest, policies: Collection[str]) -> None:
        """Raises `BadRequest` with one sentence that names the field, its value and the allowed values."""
        if request.policy not in policies:
            allowed = ", ".join(map(repr, sorted(policies)))
            raise BadRequest(f"policy: {request.policy!r} is not loaded; allowed are {allowed}.")
        if request.prompt_ids and not 0 <= min(request.prompt_ids) <= max(request.prompt_ids) < self.vocabulary:
            raise BadRequest(f"prompt_ids: a token is outside 0 to {self.vocabulary - 1}.")
        if not is_temperature(request.temperature) or not 0 < request.top_p <= 1:
            raise BadRequest(
                f"sampling: temperature {request.temperature} and top_p {request.top_p} are not possible; "
                f"temperature is 0, or {LEAST_TEMPERATURE:g} or more, top_p above 0 and at most 1."
            )
        used = len(request.prompt_ids) + request.max_tokens
        if not request.prompt_ids or request.max_tokens < 1 or used > self.context:
            raise BadRequest(
                f"request: {len(request.prompt_ids)} prompt and {request.max_tokens} response tokens do not fit; "
                f"each must be at least 1 and together at most {self.context}."
            )

    def check_scored(self, token_ids: tuple[int, ...], start: int, policy: str, policies: Collection[str]) -> None:
        """Raises `BadRequest` for tokens that cannot be scored; one token of the context stays free, as in vLLM."""
        if not 0 < start <= len(token_ids):
            raise BadRequest(f"start: {start} is outside the {len(token_ids)} tokens; the first token has no log-prob.")
        self.check(GenRequest(token_ids, max_tokens=1, policy=policy), policies)


def checkpoint_shapes(model: Path) -> dict[str, tuple[int, ...]]:
    """Tensor name → shape, from the headers of a folder's safetensors files; if it has none, from its config."""
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(model.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    if shapes:
        return shapes

    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(model, trust_remote_code=False)
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    return {name: tuple(parameter.shape) for name, parameter in empty.named_parameters()}


def adaptable_shapes(shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Module → shape (out, in) of the linear layers in the numbered blocks of a checkpoint.

    Engines adapt these, and neither the embeddings nor the output layer.
    """
    weights = {name.removesuffix(".weight"): shape for name, shape in shapes.items() if name.endswith(".weight")}
    return {
        name: shape for name, shape in weights.items() if len(shape) == 2 and any(map(str.isdigit, name.split(".")))
    }


def linear_layers(shapes: Shapes) -> list[str]:
    """The last names of the layers that engines adapt."""
    return sorted({name.rpartition(".")[2] for name in adaptable_shapes(shapes)})


def check_shapes(given: Shapes, expected: Shapes) -> None:
    """Raises `BadRequest` for an update that lacks a tensor, or has a wrong one."""
    for name in sorted(expected.keys() | given.keys()):
        if name not in given:
            raise BadRequest(f"weights: {name!r} is missing from the update.")
        if name not in expected:
            raise BadRequest(f"weights: {name!r} is not a tensor of the model.")
        if given[name] != expected[name]:
            raise BadRequest(f"weights: {name!r} has shape {given[name]}, the model's is {expected[name]}.")
