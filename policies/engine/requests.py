"""What every engine does alike with what it is given: checks requests and weights, reads the folder, keeps copies."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from envs.errors import UserError
from envs.received import followed, read_json_object
from policies.engine.types import LEAST_TEMPERATURE, BadRequest, GenRequest

if TYPE_CHECKING:
    import torch


def is_temperature(temperature: float) -> bool:
    """Whether engines sample at it: greedily at 0, else at `LEAST_TEMPERATURE` or more."""
    return temperature == 0 or temperature >= LEAST_TEMPERATURE  # nan is neither


def check_temperature(key: str, temperature: float) -> None:
    """Raises `UserError`, which names the key, where no engine samples at it."""
    if not is_temperature(temperature):
        raise UserError(f"{key}: {temperature:g} is not possible; give 0, or {LEAST_TEMPERATURE:g} or more.")


def check_request(request: GenRequest, *, vocabulary: int, context: int, policies: Collection[str]) -> None:
    """Raises `BadRequest` with one sentence that names the field, its value and what is allowed."""
    if request.policy not in policies:
        allowed = ", ".join(map(repr, sorted(policies)))
        raise BadRequest(f"policy: {request.policy!r} is not loaded; allowed are {allowed}.")
    if request.prompt_ids and not 0 <= min(request.prompt_ids) <= max(request.prompt_ids) < vocabulary:
        raise BadRequest(f"prompt_ids: a token is outside 0 to {vocabulary - 1}.")
    if not is_temperature(request.temperature) or not 0 < request.top_p <= 1:
        raise BadRequest(
            f"sampling: temperature {request.temperature} and top_p {request.top_p} are not possible; "
            f"temperature is 0, or {LEAST_TEMPERATURE:g} or more, top_p above 0 and at most 1."
        )
    used = len(request.prompt_ids) + request.max_tokens
    if not request.prompt_ids or request.max_tokens < 1 or used > context:
        raise BadRequest(
            f"request: {len(request.prompt_ids)} prompt and {request.max_tokens} response tokens do not fit; "
            f"each must be at least 1 and together at most {context}."
        )


def check_scored(
    token_ids: tuple[int, ...], start: int, policy: str, *, vocabulary: int, context: int, policies: Collection[str]
) -> None:
    """Raises `BadRequest` for tokens that cannot be scored; one token of the context stays free, as in vLLM."""
    if not 0 < start <= len(token_ids):
        raise BadRequest(f"start: {start} is outside the {len(token_ids)} tokens; the first token has no log-prob.")
    request = GenRequest(token_ids, max_tokens=1, policy=policy)
    check_request(request, vocabulary=vocabulary, context=context, policies=policies)


def vocabulary_of(model: Path) -> int:
    """The size of the vocabulary of the model in the folder."""
    return int(read_json_object(followed(model / "config.json"), "model")["vocab_size"])


def own_tensors(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies on the CPU: the sender may train on before a restart needs them again."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}


def checkpoint_shapes(model: Path) -> dict[str, tuple[int, ...]]:
    """Tensor name → shape, from the headers of the folder's safetensors files; without any, from its config alone."""
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    if not any(model.glob("*.safetensors")):
        return _shapes_of_config(model)
    for path in sorted(model.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                shapes[name] = tuple(file.get_slice(name).get_shape())
    return shapes


def linear_layers(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """The last names of the linear layers in the numbered blocks of a checkpoint with tensors of these shapes.

    Engines take adapters of these, and of neither the embeddings nor the output layer.
    """
    names = [name.split(".") for name, shape in shapes.items() if len(shape) == 2]
    return sorted({layer for *path, layer, kind in names if kind == "weight" and any(part.isdigit() for part in path)})


def _shapes_of_config(model: Path) -> dict[str, tuple[int, ...]]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(model, trust_remote_code=False), trust_remote_code=False
        )
    return {name: tuple(parameter.shape) for name, parameter in empty.named_parameters()}


def check_shapes(given: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Refuses an update with `BadRequest` before anything is touched: half a model is worse than the old one."""
    for name in sorted(expected.keys() | given.keys()):
        if name not in given:
            raise BadRequest(f"weights: {name!r} is missing from the update.")
        if name not in expected:
            raise BadRequest(f"weights: {name!r} is not a tensor of the model.")
        if given[name] != expected[name]:
            raise BadRequest(f"weights: {name!r} has shape {given[name]}, the model's is {expected[name]}.")
