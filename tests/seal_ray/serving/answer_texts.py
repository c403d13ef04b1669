"""Texts that models may write, for tests of what a served answer is."""

from collections.abc import Sequence

from envs.task import ToolCall

LS, CD = ToolCall("ls", {}), ToolCall("cd", {"folder": "a"})


def block(text: str) -> str:
    return f"<tool_call>\n{text}\n</tool_call>"


QWEN_LS, QWEN_CD = block('{"name": "ls", "arguments": {}}'), block('{"name": "cd", "arguments": {"folder": "a"}}')
LLAMA_LS, LLAMA_CD = '{"name": "ls", "parameters": {}}', '{"name": "cd", "parameters": {"folder": "a"}}'
TAGGED = ToolCall("echo", {"x": "</tool_call>"})
ALICE = ToolCall("greet", {"name": "alice"})


FOUND: Sequence[tuple[str, str, str, Sequence[ToolCall]]] = (
    # dialect, text, content, calls
    ("qwen", block('{"name": "echo", "arguments": {"x": "</tool_call>"}}'), "", [TAGGED]),
    ("qwen", f"<think>\n{QWEN_LS}\n</think>\n\n{QWEN_CD}", f"<think>\n{QWEN_LS}\n</think>\n\n", [CD]),
    ("qwen", block('{"name": "cd", "arguments": "{\\"folder\\": \\"a\\"}"}'), "", [CD]),
    ("qwen", block('{"arguments": {"folder": "a"}, "name": "cd"}'), "", [CD]),
    ("qwen", block('{"name": "greet", "arguments": {"name": "alice"}}'), "", [ALICE]),
    ("qwen", block('{"arguments": {"name": "alice"}, "name": "greet"}'), "", [ALICE]),
    ("qwen", block('{"name": "ls"}'), block('{"name": "ls"}'), []),
    ("qwen", '<tool_call>{"name": "ls", "arguments": {}}</tool_call>',
     '<tool_call>{"name": "ls", "arguments": {}}</tool_call>', []),
    ("qwen", f"{QWEN_LS}\n{block('{broken')}", f"\n{block('{broken')}", [LS]),
    ("qwen", f"{block('{broken')}\n{QWEN_LS}", f"{block('{broken')}\n", [LS]),
    ("qwen", "Write <tool_call> to call.", "Write <tool_call> to call.", []),
    ("qwen", block('{"name": "ls", "arguments": {},}'), block('{"name": "ls", "arguments": {},}'), []),
    ("qwen", block('{"name": "ls", "arguments": null}'), block('{"name": "ls", "arguments": null}'), []),
    ("qwen", block('{"name": "ls", "arguments": [1]}'), block('{"name": "ls", "arguments": [1]}'), []),
    *(("qwen", block(f'{{"name": "ls", "arguments": {{"x": {number}}}}}'),
       block(f'{{"name": "ls", "arguments": {{"x": {number}}}}}'), []) for number in ("NaN", "-Infinity", "1e999")),
    ("qwen", f"I look.\n{QWEN_LS}\n{QWEN_CD}\n", "I look.\n", [LS, CD]),
    ("qwen", f"I look.\n{QWEN_LS} and\n{QWEN_CD}\nDone.", "I look.\n and\n\nDone.", [LS, CD]),
    ("llama3_json", LLAMA_LS, "", [LS]),
    ("llama3_json", f"<|python_tag|>{LLAMA_LS}; {LLAMA_CD}", "", [LS, CD]),
    ("llama3_json", f"[{LLAMA_LS}, {LLAMA_CD}]", "", [LS, CD]),
    ("llama3_json", f'{LLAMA_LS}; {{"name": "cd"}}', '; {"name": "cd"}', [LS]),
    ("llama3_json", f'[{LLAMA_LS}, {{"name": "cd"}}]', f'[{LLAMA_LS}, {{"name": "cd"}}]', [LS]),
    ("llama3_json", f"I call {LLAMA_LS}", f"I call {LLAMA_LS}", []),
    ("llama3_json", f"{LLAMA_LS} is the call.", f"{LLAMA_LS} is the call.", []),
    ("llama3_json", "{'name': 'ls', 'parameters': {}}", "", [LS]),
    ("llama3_json", '{"name": "ls", "parameters": {"x": NaN}}', '{"name": "ls", "parameters": {"x": NaN}}', []),
    ("llama3_json", '{"parameters": {"name": "alice"}, "name": "greet"}', "", [ALICE]),
    ("toolace", "[ls(), cd(folder='a')]", "", [LS, CD]),
    ("toolace", "ls()", "", [LS]),
    ("toolace", "```\n[ls()]\n```", "", [LS]),
    ("toolace", "[ls()] is the call.", "[ls()] is the call.", []),
    ("toolace", "[ls(x=1e999)]", "[ls(x=1e999)]", []),
    ("toolace", "[ls(), 1]", "[ls(), 1]", []),
    ("toolace", "[cd('b', folder='a')]", "", [CD]),
    ("toolace", "[greet(name='alice')]", "", [ALICE]),
)  # fmt: skip

