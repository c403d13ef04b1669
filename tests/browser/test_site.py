"""The site of docs/, which `make docs` builds: no page scrolls sideways in a wide or a narrow window."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

SITE = Path(__file__).parents[2] / "build" / "site"


@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_wider_than_its_window(chromium: Browser, width: int) -> None:
    pages = sorted(SITE.rglob("index.html"))
    assert len(pages) > 25, "run `make docs`"
    page = chromium.new_page(viewport={"width": width, "height": 800})
    for path in pages:
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0, path
    page.close()
