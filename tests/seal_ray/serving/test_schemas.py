"""Schemas of requests: enforced, or refused by the name of the property before anything is compiled or streamed."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer
from pydantic import BaseModel, Field, SecretStr

from seal_ray.serving.limits import RefusedRequest
from seal_ray.serving.request_models import parse_request
from seal_ray.serving.schemas import check_compiles, constraints, grammar_schema
from tests.seal_ray.serving.test_limits import HELLO, LIMITS


class Answer(BaseModel):
    """Some of its types have formats that no grammar has."""

    path: Path
    secret: SecretStr
    data: bytes
    text: str = Field(max_length=2_000)
    code: str = Field(pattern=r"^[A-Z]{2}-\d{4}$")


class Tags(Answer):
    tags: set[str]


def nested(levels: int, inside: Any = 1) -> Any:
    for _ in range(levels):
        inside = {"properties": {"a": inside}}
    return inside


def request(schema: Any, kind: str, **more: Any) -> dict[str, Any]:
    """A request whose answer a schema constrains: the whole of it, or a call's arguments."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **more}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema, **more}}
    fields: dict[str, dict[str, Any]] = {
        "response_format": {"response_format": form},
        "tools": {"tools": [tool], "tool_choice": "required"},
        "named": {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        "auto": {"tools": [tool]},
    }
    return {"messages": [HELLO], **fields[kind]}


def checked(sent: dict[str, Any]) -> list[Any]:
    """The schemas of a request that become grammars, after all checks."""
    schemas = list(constraints(parse_request(sent, chat=True, limits=LIMITS)))
    for place, schema in schemas:
        check_compiles(schema, place)
    return [schema for _, schema in schemas]


@pytest.mark.parametrize("kind", ["response_format", "tools", "named"])
@pytest.mark.parametrize(("model", "strict"), [(Answer, True), (Tags, False)])
def test_schemas_of_pydantic_s_types_are_served(kind: str, model: type[BaseModel], strict: bool) -> None:
    (schema,) = checked(request(model.model_json_schema(), kind, strict=strict))
    assert schema["properties"]["path"] == {"title": "Path", "type": "string"}
    assert schema["properties"]["text"]["maxLength"] == 2_000
    assert schema["properties"]["code"]["pattern"]
    assert "uniqueItems" not in json.dumps(schema)


@pytest.mark.parametrize(
    ("keyword", "enforced"),
    [
        *(("format", "date"), ("format", "uuid"), ("pattern", r"^\+?[1-9]\d{1,14}$"), ("pattern", r"^\w{3,64}$")),
        *(("pattern", r"^[^@\s]+@[^@\s]+\.[^@\s]+$"), ("maxLength", 100_000), ("minLength", 2_000)),
    ],
)
def test_what_a_grammar_can_say_is_enforced(keyword: str, enforced: Any) -> None:
    schema = {"type": "string", keyword: enforced}
    assert grammar_schema(schema, "x", strict=True) == schema
    check_compiles(schema, "x")


UNENFORCED: list[tuple[str, Any]] = [
    *(
        ("uniqueItems", True),
        ("not", {}),
        ("if", {}),
        ("contains", {}),
        ("propertyNames", {}),
        ("dependentRequired", {}),
    ),
    *(("patternProperties", {"x": {}}), ("unevaluatedProperties", False), ("pattern", "("), ("pattern", "a" * 300)),
    *(
        ("pattern", "(a{1,1000}){1,1000}"),
        ("pattern", "(.*a.{50}){10}"),
        ("pattern", r"^(?!a)b$"),
        ("pattern", r"\p{L}"),
    ),
]


@pytest.mark.parametrize(("keyword", "value"), UNENFORCED)
@pytest.mark.parametrize("kind", ["response_format", "tools"])
def test_what_no_grammar_can_say_is_left_out_unless_the_schema_is_strict(keyword: str, value: Any, kind: str) -> None:
    schema = {"type": "object", "properties": {"a": {"items": {keyword: value}}}}
    assert keyword not in json.dumps(checked(request(schema, kind)))
    with pytest.raises(RefusedRequest, match=rf"properties\.a\.items\.{keyword}: .* strict") as refused:
        checked(request(schema, kind, strict=True))
    assert str(refused.value.param).startswith(kind)
    checked(request(schema, "auto", strict=True))  # which makes no grammar


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "string", "maxLength": 10**6}, r"\.maxLength"),
        ({"properties": {"a": {"maxItems": 10**5}}}, r"\.properties\.a\.maxItems"),
        ({"type": "integer", "maximum": 10**300}, r"\.maximum"),
        ({"allOf": [{"anyOf": [{}, {}]}] * 20}, r"\.allOf"),
        ({"x-guidance": {"whitespace_pattern": "z{1,5}"}}, r"\.x-guidance"),
        ({"enum": ["x" * 70_000]}, ""),
        (nested(30), ""),
        # What only the compiler refuses.
        ({"properties": {"a": {}, "b": {"items": {"type": "text"}}}}, r"\.properties\.b\.items"),
        ({"$defs": {"A": {"enum": []}}, "properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"]}, r"\.\$defs\.A"),
        ({"$ref": "#"}, ""),
        ({"type": "object", "properties": {"a": {}}, "required": ["b"]}, ""),  # vLLM adds `additionalProperties: false`
        ({"$ref": "https://example.com/schema"}, ""),
        ({"properties": {f"a{index}": {"type": "integer", "minimum": -(7**index)} for index in range(17)}}, None),
        ({"properties": {f"{i}": {"maxItems": 900, "minItems": i, "type": "array"} for i in range(400)}}, ""),
        ({"properties": {f"{i}": {"type": "integer", "minimum": -i, "maximum": i * 1234567} for i in range(900)}}, ""),
    ],
)
def test_a_refusal_names_the_property_and_comes_soon(schema: dict[str, Any], place: str | None) -> None:
    begun = time.process_time()
    for kind, param in (("response_format", r"response_format\.json_schema\.schema"), ("tools", r"tools(\[0\]\S+)?")):
        if place is None:
            checked(request(schema, kind))
            continue
        with pytest.raises(RefusedRequest, match=rf"^{param}\S*{place}: ") as refused:
            checked(request(schema, kind))
        assert refused.value.code == "invalid_schema"
        assert str(refused.value).startswith(str(refused.value.param))
    assert time.process_time() - begun < 2


