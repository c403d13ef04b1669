"""The three tool-call dialects: what they render, and exactly what they read out of a completion."""

import json
import warnings
from collections.abc import Sequence

import pytest

from envs.bfcl.tasks import load_tasks
from envs.bfcl.tools import all_tools
from envs.dialects import DIALECTS, Dialect, get_dialect
from envs.dialects.base import MAX_CHARACTERS, MAX_ERRORS, MAX_NESTING
from envs.dialects.literal import MAX_BRACES, MAX_PYTHON_CHARACTERS
from envs.errors import UserError
from envs.task import JSON, ToolCall

LS = ToolCall("ls", {})
CD = ToolCall("cd", {"folder": "a"})


def nested(value: JSON, times: int) -> JSON:
    return nested([value], times - 1) if times else value


NASTY_VALUES: tuple[JSON, ...] = (
    "", " ", "ünïcode ☃ 🦙 Ελ", 'both \' and "', "back\\slash \\n", "line\nbreak\r\ttab\x0b\u2028",
    "\x00\x1f\x7f", "lone \ud800 surrogate", "</tool_call>\n<tool_call>", "\n</tool_call>", "<|python_tag|>x",
    "</think>x", "a; b, c", "```", "'quoted'", '{"name": "ls"}', "__import__('os').system('true')", "{x} %s ${y}",
    "True", "None", 0, -1, 10**30, 0.0, -0.0, 0.1, -2.5e-300, 1e308, True, None, [], {}, [[]],
    [None, [True, [1.5, ["x", {"k": [{}]}]]]], {"": None, "a b": {"'": '"', "ü": [1, -2]}}, ["a"] * 50,
    nested("x", MAX_NESTING - 3),
)  # fmt: skip

Found = tuple[tuple[ToolCall, ...], tuple[tuple[int, bool], ...]]
"""Calls, and (position, fatal) of each error."""


def found(dialect: str, completion: str) -> Found:
    parsed = DIALECTS[dialect].parse(completion)
    fatal = any(error.fatal for error in parsed.errors)
    assert parsed.official_calls == (() if fatal else parsed.calls)
    assert all(error.message and error.message.isprintable() for error in parsed.errors)
    return parsed.calls, tuple((error.position, error.fatal) for error in parsed.errors)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
def test_every_ground_truth_turn_survives_rendering_and_parsing(dialect: Dialect) -> None:
    turns = {str(turn.ground_truth): turn.ground_truth for task in load_tasks().values() for turn in task.turns}
    assert len(turns) > 500
    for calls in turns.values():
        parsed = dialect.parse(dialect.render_calls(calls))
        assert (parsed.calls, parsed.errors) == (calls, ())


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
def test_nasty_values_survive_rendering_and_parsing(dialect: Dialect) -> None:
    for value in NASTY_VALUES:
        calls = ToolCall("echo", {"content": value, "file_name": "x"}), LS, ToolCall("mean", {"numbers": [value] * 2})
        for some in (calls[:1], calls[: 3 - (value == NASTY_VALUES[-1])]):
            parsed = dialect.parse(dialect.render_calls(some))
            assert (parsed.calls, parsed.errors) == (some, ())
            assert repr(parsed.calls) == repr(some)  # 1 == 1.0 == True, and 0.0 == -0.0, but not in a result's text


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
def test_words_are_an_answer_and_no_call(dialect: Dialect) -> None:
    for prose in ("", " \n", "Done", "Done.", "Yes!", "I will call ls() now.", "5 [USD] is due", "5"):
        assert found(dialect.name, prose) == ((), ())
    assert dialect.render_calls(()) == ""


def block(text: str) -> str:
    return f"<tool_call>\n{text}\n</tool_call>"


LS_BLOCK = block('{"name": "ls", "arguments": {}}')
CD_BLOCK = block('{"name": "cd", "arguments": {"folder": "a"}}')

THOUGHT = "<think>one</think>two</think>"