PROSE = (
    "",
    "Done.",
    "I will call ls() now.",
    "5 [USD] is due",
    "[1] According to the report",
    "{x} is a set",
    "`a`",
    "# A\nb",
)

EARLIEST: Sequence[tuple[str, Sequence[tuple[str, str]]]] = (
    # dialect, (new text, the part that is sent then) in turn
    ("qwen", [("Hel", "Hel"), ("lo <", "lo "), ("b> <tool", "<b> "), ("box>", "<toolbox>"), ("\n<tool_call>", "\n")]),
    ("qwen", [("<tool_call> x", "<tool_call> x"), ("A<tool_call>\n", "A"), ("[", ""), ("1", "")]),
    ("qwen", [(f"A{QWEN_LS}", "A"), (" B", ""), ("</think>", f"{QWEN_LS} B</think>"), ("C", "C")]),
    ("qwen", [(f"{block('{}')}A", f"{block('{}')}A"), ("<", ""), ("p", "<p")]),
    ("qwen", [("<thi", ""), ("nk>\nA", "A"), ("\n", ""), ("B</th", "\nB"), ("ink>\n\nC", "C"), ("\n", "\n")]),
    ("llama3_json", [(" ", ""), ("H", " H"), ('{"name"', '{"name"')]),
    ("llama3_json", [("<|python", ""), ("_tag|>", ""), ("x", "<|python_tag|>x")]),
    ("llama3_json", [("[1", ""), ("] ", ""), ("A", ""), ("s", "")]),
    ("toolace", [("I", ""), (" ", ""), ("w", "I w"), ("ill ls()", "ill ls()")]),
    ("toolace", [("Sure", ""), (",", "Sure,"), (" ls()", " ls()")]),
    ("toolace", [("Sure", ""), (".", ""), (" I", ""), (" will", "Sure. I will")]),
    ("toolace", [("*", "*"), ("*Sure**", "*Sure**")]),
    ("toolace", [("[ls", ""), ("(a=1)", ""), ("]", ""), (" B", "")]),
    ("toolace", [("[1", ""), ("]", ""), (" A", "[1] A")]),
    ("toolace", [("f]", ""), ("(x=1)", ""), ("#", "")]),
)  # fmt: skip


def texts(dialect: str) -> list[str]:
    """The texts of that dialect that `FOUND` has, and their neighbours."""
    found = [text for name, text, *_ in FOUND if name == dialect]
    around = [
        f"A {found[0]}",
        f"{found[0]} B",
        f"A\n{found[0]}\nB",
        f"<think>A</think>{found[0]}",
        f"{found[0]}</think>",
    ]
    cut = [text[:size] for text in found[:4] for size in range(3, len(text), 9)]
    thoughts = [f"<think>\nA\n</think>\n\n{text}" for text in found[:3]] + [f"<think>{text}" for text in found[:3]]
    pairs = [f"{first}{between}{second}" for first in found[:3] for second in found[:3] for between in ("", "\n", "; ")]
    return [*found, *around, *cut, *thoughts, *pairs, *PROSE]