def test_integers_of_javascript_are_served() -> None:
    most = 2**53 - 1
    schema = {"type": "integer", "minimum": -most, "maximum": most}
    assert checked(request(schema, "response_format")) == [schema]


NODE: dict[str, Any] = {"type": "object", "properties": {"v": {"type": "integer"}}, "required": ["v"]}


@pytest.mark.parametrize("kind", ["tools", "named"])
def test_the_arguments_of_a_forced_call_can_be_a_reference(kind: str) -> None:
    (schema,) = checked(request({"$ref": "#/$defs/Node", "$defs": {"Node": NODE}}, kind))
    assert "properties" not in schema, "nothing would fit a closed object without any"


def test_references_that_a_required_call_would_turn_elsewhere_are_refused() -> None:
    """vLLM puts the schemas of all tools into one, and keeps `$defs` alone where they are looked for."""
    recursive = {**NODE, "properties": {**NODE["properties"], "next": {"$ref": "#"}}}
    older = {"properties": {"a": {"$ref": "#/definitions/Node"}}, "definitions": {"Node": NODE}}
    for schema in (recursive, older):
        assert checked(request(schema, "named"))
        with pytest.raises(RefusedRequest, match=r"tools\[0\]\.function\.parameters: .*#/\$defs/"):
            checked(request(schema, "tools"))


def test_properties_may_be_called_as_keywords_are() -> None:
    names: dict[str, Any] = {"pattern": {"type": "string"}, "x-guidance": {}, "not": {"enum": [10**20]}, "format": {}}
    schema = {"type": "object", "properties": names, "additionalProperties": False}
    assert grammar_schema(schema, "x", strict=True) == schema


def test_alternatives_that_may_overlap_are_enforced_as_any_of_them_unless_strict() -> None:
    schema = {"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]}
    assert checked(request(schema, "response_format")) == [{"anyOf": schema["oneOf"]}]
    with pytest.raises(RefusedRequest, match="oneOf"):
        checked(request(schema, "response_format", strict=True))


@pytest.mark.parametrize("pattern", [r"^.?a?.{999}.{0,999}[a-m]..$", r"^.{999}.*[a-m].*[c-f].[e-z].$", "[a-m]......."])
def test_a_served_pattern_costs_little_for_each_token(pattern: str) -> None:
    grammar = LLMatcher.grammar_from_json_schema(
        grammar_schema({"type": "string", "pattern": pattern}, "x", strict=True)
    )
    matcher = LLMatcher(LLTokenizer("byte"), grammar, log_level=0)
    begun = time.process_time()
    for letter in b'"' + b"abmcdez" * 150:
        matcher.compute_bitmask()
        matcher.consume_token(letter)
    assert not matcher.get_error()
    assert time.process_time() - begun < 2
