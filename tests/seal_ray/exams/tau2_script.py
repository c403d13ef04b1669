"""Both sides of τ²-bench by a script, behind OpenAI's interface: the ground truth is done, or nothing at all.

The user names the number of the task and says goodbye when it was answered; in telecom it first does what the ground
truth wants of the user. The tasks are those of the installed benchmark.
"""

import gzip
import json
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from envs.errors import UserError
from seal_ray.exams.tau2.inspecting import Interpreter, find_interpreter

READS = re.compile(r"(get|find|search|list|calculate|transfer|think)")
"""How the names of tools begin that change nothing."""


def interpreter() -> Interpreter | None:
    try:
        return find_interpreter(None)
    except UserError:
        return None


needs_inspect = pytest.mark.skipif(
    interpreter() is None, reason="no environment with inspect-evals: `make inspect`, or SEAL_RAY_INSPECT=…/bin/python"
)


@cache
def _data() -> Path:
    found = interpreter()
    assert found is not None
    program = "import importlib.util as u; print(u.find_spec('inspect_evals').submodule_search_locations[0])"
    said = subprocess.run([str(found.path), "-I", "-c", program], capture_output=True, text=True, check=True)
    return Path(said.stdout.strip()) / "tau2" / "data" / "domains"


def tasks(domain: str) -> list[dict[str, Any]]:
    """The tasks of a domain's base split."""
    folder = _data() / domain
    packed = folder / "tasks.json.gz"
    text = gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / "tasks.json").read_bytes()
    base = set(json.loads((folder / "split_tasks.json").read_bytes())["base"])
    return [task for task in json.loads(text) if task["id"] in base]


def actions(task: Mapping[str, Any], side: str = "assistant") -> list[dict[str, Any]]:
    found = task["evaluation_criteria"]["actions"] or []
    return [action for action in found if action.get("requestor", "assistant") == side]


def changes(task: Mapping[str, Any]) -> bool:
    """Whether something must be changed, so that doing nothing is wrong."""
    return any(not READS.match(action["name"]) for action in actions(task) + actions(task, "user"))


def _plain(text: str | None) -> str:
    return " ".join((text or "").split())


@dataclass
class Script:
    """`wrong` are the ids of tasks in which nothing is done. After `dies_after` answers it answers no request."""

    tasks: Sequence[Mapping[str, Any]]
    wrong: frozenset[str] = frozenset()
    dies_after: int | None = None
    asked: Counter[str] = field(default_factory=Counter)

    def answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        messages = body["messages"]
        names = [tool["function"]["name"] for tool in body.get("tools") or ()]
        results = sum(message["role"] == "tool" for message in messages)
        said = sum(message["role"] == "assistant" and not message.get("tool_calls") for message in messages)
        if "<scenario>" in str(messages[0]["content"]):
            number = self._number(_plain(str(messages[0]["content"])))
            doing = [] if self.tasks[number]["id"] in self.wrong else actions(self.tasks[number], "user")
            if not said:
                return {"content": f"Please do task {number}."}
            return _call(doing[results], names) if results < len(doing) else {"content": "###STOP###"}
        asked = next(str(message["content"]) for message in messages if message["role"] == "user")
        task = self.tasks[int(asked.rpartition(" ")[2].rstrip("."))]
        if task["id"] in self.wrong:
            return {"content": "I cannot do that."}
        if results < len(actions(task)):
            return _call(actions(task)[results], names)
        return {"content": "Done: " + "; ".join(task["evaluation_criteria"].get("communicate_info") or ())}

    def _number(self, prompt: str) -> int:
        (found,) = (
            number
            for number, task in enumerate(self.tasks)
            if all(
                _plain(task["user_scenario"]["instructions"][key]) in prompt
                for key in ("reason_for_call", "known_info", "task_instructions")
            )
        )
        return found


def _call(action: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    name = next(each for each in names if each == action["name"] or each.endswith(f"_{action['name']}"))
    function = {"name": name, "arguments": json.dumps(action["arguments"])}
    return {"content": "", "tool_calls": [{"id": "call_0", "type": "function", "function": function}]}


@contextmanager
def serving(script: Script, port: int = 0) -> Iterator[str]:
    """The script at an address, up to `/v1`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send({"object": "list", "data": [{"id": "script"}]})

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if script.dies_after is not None and script.asked.total() >= script.dies_after:
                self.close_connection = True
                return
            script.asked[text] += 1
            message = {"role": "assistant", **script.answer(json.loads(text))}
            finish = "tool_calls" if "tool_calls" in message else "stop"
            choice = {"index": 0, "message": message, "finish_reason": finish}
            usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
            common = {"id": "x", "object": "chat.completion", "created": 0, "model": "script"}
            self._send({**common, "choices": [choice], "usage": usage})

        def _send(self, document: Any) -> None:
            content = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
