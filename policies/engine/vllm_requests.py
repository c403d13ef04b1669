"""Requests and results in vLLM's own words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from policies.engine.types import GenRequest

_LAYOUT = "x-guidance"
"""Key of a schema under which llguidance, vLLM's backend here, takes how the JSON is laid out."""
_SPACED = {"item_separator": ", ", "key_separator": ": "}
"""As `json.dumps` writes it. By default it is written without blanks, which throws a model off that has seen them."""


def sampling_of(request: GenRequest) -> Any:
    """The request but for its prompt and policy, as vLLM's `SamplingParams`."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    grammar = None
    if request.json_schema is not None:
        grammar = StructuredOutputsParams(json=json.dumps({_LAYOUT: _SPACED, **request.json_schema}))
    return SamplingParams(
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        seed=request.seed,
        stop_token_ids=list(request.stop_token_ids),
        logprobs=0,
        detokenize=False,
        # One output, at the end: one a token, each with all tokens so far, takes the front end a third longer.
        output_kind=RequestOutputKind.FINAL_ONLY,
        # Only the stop tokens asked for stop; but after the end of a grammar's text, tokens are sampled unrestricted.
        ignore_eos=grammar is None,
        structured_outputs=grammar,
    )


def prompt_of(prompt_ids: tuple[int, ...], sampling: Any) -> dict[str, Any]:
    """The prompt of a request. Greedy requests share no cached prefix with others, only with each other.

    What is computed behind a cached prefix can differ in rounding from what is computed without. So an evaluation,
    which is greedy, leaves the rounds after it as they would be without it.
    """
    prompt: dict[str, Any] = {"prompt_token_ids": list(prompt_ids)}
    return prompt if sampling.temperature else {**prompt, "cache_salt": "greedy"}


def logprob_of(step: Mapping[int, Any], token: int) -> float:
    """A token's log-probability, out of all that vLLM gives at its place."""
    return float(step[token].logprob)


def versions_of(spans: Any, length: int) -> tuple[int, ...]:
    """The version of the base at each of `length` tokens."""
    versions = [0] * length
    for span in spans or ():
        versions[span.start : span.end] = [int(span.version)] * (span.end - span.start)
    return tuple(versions)
