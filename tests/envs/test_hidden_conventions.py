"""Tools with hidden conventions: what documents show, what a breach does, and which tools have entered."""

import json
import random

import pytest

from envs.diagnosis import Diagnosis, Label
from envs.dialects import DIALECTS
from envs.dialogue import Dialogue
from envs.errors import UserError
from envs.hidden_conventions import (
    CODE,
    DEMONSTRATION_SETS,
    ENTERING,
    SETS,
    SOURCE,
    STAGE,
    TURNS,
    HiddenTool,
    compose,
    draw_code,
    tool_set,
)
from envs.interface import Interface
from envs.interface.guard import LeakGuard
from envs.interface.show import show_tools
from envs.interface.value import CueKind, RecoveryLevel, SchemaCue
from envs.profile import FailureProfile
from envs.sources import get_source
from envs.task import Task, ToolCall


@pytest.fixture(scope="module", autouse=True)
def known(own_sources_of_this_file: None) -> None:
    """As a setting makes the source known."""
    del own_sources_of_this_file
    assert get_source("envs.hidden_conventions:SOURCE") is SOURCE


TOOLS = [tool for number in range(SETS) for tool in tool_set(number)]
EVERY_CUE = Interface(tuple(map(SchemaCue, sorted(CueKind))), RecoveryLevel.SCHEMA)


def played(task: Task, call: ToolCall, interface: Interface = Interface.plain()) -> tuple[Diagnosis, str]:
    """The diagnosis of a dialogue with one call, and everything that the model was shown."""
    dialogue = Dialogue(task, interface=interface)
    shown, _ = dialogue.reset()
    result = dialogue.step(DIALECTS["qwen"].render_calls((call,)))[0]
    _, _, _, _, info = dialogue.step("Done.")
    return info["diagnosis"], shown + result


@pytest.mark.parametrize("tool", TOOLS[:12], ids=lambda tool: tool.name)
def test_only_the_code_passes_and_the_profile_names_it(tool: HiddenTool) -> None:
    task, (value,) = compose(random.Random(tool.name), "hidden_x", "train", [tool], [tool])
    assert played(task, task.turns[0].ground_truth[0])[0].success
    for other in (None, draw_code(random.Random(tool.name)), "-".join(reversed(tool.code.split("-")))):
        diagnosis, shown = played(task, tool.call(value, other), EVERY_CUE)
        (turn,) = diagnosis.turns
        assert (turn.label, turn.tool, turn.argument) == (Label.ARGUMENT_MISMATCH, tool.name, tool.argument)
        profile = FailureProfile()
        profile.add(diagnosis, 0.0)
        assert f"- {tool.name} {tool.argument} {tool.code}: 1 turns" in profile.render()
        assert tool.code not in shown, "no cue states the code"


def test_an_argument_names_the_tool_of_a_set() -> None:
    assert all(len({tool.argument for tool in tool_set(number)}) == len(tool_set(number)) for number in range(SETS))
    assert all(CODE.fullmatch(tool.code) for tool in TOOLS)


def test_new_tools_enter_over_training_and_evaluation_has_all() -> None:
    pool, tools = SOURCE.pool("train", difficulty="7"), [tool.name for tool in tool_set(7)]
    for stage in range(5):
        entered = tools[: ENTERING * (stage + 1)]
        tasks = [SOURCE.task(pool.task_id(stage * STAGE + number, seed=3)) for number in range(STAGE)]
        assert all(len({turn.ground_truth[0].name for turn in task.turns}) == 1 for task in tasks)
        assert {len(task.turns) for task in tasks} == {TURNS}
        needed = [task.turns[0].ground_truth[0].name for task in tasks]
        assert set(needed) <= set(entered)
        assert {tool.name for task in tasks for tool in task.all_tools} == set(entered)
        assert sum(name in entered[-ENTERING:] for name in needed) >= STAGE / 2 - 10
    dev = [SOURCE.task(SOURCE.pool("dev", difficulty="7").task_id(number)) for number in range(100)]
    assert {task.turns[0].ground_truth[0].name for task in dev} == set(tools)


def test_parts_share_no_value_and_tasks_are_made_again_from_their_ids() -> None:
    values = []
    for part in SOURCE.parts:
        pool = SOURCE.pool(part)
        tasks = [SOURCE.task(pool.task_id(number)) for number in range(400)]
        values.append({str(call) for task in tasks for call in task.turns[0].ground_truth})
        assert [SOURCE.task(task.id).turns for task in tasks] == [task.turns for task in tasks]
        assert all(pool.holds(task.id) and SOURCE.owns(task.id) for task in tasks)
    assert sum(map(len, values)) == len(set.union(*values))


@pytest.mark.parametrize("task_id", ["hidden_train_20_000001", "hidden_train_0_1", "hidden_eval_0_000001", "hidden_"])
def test_an_unknown_id_is_one_sentence(task_id: str) -> None:
    with pytest.raises(UserError, match="is not the id of a hidden task"):
        SOURCE.task(task_id)
    with pytest.raises(UserError, match=r"^difficulty: '20' is not known"):
        SOURCE.pool("train", difficulty=str(SETS))


def test_no_document_states_a_code_and_the_guard_accepts_a_guideline_that_does() -> None:
    for tool in SOURCE.tools().values():
        (shown,) = show_tools(EVERY_CUE, (tool,))
        assert not CODE.search(json.dumps(dict(shown.document)))
    assert len(SOURCE.tools()) == 12 * (SETS + len(DEMONSTRATION_SETS)), "every tool has a name of its own"
    pool = SOURCE.pool("train")
    guard = LeakGuard([SOURCE.task(pool.task_id(number)) for number in range(200)])
    for hidden in tool_set(0):
        text = f"Give {hidden.argument} {hidden.code}."
        assert guard.check(Interface(guidelines=(text,))) is None, text
