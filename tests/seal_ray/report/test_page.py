"""The page of a run: what it shows, that it needs nothing else, and that no text of a model becomes markup."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from seal_ray.report.files import RunFolder
from seal_ray.report.page import flipped_tasks, write_page
from tests.seal_ray.proposing.test_task_pool import filled
from tests.seal_ray.report.run_folders import CONFIG, make_run


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return make_run(tmp_path / "run")


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
        *(
            "Round 2: a1 became the interface in force",
            "Round 3: engine restarts: 1",
            "Round 1: dialogues lost to faults: 1",
        ),
        *("Before training on the left", "round 0 user Book a table.", "round 4 user Book a table.", "turn 1: True"),
        *("Of 1 tasks that were played both ways, hints raised success in 1 and lowered it in 0", "cue [HINT] a1"),
        *("seal-ray show . --round 4 --task t9", "tiny-rare"),
    ):
        assert part in text, part
    assert text.count("it names a task") == 1
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


def test_a_page_shows_gains_and_the_pool_of_written_tasks(folder: RunFolder) -> None:
    folder.pool.append({"round": 2, "tasks": filled(6).rows()})
    write_page(folder)
    page = folder.page.read_text("utf-8")
    for title in ("Gain over the plain interface", "Success of written tasks", "Pool by number of requests"):
        assert f'<figure aria-label="{title}">' in page


def test_a_page_of_a_run_that_has_just_begun(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.write_config(CONFIG)
    for windows in (run.arms, run.pool):  # after a restart from scratch they are empty
        windows.path.touch()
    write_page(run)
    assert "round 0 of 4" in run.page.read_text("utf-8")


def test_tasks_flip_only_if_both_evaluations_have_them() -> None:
    first = {"round": 0, "suites": {"dev": {"base": {"a": 0, "b": 1, "c": None, "d": 1}}}}
    last = {"round": 4, "suites": {"dev": {"base": {"a": 1, "b": 0, "c": 1, "e": 1}}}}
    assert flipped_tasks([first, last]) == {"solved": [("base", "a")], "lost": [("base", "b")]}
    assert flipped_tasks([first]) == {"solved": [], "lost": []}
