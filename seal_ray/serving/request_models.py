"""Pydantic models of the requests that are served, with the bounds of each field.

A field that is not listed is refused. A checked request has valid text and plain types, so that FastAPI, Ray and vLLM
behind it get only what they were made for.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    with_config,
)
from typing_extensions import TypedDict

from envs.text import map_texts, valid_text
from seal_ray.serving.limits import RefusedRequest, RequestLimits, read_body, wrong
from seal_ray.serving.messages import check_message, named_function
from seal_ray.serving.schemas import check_schema_size, constraints, grammar_schema

MAX_CHOICES = 8
"""Answers to one request, and prompts in one."""
MAX_LOGPROBS = 20
"""Alternatives whose log-probabilities are returned, as vLLM's default."""
_AGAINST_GRAMMARS = ("allowed_token_ids", "bad_words", "min_tokens", "ignore_eos")
"""Fields that may forbid the only token that a grammar leaves, which ends the request with a fault."""
IGNORED = {
    *("user", "store", "metadata", "service_tier", "safety_identifier", "reasoning_effort", "verbosity"),
    *("prediction", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
}
"""Fields of OpenAI's clients that have no effect here."""
FIXED = {"modalities": ["text"], "chat_template_kwargs": {}}
"""Fields with the only value that is allowed, which has no effect."""
_GREEDY = 1e-5
"""vLLM samples greedily below this temperature."""
_CODES = {
    "extra_forbidden": "unknown_parameter",
    "too_long": "array_above_max_length",
    "string_too_long": "string_above_max_length",
    "string_too_short": "string_below_min_length",
    **dict.fromkeys(("greater_than_equal", "less_than_equal", "finite_number"), "out_of_range"),
}
"""Pydantic's type of an error → OpenAI's code."""


def parse_request(document: Any, *, chat: bool, limits: RequestLimits) -> dict[str, Any]:
    """A request's document with every field within its bounds, and all text valid Unicode.

    Raises `RefusedRequest` with one sentence for a field that is not served or out of bounds.
    """
    if not isinstance(document, dict):
        raise RefusedRequest("body: it is no JSON object.", code="invalid_type")
    needed = "messages" if chat else "prompt"
    if document.get(needed) is None:
        raise RefusedRequest(f"{needed}: it is missing.", param=needed, code="missing_required_parameter")
    effective = {name: value for name, value in document.items() if name not in IGNORED and value is not None}
    effective = {name: value for name, value in effective.items() if name not in FIXED or value != FIXED[name]}
    given: dict[str, Any] = map_texts(effective, valid_text)
    model: TypeAdapter[Any] = _CHAT if chat else _COMPLETION
    try:
        request: dict[str, Any] = model.validate_python(given, context=limits)
    except ValidationError as error:
        raise first_refusal(error, list(given)) from None
    _check_together(request)
    for tool in request.get("tools", ()):
        tool["function"].pop("strict", None)  # nothing that a model or a template should read
    if request.get("top_p") == 0 or (request.get("n", 1) > 1 and request.get("temperature", 1) < _GREEDY):
        # vLLM refuses both. With one token to choose from, each answer is greedy.
        request |= {"temperature": 1.0, "top_k": 1, "top_p": 1.0, "min_p": 0.0}
    return request


def first_refusal(error: ValidationError, names: Sequence[str]) -> RefusedRequest:
    """The error of the first wrong field, in the order of the fields' names."""
    first = min(error.errors(include_url=False), key=lambda each: names.index(each["loc"][0]))
    reason = first.get("ctx", {}).get("error")
    if isinstance(reason, RefusedRequest):
        return reason
    name, *places = first["loc"]
    place = str(name)[:80]
    if name not in ("logit_bias", "prompt", "input", "tool_choice"):  # their places are keys and the names of types
        place += "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in places)
    code = _CODES.get(first["type"], "invalid_type")
    if first["type"] == "float_type" and type(first["input"]) is int:  # more than a float can be
        code = "out_of_range"
    if code == "unknown_parameter":
        reason = f"only {FIXED[place]} is served" if place in FIXED else "such a field is not served"
        return RefusedRequest(f"{place!r}: {reason}.", param=place, code=code)
    return wrong(place, first["msg"], code)


def is_constrained(request: Mapping[str, Any]) -> bool:
    """Whether a grammar covers the whole answer: JSON mode, a schema, a choice, or a required call."""
    return (
        request.get("response_format", {"type": "text"})["type"] != "text"
        or "structured_outputs" in request
        or request.get("tool_choice", "auto") not in ("auto", "none")
    )


def _check_together(request: Mapping[str, Any]) -> None:
    """Checks what depends on several fields."""
    if is_constrained(request):
        for name in _AGAINST_GRAMMARS:
            if request.get(name):
                raise wrong(name, "it is not served together with structured answers", "invalid_value")
    if request.get("n", 1) * request.get("top_logprobs", 0) > 2 * MAX_LOGPROBS:
        raise wrong("top_logprobs", f"n times top_logprobs is more than {2 * MAX_LOGPROBS}", "out_of_range")
    list(constraints(request))
    if request.get("echo") and request.get("logprobs") is not None:
        raise wrong("echo", "the log-probabilities of prompts are not served")


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _limits(info: ValidationInfo) -> RequestLimits:
    assert isinstance(info.context, RequestLimits)
    return info.context


def _within_context(value: int, info: ValidationInfo) -> int:
    most = _limits(info).context
    if value > most:
        raise wrong(str(info.field_name), f"it must be at most {most}", "out_of_range")
    return value


def _served_model(name: str) -> str:
    if ":" in name:  # Ray takes the part behind a colon for an adapter
        raise RefusedRequest(f"model: {name!r:.80} is not served.", status=404, param="model", code="model_not_found")
    return name


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(place, "it is no object")
    return value


def _stream_options(value: Any) -> dict[str, bool]:
    options = {name: _object(value, "stream_options").get(name) for name in ("include_usage", "continuous_usage_stats")}
    if not all(option is None or isinstance(option, bool) for option in options.values()):
        raise wrong("stream_options", "an option is neither true nor false")
    return {name: option for name, option in options.items() if option is not None}


def _response_format(value: Any) -> dict[str, Any]:
    place = "response_format"
    kind = _object(value, place).get("type")
    if kind in ("text", "json_object"):
        return {"type": kind}
    if kind != "json_schema":
        raise wrong(f"{place}.type", "it is none of 'text', 'json_object' and 'json_schema'", "invalid_value")
    place = f"{place}.json_schema"
    form = _object(value.get("json_schema"), place)
    schema = _object(form.get("schema"), f"{place}.schema")
    schema = grammar_schema(schema, f"{place}.schema", strict=form.get("strict") is True)
    return {"type": kind, "json_schema": {"name": "answer", "schema": schema}}


def _json_schema(schema: Any) -> dict[str, Any]:
    place = "structured_outputs.json"
    if isinstance(schema, str):
        check_schema_size(len(schema), place)
        try:
            schema = read_body(schema.encode())
        except RefusedRequest as error:
            raise wrong(place, f"it is no schema ({error})", "invalid_value") from None
    return grammar_schema(_object(schema, place), place, strict=True)


def _one_of(value: Any) -> Any:
    given = {key: item for key, item in _object(value, "structured_outputs").items() if item is not None}
    if len(given) != 1:
        raise wrong("structured_outputs", "it has exactly one of 'json', 'json_object' and 'choice'", "invalid_value")
    (key,) = given
    if key not in StructuredOutputs.__annotations__:
        reason = f"{key[:80]!r} is not served: what it compiles to has no bound"
        raise wrong("structured_outputs", reason, "invalid_value")
    return given


def _prompt(value: Any, info: ValidationInfo) -> Any:
    """A text, token ids, or several of either."""
    context = _limits(info).context
    several = value if isinstance(value, list) and value and not isinstance(value[0], int) else [value]
    if len(several) > MAX_CHOICES:
        raise wrong("prompt", f"it has {len(several)} entries; {MAX_CHOICES} are allowed", "array_above_max_length")
    for prompt in several:
        if not prompt or not isinstance(prompt, str | list):
            raise wrong("prompt", "it is neither text nor token ids")
        if isinstance(prompt, list) and len(prompt) > context:
            reason = f"it has {len(prompt)} tokens; the context is {context}"
            raise wrong("prompt", reason, "context_length_exceeded")
    return value


def _check_number(value: Any, place: str, most: int) -> list[Any]:
    if not isinstance(value, list):
        raise wrong(place, "it is no list")
    if len(value) > most:
        raise wrong(place, f"there are {len(value)}; {most} are allowed", f"too_many_{place}")
    return value


def _messages(value: Any, info: ValidationInfo) -> list[dict[str, Any]]:
    messages = _check_number(value, "messages", _limits(info).messages)
    return [check_message(each, f"messages[{index}]") for index, each in enumerate(messages)]


def _tools(value: Any, info: ValidationInfo) -> list[dict[str, Any]]:
    tools = _check_number(value, "tools", _limits(info).tools)
    return [_tool(each, f"tools[{index}].function") for index, each in enumerate(tools)]


def _tool(value: Any, place: str) -> dict[str, Any]:
    function = named_function(value)
    if function is None or not function["name"] or value.get("type", "function") != "function":
        raise wrong(place, "a tool needs a function with a name", "invalid_value")
    for key, kind in (("description", str), ("parameters", dict)):
        if function.get(key) is not None and not isinstance(function[key], kind):
            raise wrong(f"{place}.{key}", "it is no text" if kind is str else "it is no object")
    shown = dict(function)
    # Chat templates go through the properties; OpenAI lets a function without arguments leave them out.
    if "properties" not in (shown.get("parameters") or {}):
        shown["parameters"] = {"type": "object", "properties": {}, **(shown.get("parameters") or {})}
    return {"type": "function", "function": shown}


def _tool_choice(value: Any) -> Any:
    if value in ("none", "auto", "required"):
        return value
    function = named_function(value)
    if function is None:
        reason = "it is none of 'none', 'auto', 'required' and a function with a name"
        raise wrong("tool_choice", reason, "invalid_value")
    return {"type": "function", "function": {"name": function["name"]}}


Whole = Annotated[int, BeforeValidator(_whole)]
Tokens = Annotated[Whole, Field(ge=1), AfterValidator(_within_context)]
TokenId = Annotated[Whole, Field(ge=0, le=2**31 - 1)]
Text = Annotated[str, Field(min_length=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Share = Annotated[float, Field(ge=0, le=1)]
_STRICT = ConfigDict(extra="forbid", strict=True)


@with_config(_STRICT)
class StructuredOutputs(TypedDict, total=False):
    """vLLM's constraints of an answer, of which one is given."""

    json: Annotated[Any, AfterValidator(_json_schema)]
    json_object: Literal[True]
    choice: Annotated[list[Annotated[Text, Field(max_length=1_000)]], Field(max_length=256)]


@with_config(_STRICT)
class CommonFields(TypedDict, total=False):
    """The fields of chats and completions."""

    model: Annotated[str, Field(max_length=500), AfterValidator(_served_model)]
    max_tokens: Tokens
    min_tokens: Annotated[Whole, Field(ge=0), AfterValidator(_within_context)]
    temperature: Annotated[float, Field(ge=0, le=2)]
    top_p: Share
    min_p: Share
    top_k: Annotated[Whole, Field(ge=-1, le=10**6)]
    frequency_penalty: Penalty
    presence_penalty: Penalty
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)]
    seed: Annotated[Whole, Field(ge=-(2**63), le=2**63 - 1)]
    n: Annotated[Whole, Field(ge=1, le=MAX_CHOICES)]
    stop: Annotated[
        list[Annotated[Text, Field(max_length=200)]],
        Field(max_length=16),
        BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    ]
    stop_token_ids: Annotated[list[TokenId], Field(max_length=16)]
    allowed_token_ids: Annotated[list[TokenId], Field(max_length=4_096)]
    bad_words: Annotated[list[Annotated[Text, Field(max_length=100)]], Field(max_length=16)]
    logit_bias: Annotated[
        dict[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], Annotated[float, Field(ge=-100, le=100)]],
        Field(max_length=300),
    ]
    ignore_eos: bool
    stream: bool
    stream_options: Annotated[Any, AfterValidator(_stream_options)]
    skip_special_tokens: bool
    spaces_between_special_tokens: bool
    include_stop_str_in_output: bool
    return_token_ids: bool
    return_tokens_as_token_ids: bool
    response_format: Annotated[Any, AfterValidator(_response_format)]
    structured_outputs: Annotated[StructuredOutputs, BeforeValidator(_one_of)]


@with_config(_STRICT)
class ChatFields(CommonFields, total=False):
    messages: Annotated[Any, AfterValidator(_messages)]
    tools: Annotated[Any, AfterValidator(_tools)]
    tool_choice: Annotated[Any, AfterValidator(_tool_choice)]
    parallel_tool_calls: bool
    max_completion_tokens: Tokens
    logprobs: bool
    top_logprobs: Annotated[Whole, Field(ge=0, le=MAX_LOGPROBS)]


@with_config(_STRICT)
class CompletionFields(CommonFields, total=False):
    prompt: Annotated[
        Text | list[TokenId] | list[Text | Annotated[list[TokenId], Field(min_length=1)]], BeforeValidator(_prompt)
    ]
    echo: bool
    logprobs: Annotated[Whole, Field(ge=0, le=MAX_LOGPROBS)]
    add_special_tokens: bool
    # vLLM's best_of keeps only `n` answers.
    best_of: Annotated[Whole, Field(ge=1, le=1)]


_CHAT = TypeAdapter(ChatFields)
_COMPLETION = TypeAdapter(CompletionFields)
