"""Half a surrogate pair, which JSON can spell and nothing can encode, harms no dialogue, record, proposal or game."""

import asyncio
import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs import co_evolution_v0
from envs.bfcl.source import SOURCE
from envs.bfcl.tasks import load_tasks
from envs.dialects import DIALECTS
from envs.dialogue import Message, Protocol
from envs.errors import UserError
from envs.task import ToolCall
from envs.text import map_texts, valid_text
from policies.curator.proposal_text import read_proposal
from policies.engine import GenRequest
from policies.rollouts import RolloutJob, Rollouts
from policies.solver import Budgets, Solver
from policies.trajectory import Trajectory
from seal_ray.evaluation.records import Record
from seal_ray.evaluation.resumable_log import ResumableLog
from seal_ray.report.files import JsonLines
from tests.policies.chat_models import FAMILIES, family_tokenizer
from tests.policies.scripted_engine import ScriptedEngine
from tests.policies.test_control_tokens import form_of

HALF = "\ud83d"
CALLS = (
    *(ToolCall("ls", {HALF: 1}), ToolCall(HALF, {}), ToolCall(f"{HALF}.ls", {"a": HALF})),
    *(ToolCall("echo", {"content": f"a{HALF}b"}), ToolCall("touch", {"file_name": HALF})),
    *(ToolCall("cat", {"file_name": f"{HALF}x"}), ToolCall("cd", {"folder": {"deep": [{HALF: HALF}]}})),
    ToolCall("post_tweet", {"content": HALF, "tags": [HALF], "mentions": [{HALF: [HALF]}]}),
    ToolCall("ls", {"a": True}),
)
_FULL = next(task for task in load_tasks().values() if {"GorillaFileSystem", "TwitterAPI"} <= set(task.classes))
TASK = replace(_FULL, tools=tuple(tool for tool in _FULL.tools if tool.name in {call.name for call in CALLS}))
"""With few tools shown: a vocabulary of bytes takes long over the documents."""
BUDGETS = Budgets(prompt=100_000, response=100_000, context=200_000)


def played(family: str, protocol: Protocol) -> list[Trajectory]:
    """Dialogues of nothing but such calls: one call a completion, and all in one."""
    form = form_of(family)
    said = [form.dialect.render_calls([call]) for call in CALLS] + [form.dialect.render_calls(CALLS), "Done."]

    def answer(request: GenRequest) -> tuple[int, ...]:
        # A byte-level vocabulary cannot spell a half itself; JSON and Python escapes can.
        text = said[request.seed % len(said)].encode("ascii", "backslashreplace").decode("ascii")
        return form.completion(text)

    engine = ScriptedEngine(answer, context=BUDGETS.context, vocabulary=len(family_tokenizer(family)))
    rollouts = Rollouts(Solver(engine, form, BUDGETS), concurrent=4)
    jobs = [RolloutJob(TASK, seed, protocol=protocol) for seed in range(len(CALLS) + 2)]
    outcomes = asyncio.run(rollouts.play_or_fault(jobs, retries=0, check=lambda _: None))
    trajectories = [outcome for outcome in outcomes if isinstance(outcome, Trajectory)]
    assert trajectories == outcomes, "no dialogue is a fault"
    return trajectories


@pytest.mark.parametrize(("family", "protocol"), list(zip(FAMILIES, itertools.cycle(Protocol), strict=False)))
def test_a_policy_that_says_it_loses_no_dialogue_and_no_record(family: str, protocol: Protocol, tmp_path: Path) -> None:
    trajectories = played(family, protocol)
    raw = [record.call for each in trajectories for turn in each.trace.turns for step in turn for record in step.calls]
    said = json.dumps([call.to_dict() for call in raw], ensure_ascii=False)
    assert HALF in said, "the simulators saw it as it was said"
    records = ResumableLog(
        tmp_path / "dialogues.jsonl", {}, lambda row: (row["seed"], Record.from_dict(row)), what="evaluation"
    )
    stored = [records.append(trajectory.to_dict()) for trajectory in trajectories]
    assert list(records.answers().values()) == stored
    lines = JsonLines(tmp_path / "lines.jsonl")
    for trajectory in trajectories:
        lines.append(trajectory.to_dict())
    assert json.dumps(list(lines.rows()), ensure_ascii=False).encode()
    named = [(turn.tool, turn.argument) for each in trajectories for turn in each.diagnosis.turns]
    assert str(named).encode()
    SOURCE.write_results(tmp_path / "bfcl", stored[:1], form_of(family).dialect.name)


@pytest.mark.parametrize(
    "proposal",
    [
        *({"guidelines": [f"Say {HALF}."], HALF: HALF}, {"recovery": HALF}),
        {"schema_cues": [{"kind": "required", "tools": [HALF]}]},
        {"schema_cues": [{"kind": "required", HALF: [HALF]}]},
    ],
)
def test_a_proposal_is_refused_in_words_that_can_be_encoded_and_so_are_a_games_texts(proposal: object) -> None:
    with pytest.raises(UserError) as caught:
        read_proposal(json.dumps(proposal))
    str(caught.value).encode()
    game = co_evolution_v0.env()
    game.reset(seed=0)
    game.step(json.dumps(proposal))
    game.infos["curator"]["rejection"].encode()
    game.step(DIALECTS["qwen"].render_calls([ToolCall(HALF, {HALF: HALF})]))
    game.observe("solver")["text"].encode()


@given(st.text(st.characters()) | st.text(st.characters(categories=["Cs"]) | st.just("a")))
def test_valid_text_changes_halves_alone(text: str) -> None:
    made = valid_text(text)
    made.encode()
    assert valid_text(made) == made
    try:
        text.encode()
    except UnicodeEncodeError:
        assert "\ufffd" in made or len(made) < len(text)
    else:
        assert made is text
    assert valid_text("a\ud83d\ude00b\ude00") == "a\U0001f600b\ufffd", "pairs become their character"
    assert map_texts({HALF: [HALF, 1, None, (HALF,)]}, valid_text) == {"\ufffd": ["\ufffd", 1, None, ["\ufffd"]]}
    assert Message("user", HALF).content == "\ufffd"
