"""Tool-call dialects by name: `qwen` (Qwen2.5), `llama3_json` (Llama 3.1), `toolace` (ToolACE-2, prompting)."""

from collections.abc import Mapping

from envs.dialects.base import Dialect, ParsedCompletion
from envs.dialects.llama3_json import Llama3Json
from envs.dialects.qwen import Qwen
from envs.dialects.toolace import ToolAce
from envs.errors import check_known

__all__ = ["DIALECTS", "Dialect", "ParsedCompletion", "get_dialect"]

DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (Qwen(), Llama3Json(), ToolAce())}


def get_dialect(name: str) -> Dialect:
    """The dialect of that name. Raises `UserError` for an unknown one."""
    check_known("dialect", DIALECTS, name)
    return DIALECTS[name]
