"""Code that a careless reader of completions would execute."""

from __future__ import annotations

import json
from collections.abc import Sequence

from envs.dialects import Dialect

MARK = "MARK"
"""Stands in the payloads for the path of a file that must never appear."""

EXPRESSIONS = (
    "open('MARK', 'w')",
    "open('MARK', 'w').write('x')",
    "__import__('os').system('touch MARK')",
    "__import__('pathlib').Path('MARK').touch()",
    "__import__('importlib').import_module('os').mkdir('MARK')",
    "exec('import pathlib; pathlib.Path(\"MARK\").touch()')",
    'eval(\'open("MARK", "w")\')',
    "print(file=open('MARK', 'w'))",
    "print('x')",
    "input()",
    "breakpoint()",
    "exit()",
    "(lambda: open('MARK', 'w'))()",
    "[open('MARK', 'w') for _ in (1,)]",
    "{**{'a': open('MARK', 'w')}}",
    "(x := open('MARK', 'w'))",
    'f\'{open("MARK", "w")}\'',
    "open('MARK', 'w') if 1 else 2",
    "1 + open('MARK', 'w').fileno()",
    "-open('MARK', 'w').fileno()",
    "not open('MARK', 'w')",
    "[1, 2][open('MARK', 'w').fileno()]",
    "().__class__.__base__.__subclasses__()",
    "cd(folder=mkdir(dir_name='MARK'))",
    "cd(folder='x') or __import__('os').system('touch MARK')",
    "cd(folder='x');open('MARK','w')",
    "x'), open('MARK', 'w'), cd(folder='x",
    "folder=__import__('os').system('touch MARK')",
    "setattr(__import__('envs.verifier').verifier.Verifier, 'success', True)",
    "setattr(__import__('envs.dialogue').dialogue.Dialogue, 'success', property(lambda s: True))",
    "globals().update(success=True)",
    "MathAPI.power.__globals__.clear()",
    "GorillaFileSystem.ls.__globals__.clear()",
    "ls.__self__.__dict__.clear()",
    "9**9**9",
    "10**10**10",
    "'x' * 10**11",
    "[0] * 10**11",
    "1 << 10**11",
    "[x for x in range(10**11)]",
    "await open('MARK')",
    "yield",
    "*[1]",
    "**{'folder': 1}",
    "NaN",
    "-Infinity",
    "1e999",
    "9" * 5_000,
    "0x" + "f" * 20_000,
    '"\ud800"',
    '"\x00"',
    "\\ud800\\u0000",
    "[" * 500 + "]" * 500,
)
"""Python that a careless reader would evaluate. Wherever it is written, it must amount to nothing."""


def written(dialect: Dialect, code: str) -> Sequence[str]:
    """The code as a whole completion, a tool's name, an argument's value or name, and all arguments at once."""
    quoted = json.dumps(code)
    if dialect.name == "toolace":
        return (
            code,
            f"[{code}]",
            f"[{code}(folder='x')]",
            f"[cd(folder={code})]",
            f"[cd(folder={quoted})]",
            f"[cd(folder={{{code}: 1}})]",
            f"[cd(folder='x', {code}=1)]",
            f"[cd({code})]",
            f"[cd(**{{{quoted}: 1}})]",
            f"[ls(), {code}]",
        )
    key = "arguments" if dialect.name == "qwen" else "parameters"
    objects = (
        code,
        f'{{"name": {code}, "{key}": {{}}}}',
        f'{{"name": {quoted}, "{key}": {{}}}}',
        f'{{"name": "cd", "{key}": {{"folder": {code}}}}}',
        f"{{'name': 'cd', '{key}': {{'folder': {code}}}}}",
        f'{{"name": "cd", "{key}": {{"folder": {quoted}}}}}',
        f'{{"name": "cd", "{key}": {{"folder": "x", {quoted}: 1}}}}',
        f'{{"name": "cd", "name": {quoted}, "{key}": {{"folder": "x"}}}}',
        f'{{"name": "cd", "{key}": {quoted}}}',
        f'{{"name": "cd", "{key}": {code}}}',
    )
    return objects if dialect.name == "llama3_json" else [f"<tool_call>\n{text}\n</tool_call>" for text in objects]
