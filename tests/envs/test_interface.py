"""The interface Ω: what it shows, what it never touches, its JSON form, and what it refuses."""

import copy
import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envs.bfcl.tasks import get_task, load_tasks
from envs.bfcl.tools import all_tools
from envs.dialects import DIALECTS, get_dialect
from envs.dialogue import REVEAL, Dialogue, Protocol
from envs.errors import UserError
from envs.interface import CueKind, Interface, RecoveryLevel, SchemaCue, interface_diff
from envs.interface.json_form import (
    dump_interface,
    interface_from_dict,
    interface_from_json,
    interface_to_dict,
    load_interface,
)
from envs.interface.show import HINT, show_parse_error, show_result, show_system, show_tools
from envs.task import JSON, ToolCall
from envs.trace import Availability, CallRecord, SchemaViolation, ViolationKind
from tests.envs.players import begun

TOOLS = tuple(all_tools().values())
PLAIN = Interface.plain()
QWEN = get_dialect("qwen")
ENUMS = Interface(schema_cues=(SchemaCue(CueKind.ENUM),))


def record(tool: str = "cd", **changes: object) -> CallRecord:
    fields = {"result": '{"error": "secret-result"}', "is_error": True, "availability": Availability.SHOWN} | changes
    return CallRecord(ToolCall(tool, {"folder": "secret-argument"}), **fields)  # type: ignore[arg-type]


FAILURES = (
    (record(), "well-formed but failed"),
    (record(violations=(SchemaViolation(ViolationKind.MISSING, "secret-name"),)), "argument is missing"),
    (record(violations=tuple(SchemaViolation(ViolationKind.TYPE, name) for name in ("folder", "x"))), "wrong type"),
    (record(availability=Availability.HIDDEN, executed=False), "not available"),
    (record("secret_tool", availability=Availability.UNKNOWN), "not available"),
    (record(is_error=False, violations=(SchemaViolation(ViolationKind.ENUM, "folder"),)), "documented choices"),
)


def test_the_plain_interface_is_the_identity() -> None:
    assert PLAIN.is_plain
    assert Interface(fade=0.5).is_plain
    for shown, tool in zip(show_tools(PLAIN, TOOLS), TOOLS, strict=True):
        assert shown is tool
    for failure, _ in FAILURES:
        assert show_result(PLAIN, failure, all_tools()["cd"]) == failure.result
    for dialect in DIALECTS.values():
        assert show_system(PLAIN, dialect) == ""
        assert show_parse_error(PLAIN, "[ERROR] no", dialect) == "[ERROR] no"


@pytest.mark.parametrize("kind", [CueKind.REQUIRED, CueKind.ENUM, CueKind.TYPE])
def test_a_cue_changes_document_texts_and_nothing_else(kind: CueKind) -> None:
    before = [(copy.deepcopy(tool.document), copy.deepcopy(tool.parameters)) for tool in TOOLS]
    shown = show_tools(Interface(schema_cues=(SchemaCue(kind),)), TOOLS)
    assert before == [(tool.document, tool.parameters) for tool in TOOLS], "the originals were changed"
    for tool, cued in zip(TOOLS, shown, strict=True):
        assert (cued.name, cued.class_name) == (tool.name, tool.class_name)
        assert cued.parameters is tool.parameters
        assert without_texts(cued.document) == without_texts(tool.document)
        pairs = zip(texts(tool.document), texts(cued.document), strict=True)
        assert all(new.startswith(old.rstrip()) for old, new in pairs)
        concerned = {
            CueKind.REQUIRED: True,
            CueKind.TYPE: bool(tool.document["parameters"]["properties"]),
            CueKind.ENUM: "[Enum]" in json.dumps(tool.document["parameters"]),
        }
        assert (cued.document != tool.document) == concerned[kind], tool.name


