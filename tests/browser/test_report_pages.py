"""The pages of a run and of a comparison in a browser: they fit, are accessible, and run no text of a model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urldefrag

import pytest
from playwright.sync_api import Browser, expect

from seal_ray.report.files import RunFolder, log_path
from seal_ray.report.page import write_page
from tests.browser.opened import HOSTILE, LONG_LINE, layout_faults, open_expanders, opened, violations
from tests.seal_ray.proposing.test_task_pool import filled
from tests.seal_ray.report.run_folders import dialogue, log_of, make_run
from tests.tuning.comparison.folders import ROUNDS, Solved, growing, make_comparison, play
from tuning.comparison.collect import trial_folder
from tuning.comparison.page import PAGE
from tuning.comparison.report import write_results
from tuning.record import mark_failed

ARMS = ("vanilla", "rules", "coevolved-varied")
PAGES = ("run", "comparison")
TASK_IDS = [f"a_task_with_a_long_id_{number:03d}_<b>{'_' * number}" for number in range(60)]


def always(outcomes: Mapping[str, int]) -> Solved:
    return lambda _: {"base": outcomes}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders `run` and `comparison` with their pages, in whose texts a model has written."""
    folder = tmp_path_factory.mktemp("pages")
    run = make_run(folder / "run", HOSTILE + LONG_LINE)
    run.pool.append({"round": 2, "tasks": filled(6).rows()})
    write_page(run)
    out = folder / "comparison"
    make_comparison(out, ARMS, settings={"solver": {"model": HOSTILE}, "training": {"rounds": 8}})
    for place, arm in enumerate(ARMS):
        outcomes = {"gained": int(place > 0), "lost": int(place == 0), **dict.fromkeys(TASK_IDS, place % 2)}
        for seed in range(3 if place < 2 else 2):
            play(out, arm, seed, growing(0.3 + 0.2 * place), solved=always(outcomes))
        dialogues = [dialogue(task, bool(solved), HOSTILE) for task, solved in outcomes.items()]
        log_of(log_path(trial_folder(out, arm, 0), "evaluation", ROUNDS), dialogues)
    mark_failed(trial_folder(out, ARMS[-1], 2), HOSTILE)
    write_page(RunFolder(trial_folder(out, "rules", 0)))
    write_results(out)
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_its_window_and_is_accessible(
    chromium: Browser, folder: Path, name: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    url = (folder / name / PAGE).as_uri()
    with opened(chromium, url, url, width=width, scheme=scheme) as page:
        expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
        assert layout_faults(page) == []
        open_expanders(page)
        assert layout_faults(page) == []
        assert violations(page) == ""


@pytest.mark.parametrize("name", PAGES)
def test_expanders_open_and_close(chromium: Browser, folder: Path, name: str) -> None:
    url = (folder / name / PAGE).as_uri()
    with opened(chromium, url, url) as page:
        expanders = page.locator("details").all()
        assert len(expanders) > 2
        for expander in expanders[:3] + expanders[-3:]:
            was_open = expander.evaluate("each => each.open")
            expander.locator("summary").click()
            expect(expander).to_have_js_property("open", not was_open)
            page.keyboard.press("Enter")
            expect(expander).to_have_js_property("open", was_open)


@pytest.mark.parametrize("name", PAGES)
def test_the_filter_chooses_dialogues(chromium: Browser, folder: Path, name: str) -> None:
    url = (folder / name / PAGE).as_uri()
    with opened(chromium, url, url) as page:
        chats = page.locator("details:has(.chats)")
        counts = []
        for choice in ("better on the right", "worse on the right", "all"):
            page.get_by_role("radio", name=choice).check()
            counts.append(chats.filter(visible=True).count())
        better, worse, every = counts
        assert better + worse == every == chats.count()
        assert (better > 0, worse > 0) == (True, name == "comparison")


@pytest.mark.parametrize("name", PAGES)
def test_links_go_where_they_say(chromium: Browser, folder: Path, name: str) -> None:
    url = (folder / name / PAGE).as_uri()
    with opened(chromium, url, folder.as_uri()) as page:
        open_expanders(page)
        names = page.get_by_role("link").all_inner_texts()
        assert name == "run" or "rules-seed0" in names
        for link in names:
            page.get_by_role("link", name=link, exact=True).first.click()
            place = urldefrag(page.url)
            if place.url != url:
                expect(page.get_by_role("heading", name=link, level=1)).to_be_visible()
            elif place.fragment:
                expect(page.locator(f"id={place.fragment}")).to_be_in_viewport()
            page.goto(url)
            open_expanders(page)


@pytest.mark.parametrize(("name", "count"), {"run": 5, "comparison": 6}.items())
def test_hostile_text_shows_as_text(chromium: Browser, folder: Path, name: str, count: int) -> None:
    url = (folder / name / PAGE).as_uri()
    with opened(chromium, url, url) as page:
        open_expanders(page)
        shown = page.get_by_text(r"\u202egnp.exe\u2066\x1b[31m\x9b2J\x00")
        assert shown.count() >= count
        for each in shown.all():
            expect(each).to_be_visible()
            expect(each).to_contain_text("<script>window.ran = 1</script><img src=")


def test_the_page_of_10000_rollouts_opens_in_two_seconds(chromium: Browser, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    arms = ("plain", "a1")
    rollouts = (dialogue(f"t{n // 8}", n % 3 > 0, arm=arms[n % 2], group=n // 8) for n in range(10_000))
    log_of(run.log_of("round", 4), rollouts)
    write_page(run)
    assert run.page.stat().st_size < 20_000_000
    url = run.page.as_uri()
    with opened(chromium, url, url) as page:
        expect(page.get_by_text("Of 1250 tasks that were played both ways")).to_be_visible()
        assert page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") < 2000