QWEN: Sequence[tuple[str, Found]] = (
    (LS_BLOCK, ((LS,), ())),
    (LS_BLOCK + CD_BLOCK, ((LS, CD), ())),
    (f"Let me look.\n{LS_BLOCK} and then\n{CD_BLOCK}\nthat is all", ((LS, CD), ())),
    (f"{block('{broken')}\n{LS_BLOCK}", ((LS,), ((0, False),))),
    (f"{LS_BLOCK}\n{block('')}\n{CD_BLOCK}", ((LS, CD), ((len(LS_BLOCK) + 1, False),))),
    (f"{block('not JSON')}{block('neither')}", ((), ((0, False), (len(block("not JSON")), False)))),
    (f'ab{block(chr(123) + chr(34) + "arguments" + chr(34) + ": {}}")}{LS_BLOCK}', ((LS,), ((2, True),))),
    # Names that are no text are tools that are not there.
    (block('{"name": null, "arguments": {}}') + LS_BLOCK, ((ToolCall("None", {}), LS), ())),
    (block('{"name": true, "arguments": {}}'), ((ToolCall("True", {}),), ())),
    # Nothing of a model's thoughts is read.
    (f"<think>\n{CD_BLOCK}<tool_call>\n</think>\n\n{LS_BLOCK}", ((LS,), ())),
    (f"<think>\n{LS_BLOCK}\n</think>\n\nI cannot do that.", ((), ())),
    (f"{THOUGHT}{block('{broken')}", ((), ((len(THOUGHT), False),))),
    (f"<think>{LS_BLOCK}", ((LS,), ())),
    (block('{"name": ["ls"], "arguments": {}}'), ((), ((0, True),))),
    (block('{"name": "ls", "parameters": {}}'), ((), ((0, True),))),
    (block('{"name": "cd", "arguments": ["a"]}'), ((), ((0, True),))),
    (block('{"name": "cd", "arguments": "{\\"folder\\": \\"a\\"}"}'), ((CD,), ())),
    (block('{"name": "cd", "arguments": "a"}'), ((), ((0, True),))),
    (block('[{"name": "ls", "arguments": {}}]'), ((), ((0, True),))),
    (block('{"name": "cd", "arguments": {"folder": 1, "folder": "a"}}'), ((CD,), ())),
    ('<tool_call>\n{"name": "ls", "arguments": {}}', ((), ((0, False),))),
    ('<tool_call>{"name": "ls", "arguments": {}}</tool_call>', ((), ((0, False),))),
    (f"so <tool_call> {LS_BLOCK}", ((LS,), ((3, False),))),
    (f"<tool_call><tool_call> {LS_BLOCK}", ((LS,), ((0, False),))),
    # As the official lazy pattern does, a block runs from the first opening tag to the next closing one.
    (f"<tool_call>\n{LS_BLOCK}", ((), ((0, False),))),
    (block("[" * (MAX_NESTING + 1)) + LS_BLOCK, ((LS,), ((0, False),))),
    (LS_BLOCK + " " * MAX_CHARACTERS, ((), ((0, True),))),
    ("a word " * MAX_CHARACTERS, ((), ())),
)  # fmt: skip


def test_what_is_spoken_stands_behind_the_thoughts() -> None:
    said = "<think>\nMaybe Paris, maybe Rome.\n</think>\n\nI do not know."
    assert DIALECTS["qwen"].spoken(said) == "I do not know."
    assert DIALECTS["llama3_json"].spoken(said) == DIALECTS["toolace"].spoken(said) == said
    assert DIALECTS["qwen"].spoken("\nDone.") == "\nDone."


def spoken(text: str) -> str:
    return f"<|python_tag|>{text}"


LS_JSON = '{"name": "ls", "parameters": {}}'
CD_JSON = '{"name": "cd", "parameters": {"folder": "a"}}'
FLAGS = ToolCall("f", {"a": True, "b": False, "c": None})

LLAMA: Sequence[tuple[str, Found]] = (
    (LS_JSON, ((LS,), ())),
    (f"[{LS_JSON}, {CD_JSON}]", ((LS, CD), ())),
    (f"{LS_JSON}; {CD_JSON}", ((LS, CD), ())),
    (f"{LS_JSON};{CD_JSON};", ((LS, CD), ())),
    (f"{LS_JSON}, {CD_JSON}", ((LS, CD), ())),
    (f"{LS_JSON}\n{CD_JSON}", ((LS, CD), ())),
    (f"[{LS_JSON}]; [{CD_JSON}]", ((LS, CD), ())),
    ('{"name": "echo", "parameters": {"content": "a; b"}}', ((ToolCall("echo", {"content": "a; b"}),), ())),
    (spoken(LS_JSON), ((LS,), ())),
    (spoken(f"{LS_JSON}{spoken(CD_JSON)}"), ((LS, CD), ())),
    (spoken("ls()"), ((), ((14, True),))),
    (spoken(f" {{}}; {LS_JSON}"), ((LS,), ((15, True),))),
    (f"Sure: {LS_JSON}", ((), ((6, True),))),
    (f"{LS_JSON} is the call", ((), ((0, True),))),
    ('{"name": "ls", "arguments": {}}', ((), ((0, True),))),
    ('{"parameters": {}}', ((), ((0, True),))),
    ('{"name": "ls", "parameters": []}', ((), ((0, True),))),
    (f'[1, {LS_JSON}, "x"]', ((LS,), ((0, True), (0, True)))),
    (f"{LS_JSON}; 7", ((LS,), ((len(LS_JSON) + 2, True),))),
    # The tag goes wherever it stands, and positions are those of the completion.
    ('{"name": "cd", "parameters": {"folder": "<|python_tag|>a"}}', ((CD,), ())),
    (f"<|python_tag|>{LS_JSON};<|python_tag|> 7", ((LS,), ((14 + len(LS_JSON) + 1 + 14 + 1, True),))),
    ("[]", ((), ())),
    ('{"name": "f", "parameters": {"a": true, "b": false, "c": null}}', ((FLAGS,), ())),
    ("{'name': 'f', 'parameters': {'a': True, 'b': False, 'c': None}}", ((FLAGS,), ())),
    ("[{'name': 'ls', 'parameters': {}}, {'name': 'cd', 'parameters': {'folder': 'a'}}]", ((LS, CD), ())),
    ("{'name': 'cd', 'parameters': {'folder': __import__('os').sep}}", ((), ((0, True),))),
    ("{'name': 'f', 'parameters': {**{}}}", ((), ((0, True),))),
    # The official handler evaluates the text, so that a bare word is an error; JSON's words are none.
    ("[{'name': 'cd', 'parameters': {folder: 'a'}}]", ((), ((0, True),))),
    ("{'name': 'f', 'parameters': {'a': true, 'b': false, 'c': null}}", ((FLAGS,), ())),
    ("[" * (MAX_NESTING + 1), ((), ((0, True),))),
    (LS_JSON + ';' * MAX_CHARACTERS, ((), ((0, True),))),
)  # fmt: skip


