"""All 800 BFCL V3 multi-turn tasks as typed values."""

import ast
import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType

from envs.bfcl.simulators import simulator_class
from envs.bfcl.tools import all_tools, data_folder, read_rows, tools_of, with_python_hint
from envs.bfcl.world import Simulators
from envs.errors import EnvironmentFault, unknown_value
from envs.task import JSON, Category, Task, ToolCall, Turn

ID_PREFIX = "multi_turn_"


@cache
def load_tasks() -> Mapping[str, Task]:
    """Every task by id, category by category in published order. The first call takes half a second."""
    folder = data_folder()
    tasks: dict[str, Task] = {}
    for category in Category:
        file = f"BFCL_v4_multi_turn_{category}.json"
        answers = {row["id"]: row["ground_truth"] for row in read_rows(folder / "possible_answer" / file)}
        tasks |= {row["id"]: _task(category, row, answers[row["id"]]) for row in read_rows(folder / file)}
    return MappingProxyType(tasks)


def get_task(task_id: str) -> Task:
    """The task of that id, with or without the prefix "multi_turn_". Raises `UserError` for an unknown id."""
    tasks = load_tasks()
    task = tasks.get(task_id) or tasks.get(ID_PREFIX + task_id)
    if task is None:
        short = not task_id.startswith(ID_PREFIX)
        raise unknown_value("task", task_id, [known.removeprefix(ID_PREFIX) if short else known for known in tasks])
    return task


def _task(category: Category, row: Mapping[str, JSON], answers: Sequence[Sequence[str]]) -> Task:
    classes = tuple(row["involved_classes"])
    held_out: Mapping[str, Sequence[str]] = row.get("missed_function", {})
    hidden = {name for names in held_out.values() for name in names}
    shown = [tool for class_name in classes for tool in tools_of(class_name)]
    turns = tuple(
        Turn(
            user=messages[0]["content"] if messages else None,
            ground_truth=tuple(parse_ground_truth(text) for text in calls),
            revealed=tuple(all_tools()[name] for name in held_out.get(str(index), ())),
        )
        for index, (messages, calls) in enumerate(zip(row["question"], answers, strict=True))
    )
    return Task(
        id=row["id"],
        category=category,
        scenario=row["id"].rsplit("_", 1)[1],
        turns=turns,
        tools=tuple(with_python_hint(tool) for tool in shown if tool.name not in hidden),
        classes=classes,
        setting=Simulators(classes, row["initial_config"], padded=category is Category.LONG_CONTEXT),
    )


def parse_ground_truth(text: str) -> ToolCall:
    """A ground-truth call of the data files, "f(1, b='x')", with all arguments named."""
    node = ast.parse(text, mode="eval").body
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise EnvironmentFault(f"ground truth {text!r} is not a call")
    tool = all_tools().get(node.func.id)
    if tool is None:
        raise EnvironmentFault(f"ground truth {text!r} calls an undocumented tool")
    _, *order = inspect.signature(getattr(simulator_class(tool.class_name), tool.name)).parameters  # without self
    arguments = {name: ast.literal_eval(value) for name, value in zip(order, node.args, strict=False)}
    arguments |= {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    return ToolCall(tool.name, arguments)
