"""Dialogues side by side: which are chosen, and how they read."""

from pathlib import Path

from seal_ray.report.chats import chats_with_outcomes, guided_groups, pairs_of
from seal_ray.report.inspect_log import PLAIN
from tests.seal_ray.report.run_folders import dialogue, log_of


def test_a_flipped_task_has_a_failure_and_a_success(tmp_path: Path) -> None:
    first = log_of(
        tmp_path / "first.eval", [dialogue("a b", False, "before"), dialogue("c", True), dialogue("d", True)]
    )
    played_twice = [dialogue("a b", False, "again"), dialogue("a b", True, "after"), dialogue("c", False)]
    last = log_of(tmp_path / "last.eval", played_twice)
    better = {"a b": True, "c": False, "d": False}
    before = chats_with_outcomes(first, {"a b": False, "c": True, "d": True}, "round 0", ".", 0)
    after = chats_with_outcomes(last, better, "round 4", "runs/x y", 4)
    pairs = pairs_of(before, after, better)
    assert [(pair.task, pair.better) for pair in pairs] == [("a b", True), ("c", False)], "d has no second dialogue"
    left, right = pairs[0].chats
    words = [("user", "Book a table."), ("solver", "before"), ("error", "no such table"), ("cue", "[HINT] plain")]
    assert (left.title, list(left.lines), left.verdict) == ("round 0", words, "turn 1: False")
    assert right.lines[1] == ("solver", "after")
    assert right.command == "seal-ray show 'runs/x y' --round 4 --task 'a b'"
    assert chats_with_outcomes(tmp_path / "none.eval", better, "", ".", 0) == {}


def test_plain_next_to_guided_is_chosen_by_the_success_of_whole_groups(tmp_path: Path) -> None:
    samples = [
        *(dialogue("equal", right, arm=arm, group=1) for arm in (PLAIN, "a1") for right in (True, False)),
        *(dialogue("helped", right, f"plain {right}", group=2) for right in (True, False, False)),
        *(dialogue("helped", right, f"guided {right}", arm="a1", group=2) for right in (False, True, True)),
        dialogue("hurt", True, group=3),
        dialogue("hurt", False, arm="a1", group=3),
        dialogue("plain alone", True, group=4),
    ]
    groups = guided_groups(log_of(tmp_path / "round.eval", samples), 7)
    assert groups is not None
    assert (groups.round, groups.groups, groups.better, groups.worse) == (7, 3, 1, 1)
    assert [(pair.task, pair.better) for pair in groups.pairs] == [("helped", True), ("hurt", False)]
    plain, guided = groups.pairs[0].chats
    assert (plain.title, guided.title) == ("plain", "guided by a1")
    assert (plain.lines[1][1], guided.lines[1][1]) == ("plain False", "guided True")
    assert guided_groups(log_of(tmp_path / "plain.eval", [dialogue("a", True)]), 1) is None


def test_a_long_dialogue_is_cut(tmp_path: Path) -> None:
    long = {**dialogue("long", True), "messages": [{"role": "assistant", "content": "x" * 100_000}] * 100}
    chats = chats_with_outcomes(log_of(tmp_path / "x.eval", [long]), {"long": True}, "", ".", 0)
    lines = chats["long"].lines
    assert sum(len(text) for _, text in lines) < 40_000
    assert lines[0][1].endswith("… (100,000 characters)")
    assert lines[-1] == ("…", "the rest is left out here")