def texts(document: JSON) -> list[str]:
    """The descriptions that a cue may lengthen: the tool's and its arguments'."""
    schemas = document["parameters"]["properties"].values()
    return [document["description"], *(schema["description"] for schema in schemas)]


def without_texts(value: JSON) -> JSON:
    if isinstance(value, Mapping):
        return {key: without_texts(item) for key, item in value.items() if key not in ("description", "enum")}
    return value


def test_what_each_cue_says() -> None:
    def shown(tool: str, *kinds: CueKind) -> JSON:
        cues = tuple(SchemaCue(kind, (tool,)) for kind in kinds)
        return show_tools(Interface(schema_cues=cues), (all_tools()[tool],))[0].document

    assert shown("cd", CueKind.REQUIRED)["description"].endswith(" Required arguments: folder.")
    assert shown("pwd", CueKind.REQUIRED)["description"].endswith(" Required arguments: none.")
    tags = shown("post_tweet", CueKind.TYPE)["parameters"]["properties"]["tags"]
    assert tags["description"].endswith(" Type: array of string.")
    mode = shown("startEngine", CueKind.ENUM, CueKind.TYPE)["parameters"]["properties"]["ignitionMode"]
    assert mode["enum"] == ["START", "STOP"]
    assert mode["description"].endswith(" Type: string. Allowed values: START, STOP.")
    doors = shown("lockDoors", CueKind.ENUM)["parameters"]["properties"]["door"]
    assert doors["items"]["enum"] == ["driver", "passenger", "rear_left", "rear_right"]
    assert "enum" not in doors


def test_the_system_text_holds_the_format_and_the_guidelines() -> None:
    interface = Interface(schema_cues=(SchemaCue(CueKind.FORMAT),), guidelines=("Look first.", "Then act."))
    assert show_system(interface, QWEN) == f"{QWEN.call_format}\n\nGuidelines:\n- Look first.\n- Then act."
    assert show_system(Interface(guidelines=("Look first.",)), QWEN) == "Guidelines:\n- Look first."
    assert show_tools(interface, TOOLS) == TOOLS
    some = show_tools(Interface(schema_cues=(SchemaCue(CueKind.REQUIRED, ("cd", "ls")),)), TOOLS)
    changed = {tool.name for tool, shown in zip(TOOLS, some, strict=True) if shown is not tool}
    assert changed == {"cd", "ls"}, "a cue for some tools leaves the others alone"


@pytest.mark.parametrize("level", [RecoveryLevel.CLASS, RecoveryLevel.SCHEMA])
def test_recovery_hints_name_the_class_of_the_error_and_nothing_of_its_content(level: RecoveryLevel) -> None:
    interface = Interface(recovery=level)
    for failure, words in FAILURES:
        shown = show_result(interface, failure, all_tools().get(failure.call.name))
        assert shown.startswith(f"{failure.result}\n{HINT}")
        hints = shown.removeprefix(failure.result)
        assert hints.count(words) == 1
        assert "secret" not in hints
        documented = level is RecoveryLevel.SCHEMA and failure.availability is Availability.SHOWN
        assert ("Documentation of cd: folder (string, required)" in hints) == ("folder" in hints) == documented
        assert all(line.startswith(HINT) for line in hints.strip().splitlines())
    success = record(is_error=False)
    assert show_result(interface, success, all_tools()["cd"]) == success.result
    assert show_parse_error(interface, "no", QWEN) == f"no\n{HINT} The call could not be read. {QWEN.call_format}"


