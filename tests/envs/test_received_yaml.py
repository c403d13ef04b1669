"""YAML as people mean it."""

from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.received import parse_yaml, problem_of, write_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1e-6", 1e-6), ("3e-4", 3e-4), ("-1E+2", -100.0), ("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("7", 7)),
        *(("null", None), ("~", None), ("", None), ("true", True), ("False", False), (".inf", float("inf"))),
        *(("on", "on"), ("no", "no"), ("1:30", "1:30"), ("2026-01-01", "2026-01-01"), ("1_000", "1_000")),
        *(("010", "010"), ("nan", "nan"), ("'1e-6'", "1e-6"), ('"7"', "7"), ("-", [None])),
        *(("[1, 2e-3, a]", [1, 2e-3, "a"]), ("{a: 1, b: [x]}", {"a": 1, "b": ["x"]})),
    ],
)
def test_plain_words_are_what_they_look_like(text: str, value: object) -> None:
    found = parse_yaml(text)
    assert found == value
    assert type(found) is type(value)


NUMBERS = st.from_regex(r"[-+]?[0-9]{0,2}(\.[0-9]{0,2})?([eE][-+]?[0-9]{1,2})?", fullmatch=True)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)


@settings(max_examples=50)
@given(st.recursive(SCALARS | NUMBERS | st.sampled_from(["on", "null", "~", ".inf", "1:30", "2026-01-01"]), st.lists))
def test_what_is_written_is_read_back_by_us_and_by_pyyaml(value: Any) -> None:
    text = write_yaml({"key": value})
    assert parse_yaml(text) == yaml.safe_load(text) == {"key": value}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: 'a' is given twice"),
        ("{a: {b: 1, b: 2}}", "line 1: 'b' is given twice"),
        ("a: [1", "line 1: expected ',' or ']'"),
        ("a: 1\n\tb", "line 2: found character"),
        ("a: *x", "line 1: aliases are not allowed"),
        ("!!python/object/apply:os.system [ls]", "line 1: could not determine a constructor"),
        ("!!int x", "invalid literal for int"),
        *(("!!map [a]", ""), ("!!bool maybe", "'maybe'")),
        ("? [a]\n: 1", "line 1: found unhashable key"),
        ("\0", "unacceptable character"),
        ("[" * 5000, "line 1: more than 32 levels"),
    ],
)
def test_what_is_no_yaml_is_said_in_a_line(text: str, problem: str) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        parse_yaml(text)
    assert problem_of(caught.value).startswith(problem)
    assert "\n" not in problem_of(caught.value)
