"""A thousand hostile completions, played: nothing raises, is executed, or is left to the next dialogue.

`python -m tests.fuzz` plays many more of them.
"""

from tests.fuzz.completions import CHUNK, KINDS, play_chunk, warm_up


def test_hostile_completions_raise_nothing_and_leave_nothing() -> None:
    warm_up()
    found = play_chunk(0, 0)
    assert found.completions >= CHUNK
    assert found.by_kind.keys() == KINDS.keys()
    assert found.calls > 500, "the simulators were hardly fuzzed"
    assert found.slowest < 1.0, found.slowest_of
