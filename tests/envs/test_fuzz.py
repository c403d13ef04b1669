"""Hundreds of hostile completions through each dialect and a dialogue: nothing raises and nothing leaks.

`python -m tests.fuzz` plays many more of them.
"""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.dialects import DIALECTS, Dialect
from envs.dialogue import Dialogue, Protocol
from envs.profile import FailureProfile
from envs.task import Task
from tests.envs.players import begun
from tests.fuzz.pieces import REFERENCES, mutated, observations, sensible_call

SCRAPS = st.lists(st.text(max_size=60), min_size=2, max_size=4)
"""Any code points: surrogates and controls too."""


@pytest.fixture(scope="module")
def recorded() -> dict[Task, list[str]]:
    """The references' observations before any fuzzing."""
    return {task: observations(task) for task in REFERENCES}


def check_trace(dialogue: Dialogue) -> int:
    """Asserts that a trace can be serialised; returns its number of calls."""
    records = [record for turn in dialogue.trace.turns for step in turn for record in step.calls]
    for record in records:
        assert json.dumps(record.call.to_dict())
        assert str(record.call).startswith(record.call.name)
        assert isinstance(record.result, str)
    return len(records)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
def test_hostile_completions_raise_nothing_and_leave_nothing(dialect: Dialect, recorded: dict[Task, list[str]]) -> None:
    profile, calls = FailureProfile(), 0

    @settings(max_examples=40, derandomize=True, database=None, deadline=None)
    @given(
        task=st.sampled_from(REFERENCES),
        protocol=st.sampled_from(list(Protocol)),
        opened=st.booleans(),
        odd=SCRAPS,
        seed=st.integers(0, 2**32),
    )
    def fuzz(task: Task, protocol: Protocol, opened: bool, odd: list[str], seed: int) -> None:
        nonlocal calls
        rng = random.Random(seed)
        others = [other.render_calls([sensible_call(rng, task)]) for other in DIALECTS.values()]
        drawn = [*odd, *others, *(dialect.render_calls([sensible_call(rng, task)]) for _ in range(8))]
        completions = drawn + [mutated(rng, drawn) for _ in range(25)]
        rng.shuffle(completions)
        truth = dialect.render_calls([made for turn in task.turns for made in turn.ground_truth])
        dialogue = begun(task, dialect=dialect, protocol=protocol)
        for text in ([truth] if opened else []) + completions:
            observation, reward, terminated, truncated, info = dialogue.step(text)
            assert isinstance(observation, str)
            assert reward == float(dialogue.success)
            assert (terminated or truncated) == dialogue.over == ("diagnosis" in info)
            if dialogue.over:
                profile.add(dialogue.diagnosis, reward)
                calls += check_trace(dialogue)
                dialogue.reset()
        dialogue.truncate()
        profile.add(dialogue.diagnosis, 0.0)
        calls += check_trace(dialogue)
        assert observations(task) == recorded[task]

    fuzz()
    assert calls > 500, "the simulators were hardly fuzzed"
    assert {task: observations(task) for task in REFERENCES} == recorded
    assert FailureProfile.from_dict(json.loads(json.dumps(profile.to_dict()))).render() == profile.render()