def f(value: JSON) -> Found:
    return ((ToolCall("f", {"a": value}),), ())


TOOLACE: Sequence[tuple[str, Found]] = (
    ("[ls()]", ((LS,), ())),
    ("[ls(), cd(folder='a')]", ((LS, CD), ())),
    ("ls()", ((LS,), ())),
    ("[ls()", ((LS,), ())),
    ("```\n[ls()]\n```", ((LS,), ())),
    ("[]", ((), ())),
    ("[cd('a')]", ((ToolCall("cd", {}),), ((0, False),))),
    ("\n[ls(), mv('x', destination='y')]", ((LS, ToolCall("mv", {"destination": "y"})), ((1, False),))),
    ("[cd(folder=a)]", ((CD,), ())),
    ("[f(a=...)]", f("...")),
    ("[f(a=-1)]", f(-1)),
    ("[f(a={}, b={'k': {}})]", ((ToolCall("f", {"a": {}, "b": {"k": {}}}),), ())),
    ("[f(a=[1, (2, {'k': -3.5})])]", f([1, (2, {"k": -3.5})])),
    ("[f(a=1, a=2)]", f(2)),
    ("[f(a='\\d \\q')]", f("\\d \\q")),
    ("[f(a='one' ' two')]", f("one two")),
    ("[f(a=false)]", f("false")),
    ("[math.f(a=1)]", ((ToolCall("math.f", {"a": 1}),), ())),
    # The official decoder's names of these calls; no simulator has them, and the inner call is never made.
    ("[cd(folder='a')(x=1)]", ((ToolCall("", {"x": 1}),), ())),
    ("[__import__('os').system(a=1)]", ((ToolCall("system", {"a": 1}),), ())),
)  # fmt: skip

TOOLACE_ERRORS = (
    *("[f(a=ls())]", "[f(a=[ls()])]", "[f(a={'k': ls()})]", "[f(a={ls(): 1})]", "[f(a=1 + 1)]", "[f(a=9**9**9)]"),
    *("[f(a=+1)]", "[f(a=--1)]", "[f(a=not 1)]", "[f(a=1 if 1 else 2)]", "[f(a=1 < 2)]", "[f(a=1 or 2)]", "[f(a=1j)]"),
    *("[f(a=lambda: 1)]", "[f(a=f'{1}')]", "[f(a=b'x')]", "[f(a=[x for x in y])]", "[f(a={1, 2})]", "[f(a={**b})]"),
    *("[f(a=[*b])]", "[f(**{'a': 1})]", "[f(a=(b := 1))]", "[f(a=b.c)]", "[f(a=b[0])]", "[f(a={(1, 2): 3})]"),
    *(f"[f(a=0x{'f' * 4000})]", "[ls]", "[ls(), 5]", "[ls()] done", "ls(a=1", "[import os]", "[f(a='\x00')]"),
    *("[f(a='\ud800')]", "[" * (MAX_NESTING + 1), f"[f(a='{'x' * MAX_PYTHON_CHARACTERS}')]"),
    f"[f(a='{'{' * (MAX_BRACES + 1)}')]",
)


READ = {
    "qwen": QWEN,
    "llama3_json": LLAMA,
    "toolace": (*TOOLACE, *((text, ((), ((0, True),))) for text in TOOLACE_ERRORS)),
}
ROWS = [(dialect, *row) for dialect, rows in READ.items() for row in rows]


