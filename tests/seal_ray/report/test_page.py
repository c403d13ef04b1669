"""The page of a run: what it shows, that it needs nothing else, and that no text of a model becomes markup."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from seal_ray.report.files import RunFolder
from seal_ray.report.inspect_log import PLAIN
from seal_ray.report.page import flipped_tasks, write_page
from tests.seal_ray.report.test_chats import dialogue, log_of

HOSTILE = '<script>alert("x")</script>\u202e{{ 7 * 7 }}\x1b[31m<img src=x onerror=alert(1)>'
CONFIG = {
    "seed": 3,
    "solver": {"model": "tiny-rare"},
    "curator": {"kind": "llm"},
    "training": {"rounds": 4},
    "evaluation": {"source": None},
}


def arm(name: str, **values: Any) -> dict[str, Any]:
    shown = {"schema_cues": [], "recovery": "none", "guidelines": [], "groups": 2, "rollouts": 8, "success": 0.5}
    return {"id": name, **shown, "gain": None, "error": None, "incumbent": False, "promoted": False, **values}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Four rounds with two windows, a promotion, a rejection, a restart and a solved task."""
    run = RunFolder(tmp_path / "run")
    run.write_config(CONFIG)
    for number in range(5):
        metrics: dict[str, float] = {
            "diagnosis/share/pass": 0.2 + 0.1 * number,
            "diagnosis/share/missing_tool_call": 0.8 - 0.1 * number,
            "solver/success/base": 0.1 * number,
            "solver/success_plain": 0.3,
            "solver/success_shown": 0.6,
            "solver/tokens_sampled": 1000,
            "perf/engine_restarts": int(number > 2),
            "diagnosis/faults": int(number == 1),
        }
        if number in (0, 4):
            metrics |= {"evaluation/success": 0.25 + number / 16, "evaluation/success/base": 0.25 + number / 16}
            run.evaluations.append({"round": number, "suites": {"dev": {"base": {"t1": number // 4, "t2": 1}}}})
        run.append_metrics(number, metrics)
    guided = arm("a1", guidelines=[HOSTILE], gain=0.2, error=0.05, promoted=True)
    run.arms.append({"round": 2, "rounds": 2, "arms": [arm("plain", gain=0.0, error=0.0, incumbent=True), guided]})
    run.arms.append({"round": 4, "rounds": 2, "arms": [arm("plain"), {**guided, "promoted": False, "incumbent": True}]})
    for number in (0, 4):
        log_of(run.log_of("evaluation", number), [dialogue("t1", number == 4, f"{HOSTILE} {number}")])
    played = [dialogue("t9", arm == "a1", arm=arm, group=5) for arm in (PLAIN, "a1")]
    log_of(run.log_of("round", 4), played)
    run.proposals.append({"round": 2, "proposals": [{"rejection": f"it names a task {HOSTILE}", "reward": None}]})
    return run


class Page(HTMLParser):
    """The tags, attributes and texts of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_run_s_page_tells_its_story(folder: RunFolder) -> None:
    write_page(folder)
    text = " ".join(" ".join(Page(folder.page.read_text("utf-8")).texts).split())
    for part in (
        *("tiny-rare, curator llm, seed 3; round 4 of 4", "Success without hints, round 0 25.0 %", "round 4 50.0 %"),
        *("Training rollouts with hints, last round 60.0 %", "Tokens sampled 5,000"),
        *("Window to round 2: a1 promoted", "+0.20 (+0.10 to +0.30)", "it names a task", "pass +20.0 points"),
        *("Failed at first, solved at the end: 1", "base: t1", "Solved at first, failed at the end: 0"),
        *("Round 2: a1 became the interface in force", "Round 3: 1 engine restarts", "Round 1: 1 dialogues lost"),
        *("Before training on the left", "round 0 user Book a table.", "round 4 user Book a table.", "turn 1: True"),
        *("Of 1 tasks that were played both ways, hints raised success in 1 and lowered it in 0", "cue [HINT] a1"),
        *("seal-ray show . --round 4 --task t9", "tiny-rare"),
    ):
        assert part in text, part
    for title in ("Evaluation without hints", "Training success with and without hints", "Labels of turns"):
        assert title in text


def test_the_page_needs_no_network_and_runs_no_text_of_a_model(folder: RunFolder) -> None:
    write_page(folder)
    source = folder.page.read_text("utf-8")
    page = Page(source)
    assert not page.tags & {"script", "img", "link", "iframe", "object", "embed", "form"}
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    targets = [value for name, value in page.attributes if name in ("href", "xlink:href", "src")]
    assert all(value.startswith("#") for value in targets)
    assert "default-src 'none'" in source
    assert "49" not in re.findall(r"alert.{0,40}", " ".join(page.texts))[0]
    assert "{{ 7 * 7 }}" in " ".join(page.texts)
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", source)
    assert len(source) < 1_000_000


def test_a_page_of_a_run_that_has_just_begun(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.write_config(CONFIG)
    write_page(run)
    assert "round 0 of 4" in run.page.read_text("utf-8")


def test_tasks_flip_only_if_both_evaluations_have_them() -> None:
    first = {"round": 0, "suites": {"dev": {"base": {"a": 0, "b": 1, "c": None, "d": 1}}}}
    last = {"round": 4, "suites": {"dev": {"base": {"a": 1, "b": 0, "c": 1, "e": 1}}}}
    assert flipped_tasks([first, last]) == {"solved": [("base", "a")], "lost": [("base", "b")]}
    assert flipped_tasks([first]) == {"solved": [], "lost": []}