def test_hints_never_hold_a_value_of_the_ground_truth() -> None:
    for task, protocol in itertools.product(list(load_tasks().values())[::40], Protocol):
        dialogue = begun(task, interface=Interface(recovery=RecoveryLevel.SCHEMA), protocol=protocol)
        names = {tool.name for tool in task.all_tools if tool.required}
        said, *_ = dialogue.step(QWEN.render_calls([ToolCall(name, {}) for name in (*sorted(names), "no_such_tool")]))
        hints = {line for line in said.splitlines() if line.startswith(HINT)}
        assert len(hints) > 3
        assert not any(HINT in made.result for made in dialogue.trace.turns[0][0].calls), "the trace is plain"
        public = json.dumps([dict(tool.document) for tool in task.all_tools])
        calls = [call for turn in task.turns for call in turn.ground_truth]
        values = {str(value) for call in calls for value in call.arguments.values() if len(str(value)) > 3}
        for value in (value for value in values if value not in public):
            assert not any(value in hint for hint in hints), value


GUIDELINE = st.text(st.characters(categories=("L", "N", "P"), exclude_characters="{}<>[]|%#"), min_size=1, max_size=60)
NAMES = st.lists(st.sampled_from(sorted(all_tools())), max_size=4).map(tuple)
CUES = st.builds(SchemaCue, st.sampled_from(CueKind), NAMES)
INTERFACES = st.builds(
    Interface,
    st.lists(CUES, max_size=4).map(tuple),
    st.sampled_from(RecoveryLevel),
    st.lists(GUIDELINE, max_size=8).map(tuple),
    st.floats(0, 1),
)


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(interface=INTERFACES)
@example(PLAIN)
def test_json_round_trip(interface: Interface) -> None:
    read = interface_from_json(dump_interface(interface))
    cues = {SchemaCue(cue.kind, tuple(sorted(set(cue.tools)))) for cue in interface.schema_cues}
    assert read == Interface(tuple(sorted(cues)), interface.recovery, interface.guidelines, interface.fade)
    assert interface_from_dict(interface_to_dict(read)) == interface_from_json(dump_interface(read)) == read
    assert "\n" not in dump_interface(interface)
    assert interface_from_json("{}") == PLAIN, "missing keys are plain"


MARKS = ("{{ x }}", "{% if %}", "{# x #}", "<|im_end|>", "<tool_call>", "</tools>", "[/INST]")
WRONG_FADES: list[JSON] = [1.01, -0.01, float("nan"), 10**50, True, "0.5", None]
INVALID: list[tuple[JSON, list[str]]] = [
    ({"guideline": ["x"]}, ["'guideline'", "schema_cues, recovery, guidelines, fade"]),
    ({"schema_cues": [{"kind": "type", "tool": ["cd"]}]}, ["schema_cues.0", "'tool'", "kind, tools"]),
    ({"schema_cues": [{"kind": "types"}]}, ["schema_cues.0.kind", "'types'", "'required', 'enum', 'type' or 'format'"]),
    ({"schema_cues": [{"tools": ["cd"]}]}, ["schema_cues.0.kind", "missing"]),
    ({"schema_cues": [{"kind": "type"}, {"kind": "enum", "tools": ["mkdri"]}]}, ["cues.1.tools", "'mkdri'", "'mkdir'"]),
    ({"schema_cues": [{"kind": "type", "tools": "cd"}]}, ["schema_cues.0.tools", "'cd'", "a list"]),
    ({"schema_cues": {"kind": "type"}}, ["schema_cues", "'kind'", "a list"]),
    ({"recovery": "full"}, ["recovery", "'full'", "'none', 'class' or 'schema'"]),
    ({"guidelines": "Look first."}, ["guidelines", "'Look first.'", "a list"]),
    ({"guidelines": [7]}, ["guidelines.0", "7", "string"]),
    ({"guidelines": ["x"] * 9}, ["guidelines", "['x', ", "at most 8"]),
    ({"guidelines": ["x", " "]}, ["guidelines", "empty"]),
    ({"guidelines": ["x" * 401]}, ["guidelines", "401", "400"]),
    ({"guidelines": ["one\ntwo"]}, ["guidelines", "'one\\ntwo'", "one line"]),
    ({"guidelines": ["lone \ud800"]}, ["guidelines", "\\ud800", "printable"]),
    *(({"guidelines": [f"Do {mark} now"]}, ["guidelines", mark, "plain"]) for mark in MARKS),
    *(({"fade": fade}, ["fade", repr(fade), "from 0 to 1"]) for fade in WRONG_FADES),
    (None, ["document", "None", "a JSON object"]),
    (["plain"], ["document", "['plain']", "a JSON object"]),
]


