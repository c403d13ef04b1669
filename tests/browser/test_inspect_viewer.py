"""`seal-ray view` in a browser: Inspect's viewer shows what a model wrote as text, and needs no network."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from envs.interface import Interface
from seal_ray.rollout.types import Arm
from seal_ray.run.round_log import write_round_log
from tests.browser.opened import HOSTILE, LONG_LINE, opened
from tests.policies.plain_views import play
from tests.policies.test_plain_view import FORM, TASK, solution
from tests.processes import PROGRAM, free_port, read_until
from tests.seal_ray.report.run_folders import dialogue, log_of
from tests.seal_ray.test_logs import group_of


@pytest.fixture
def viewer(tmp_path: Path) -> Iterator[str]:
    """The address of the viewer for a run, in which a solver and a curator wrote hostile texts."""
    (tmp_path / "logs").mkdir()
    arm = Arm(Interface(guidelines=(HOSTILE,)))
    dialogues = [HOSTILE + LONG_LINE, HOSTILE], solution(TASK)
    with ThreadPoolExecutor() as pool:  # the browser has an event loop in this thread
        played = pool.map(lambda said: (play(TASK, FORM, said, interface=arm.interface), arm), dialogues)
    log = tmp_path / "logs" / "round_000004.eval"
    write_round_log(log, [group_of(*played)], task="round 4", model="tiny", sources=())
    log_of(tmp_path / "logs" / "evaluation_000004.eval", [dialogue("t1", True)])
    port = free_port()
    command = [*PROGRAM, "view", str(tmp_path), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        read_until(process, f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.communicate()


def test_hostile_text_shows_as_text_in_a_viewer_without_a_network(chromium: Browser, viewer: str) -> None:
    with opened(chromium, viewer, viewer, optional="/api/flow") as page:
        page.get_by_role("gridcell", name="round 4").click()
        page.get_by_role("gridcell", name="I", exact=True).click()
        for tab, places in {"Scoring": 0, "Info": 0, "JSON": 1, "Messages": 2}.items():
            page.get_by_role("tab", name=tab).click()
            expect(page.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
            expect(page.get_by_text("</table><script>window.ran = 1</script><img src=")).to_have_count(places)
        expect(
            page.get_by_text("⟨U+202E⟩gnp.exe⟨U+2066⟩⟨U+001B⟩[31m⟨U+009B⟩2J⟨U+0000⟩").filter(visible=True)
        ).to_have_count(2)
