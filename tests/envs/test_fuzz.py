"""Hundreds of hostile completions through each dialect and a dialogue: nothing raises and nothing leaks.

`python -m tests.fuzz` plays many more of them.
"""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.dialects import DIALECTS, Dialect
from envs.dialogue import Protocol
from envs.profile import FailureProfile
from envs.task import Task
from envs.trace import CallRecord
from tests.envs.players import begun, records
from tests.fuzz.pieces import REFERENCES, mutated, observations, sensible_call


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
def test_hostile_completions_raise_nothing_and_leave_nothing(dialect: Dialect) -> None:
    profile, made = FailureProfile(), list[CallRecord]()
    recorded = {task: observations(task) for task in REFERENCES}

    @settings(max_examples=25, derandomize=True, database=None, deadline=None)
    @given(
        task=st.sampled_from(REFERENCES),
        protocol=st.sampled_from(list(Protocol)),
        opened=st.booleans(),
        odd=st.lists(st.text(max_size=60), min_size=2, max_size=4),  # any code points: surrogates and controls too
        seed=st.integers(0, 2**32),
    )
    def fuzz(task: Task, protocol: Protocol, opened: bool, odd: list[str], seed: int) -> None:
        rng = random.Random(seed)
        others = [other.render_calls([sensible_call(rng, task)]) for other in DIALECTS.values()]
        drawn = [*odd, *others, *(dialect.render_calls([sensible_call(rng, task)]) for _ in range(8))]
        completions = drawn + [mutated(rng, drawn) for _ in range(25)]
        rng.shuffle(completions)
        truth = dialect.render_calls([call for turn in task.turns for call in turn.ground_truth])
        dialogue = begun(task, dialect=dialect, protocol=protocol)
        for text in ([truth] if opened else []) + completions:
            observation, reward, terminated, truncated, info = dialogue.step(text)
            assert isinstance(observation, str)
            assert reward == float(dialogue.success)
            assert (terminated or truncated) == dialogue.over == ("diagnosis" in info)
            if dialogue.over:
                profile.add(dialogue.diagnosis, reward)
                made.extend(records(dialogue))
                dialogue.reset()
        dialogue.truncate()
        made.extend(records(dialogue))
        profile.add(dialogue.diagnosis, 0.0)
        assert observations(task) == recorded[task]

    fuzz()
    assert len(made) > 300, "the simulators were hardly fuzzed"
    assert json.dumps([(record.call.to_dict(), record.result) for record in made])
    assert {task: observations(task) for task in REFERENCES} == recorded
    assert FailureProfile.from_dict(json.loads(json.dumps(profile.to_dict()))).render() == profile.render()
