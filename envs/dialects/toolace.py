"""The ToolACE dialect, the official prompt format: a Python list of calls, `[f(a=1), g()]`, read as syntax only."""

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from envs.dialects.base import Dialect, ParsedCompletion, Settled, check_finite
from envs.dialects.literal import MAX_PYTHON_CHARACTERS, literal_value, parse_expression
from envs.task import JSON, ToolCall, ToolDoc
from envs.trace import ParseError

_SYSTEM = (
    "You are an expert in composing functions.You are given a question and a set of possible functions. Based on the "
    "question, you will need to make one or more function/tool calls to achieve the purpose. If none of the functions "
    "can be used, point it out. If the given question lacks the parameters required by the function, also point it "
    "out.\n\nYou should only return the function calls in your response.\n\nIf you decide to invoke any of the "
    "function(s), you MUST put it in the format of [func_name1(params_name1=params_value1, "
    "params_name2=params_value2...), func_name2(params)].  You SHOULD NOT include any other text in the response.\n\n"
    "At each turn, you should try your best to complete the tasks requested by the user within the current turn. "
    "Continue to output functions to call until you have fulfilled the user's request to the best of your ability. "
    "Once you have no more functions to call, the system will consider the current turn complete and proceed to the "
    "next turn or task.\n\nHere is a list of functions in json format that you can invoke.\n"
)
_LOOKS_LIKE_A_CALL = re.compile(r"\[?\s*[A-Za-z_][\w.]*\s*\(")
_WORD = r"[\w\x80-\U0010ffff]"
_PROSE = re.compile(
    rf"\[?\s*+(?:{_WORD}++(?:\s*+\.\s*+{_WORD}++)*+"
    rf"(?:\s++{_WORD}|\s*+\]\s*+{_WORD}|\s*+[^\w\s.(\[\]\"'#\\\x80-\U0010ffff])"
    r"|[^\w\s.(\[\]{\"'#\\\x80-\U0010ffff])"
)
"""The start of a completion without calls: a name that is not called, or a mark that begins no call."""
_FRAME = "`\n "


@dataclass(frozen=True, slots=True)
class ToolAce(Dialect):
    """Decodes as the official prompt handler does, except that arithmetic and nested calls are errors."""

    name: str = "toolace"
    result_role: str = "ipython"
    tools_in_system: bool = True
    call_format: str = "Answer with nothing but a list of calls with named arguments: [tool(argument=value, …), …]."

    def render_tools(self, tools: Sequence[ToolDoc]) -> str:
        return f"{_SYSTEM}{json.dumps([dict(tool.document) for tool in tools], indent=4)}\n"

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        return f"[{', '.join(str(call) for call in calls)}]" if calls else ""

    def parse(self, completion: str) -> ParsedCompletion:
        text = completion.strip(_FRAME)
        begin = completion.find(text)
        source = ("" if text.startswith("[") else "[") + text + ("" if text.endswith("]") else "]")
        attempted = text.startswith("[") or _LOOKS_LIKE_A_CALL.match(text) is not None
        try:
            nodes = _elements(source)
            calls = [_call(node) for node in nodes]
        except ValueError as error:
            if not attempted:
                return ParsedCompletion()  # an answer in words
            return ParsedCompletion(errors=(ParseError(begin, f"the tool calls cannot be read: {error}"),))
        positional = any(node.args for node in nodes if isinstance(node, ast.Call))
        # The official decoder drops positional arguments; here the model gets an error too.
        errors = [ParseError(begin, "arguments must be named: tool(argument=value)", fatal=False)] if positional else []
        spans = ((0, len(completion)),) if calls else ()
        return ParsedCompletion(tuple(calls), tuple(errors), spans=spans)

    def stream(self) -> Settled:
        return _settled


def _settled(completion: str) -> int:
    """Calls are the whole completion, so that all or nothing is settled."""
    text = completion.strip(_FRAME)
    is_content = _PROSE.match(completion.lstrip(_FRAME)) is not None or len(text) > MAX_PYTHON_CHARACTERS
    return len(completion) if is_content else 0


def _elements(source: str) -> list[ast.expr]:
    body = parse_expression(source.strip().strip("'"))
    if isinstance(body, ast.Call):
        return [body]
    if isinstance(body, ast.List | ast.Tuple | ast.Set):
        return list(body.elts)
    raise ValueError("it is not a list of calls")


def _call(node: ast.expr) -> ToolCall:
    if not isinstance(node, ast.Call):
        raise ValueError("a list item is not a call")
    parts: list[str] = []
    target = node.func
    while isinstance(target, ast.Attribute):
        parts.append(target.attr)
        target = target.value
    if isinstance(target, ast.Name):
        parts.append(target.id)
    arguments: dict[str, JSON] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError("** is not an argument")
        arguments[keyword.arg] = literal_value(keyword.value)
    return check_finite(ToolCall(".".join(reversed(parts)), arguments))