@pytest.mark.parametrize(("value", "words"), INVALID, ids=[ascii(row[0])[:50] for row in INVALID])
def test_what_is_not_valid_is_refused_in_one_sentence(value: JSON, words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        interface_from_dict(value, source="proposal")
    message = str(caught.value)
    assert message.startswith("proposal: ")
    assert message.isprintable(), "one line"
    assert message[-1] in ".?"
    assert re.search(r"[.?][.?]$|pydantic|_Document|validation|[Tt]uple|dictionary", message) is None
    assert all(word in message for word in words), message
    assert len(message) < 300


def test_hostile_json_is_refused_too(tmp_path: Path) -> None:
    deep = '{"guidelines": ' + "[" * 100_000
    for text in ("", "plain", '{"fade": }', deep, "9" * 5_000, '{"guidelines": ["' + "x" * 10**6 + '"]}'):
        with pytest.raises(UserError, match=r"^proposal: not valid JSON \(.*\)\.$"):
            interface_from_json(text, source="proposal")
    (tmp_path / "latin.json").write_bytes(b'{"guidelines": ["\xff"]}')
    for name in ("absent.json", "latin.json"):
        with pytest.raises(UserError, match=rf"^interface: .*{name} cannot be read"):
            load_interface(tmp_path / name)
    (tmp_path / "good.json").write_text('{"fade": 1, "guidelines": ["Schau zuerst – dann handle."]}', encoding="utf-8")
    assert load_interface(tmp_path / "good.json") == Interface(guidelines=("Schau zuerst – dann handle.",), fade=1.0)


def test_the_difference_of_two_interfaces_in_lines() -> None:
    enum, (one, two) = SchemaCue(CueKind.ENUM), (SchemaCue(CueKind.TYPE, tools) for tools in (("cd",), ("cd", "ls")))
    before = Interface((enum, one), RecoveryLevel.NONE, ("A.", "B."), 0.0)
    after = Interface((enum, two), RecoveryLevel.CLASS, ("B.", "C."), 0.25)
    swapped = Interface(before.schema_cues, guidelines=("B.", "A."))
    assert interface_diff(before, after) == (
        *("- cue type on cd", "+ cue type on cd, ls", "~ recovery feedback: none → class", "- guideline: A."),
        *("+ guideline: C.", "~ fade: 0 → 0.25"),
    )
    assert interface_diff(PLAIN, ENUMS) == ("+ cue enum on every tool",)
    assert interface_diff(before, before) == ()
    assert interface_diff(before, swapped) == ("~ guidelines: another order",)


def test_a_dialogue_shows_the_interface_and_judges_as_without_it() -> None:
    interface = Interface(tuple(map(SchemaCue, CueKind)), RecoveryLevel.SCHEMA, ("Look first.",))
    task = get_task("miss_func_0")
    outcomes = []
    for shown in (PLAIN, interface):
        dialogue = Dialogue(task, interface=shown)
        text, info = dialogue.reset()
        for part in ("Look first.", "Required arguments:", QWEN.call_format):
            assert (part in text) == (shown is interface)
        assert [tool.document for tool in info["tools"]] == [tool.document for tool in show_tools(shown, task.tools)]
        while not dialogue.over:
            calls = task.turns[dialogue.turn].ground_truth
            for completion in ([QWEN.render_calls(calls)] if calls else []) + ["Done."]:
                text, *_ = dialogue.step(completion)
                assert REVEAL not in text or ("Required arguments:" in text) == (shown is interface)
        outcomes.append((dialogue.diagnosis, dialogue.success))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][1]