@pytest.mark.parametrize(("dialect", "completion", "expected"), ROWS, ids=[ascii(row[1])[:60] for row in ROWS])
def test_exactly_these_calls_and_errors_are_read(dialect: str, completion: str, expected: Found) -> None:
    assert found(dialect, completion) == expected
    if completion in TOOLACE_ERRORS:
        assert found(dialect, f"\n  {completion}") == ((), ((3, True),))


def test_a_leading_tag_moves_no_place_in_a_message() -> None:
    (error,) = DIALECTS["llama3_json"].parse('<|python_tag|>{"name": "ls", "parameters": {oops}}').errors
    assert "(char 44)" in error.message


HIDDEN = ('["' + "]" * 600 + '",' + "[" * 600 + "]" * 600 + "]", '["]",' * 600 + "1" + "]" * 600)
"""Lists nested far beyond the bound, with closing brackets in texts before or between the opening ones."""


@pytest.mark.parametrize("value", HIDDEN, ids=["before", "between"])
def test_brackets_in_texts_hide_no_nesting(value: str) -> None:
    assert json.loads(value)
    for name, completion in {
        "qwen": block(f'{{"name": "ls", "arguments": {{"a": {value}}}}}'),
        "llama3_json": f'{{"name": "ls", "parameters": {{"a": {value}}}}}',
        "toolace": f"[ls(a={value})]",
    }.items():
        parsed = get_dialect(name).parse(completion)
        assert (parsed.calls, len(parsed.errors)) == ((), 1), name
    quoted = {"name": "ls", "arguments": json.dumps({"a": json.loads(value)})}
    assert not get_dialect("qwen").parse(block(json.dumps(quoted))).calls
    flat = block(json.dumps({"name": "ls", "arguments": {"a": "[" * 600 + "]" * 600}}))
    assert not get_dialect("qwen").parse(flat).calls, "counting alone comes first, and takes these for nested"


def test_odd_escapes_are_read_whatever_is_done_with_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert found("toolace", "[f(a='\\d')]") == f("\\d")
        assert found("toolace", "[f(a=0or 1)]") == ((), ((0, True),))  # "invalid decimal literal" is a warning too
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert found("toolace", "[f(a='\\w')]") == f("\\w")
    assert seen == []


def test_a_thousand_errors_are_told_as_a_few_and_stay_fatal() -> None:
    broken, fatal = block("x"), block('{"name": 1}')
    parsed = get_dialect("qwen").parse(broken * 500 + fatal * 2 + LS_BLOCK)
    first = range(0, MAX_ERRORS * len(broken), len(broken))
    assert [error.position for error in parsed.errors] == [*first, 500 * len(broken)]
    assert [error.fatal for error in parsed.errors] == [False] * MAX_ERRORS + [True]
    assert (parsed.calls, parsed.official_calls) == ((LS,), ())
    assert len(get_dialect("llama3_json").parse("[" + "1, " * 999 + "1]").errors) == MAX_ERRORS


def test_qwen_renders_tools_as_the_official_handler_does() -> None:
    tools = [all_tools()["cd"], all_tools()["post_tweet"]]
    text = get_dialect("qwen").render_tools(tools)
    assert text.startswith(
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        'You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{"name": "cd", '
    )
    assert text.endswith(
        "}\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
        '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
        "</tool_call>"
    )
    lines = text.partition("<tools>\n")[2].partition("\n</tools>")[0].splitlines()
    assert [json.loads(line) for line in lines] == [tool.document for tool in tools]


@pytest.mark.parametrize("name", ["llama3_json", "toolace"])
def test_prompted_dialects_show_the_documents_as_json(name: str) -> None:
    documents = [dict(all_tools()[tool].document) for tool in ("cd", "post_tweet")]
    text = get_dialect(name).render_tools([all_tools()[tool] for tool in ("cd", "post_tweet")])
    for shown in [documents] if name == "toolace" else documents:
        assert json.dumps(shown, indent=4) in text


def test_results_are_shown_in_the_family_s_way() -> None:
    shown = {name: (dialect.result_role, dialect.render_result('{"a": 1}')) for name, dialect in DIALECTS.items()}
    assert shown == {
        "qwen": ("tool", '<tool_response>\n{"a": 1}\n</tool_response>'),
        "llama3_json": ("ipython", '{"a": 1}'),
        "toolace": ("ipython", '{"a": 1}'),
    }


def test_an_unknown_dialect_is_a_users_mistake() -> None:
    with pytest.raises(UserError, match=r"^dialect: 'qwem' is not known; did you mean 'qwen'\?$"):
        get_dialect("qwem")
