"""Pages in a browser that may read from one place only, and faults of their layout and accessibility."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page

RAN = "ran"
"""The property of `window` that a hostile text sets if any of it is executed."""
HOSTILE = (
    "\u202egnp.exe\u2066\x1b[31m\x9b2J\x00\r </details></table><script>window.ran = 1</script>"
    '<img src="http://example.org/x" onerror="window.ran = 1"><iframe src="http://example.org/"></iframe>'
    "<style>* { display: none }</style><svg onload='window.ran = 1'></svg>"
    "![picture](http://example.org/x) [link](javascript:window.ran=1) {{ 7 * 7 }} "
)
LONG_LINE = "x" * 1_000_000
_WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"]}
_LAYOUT_FAULTS = """() => {
    const root = document.documentElement, faults = [], texts = document.createTreeWalker(document.body, 4);
    if (root.scrollWidth > root.clientWidth) faults.push(`it is ${root.scrollWidth} pixels wide`);
    for (let text; text = texts.nextNode();) {
        const range = document.createRange(), limits = [{left: 0, right: root.clientWidth}];
        let shown = text.data.trim() && text.parentElement.checkVisibility({visibilityProperty: true});
        for (let box = text.parentElement; shown && box; box = box.parentElement) {
            const {overflowX, overflowY, clipPath, display} = getComputedStyle(box);
            if (clipPath.startsWith('inset')) shown = false;  // for readers without sight
            if (overflowX === 'visible' || display === 'inline') continue;
            const {left, right, top, bottom} = box.getBoundingClientRect();
            limits.push(/auto|scroll/.test(overflowY) ? {left, right} : {left, right, top, bottom});
        }
        range.selectNodeContents(text);
        const isCut = part => part.width && limits.some(limit =>
            part.left < limit.left - 1 || part.right > limit.right + 1 || part.top < limit.top - 1
            || part.bottom > limit.bottom + 1);
        if (shown && [...range.getClientRects()].some(isCut)) faults.push(text.data.trim().slice(0, 80));
    }
    return faults;
}"""


@contextmanager
def opened(
    chromium: Browser,
    url: str,
    allowed: str,
    *,
    width: int = 1280,
    scheme: Literal["light", "dark"] = "light",
    optional: str = "no such address",
) -> Iterator[Page]:
    """A page in a window of its own.

    Args:
        allowed: What the address of each request begins with.
        optional: A part of addresses that may be missing.

    Raises:
        AssertionError: In the end, if it made another request, logged an error or warning, or ran a hostile text.
    """
    wrong: list[str] = []

    def read(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert") and optional not in message.location["url"]:
            wrong.append(message.text)

    with chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme) as context:
        context.route(lambda address: not address.startswith(allowed), lambda route: route.abort())
        context.on("request", lambda request: None if request.url.startswith(allowed) else wrong.append(request.url))
        context.on("weberror", lambda error: wrong.append(str(error.error)))
        context.on("console", read)
        page = context.new_page()
        page.goto(url)
        yield page
        assert page.evaluate(f"window.{RAN}") is None
    assert not wrong


def open_expanders(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")


def layout_faults(page: Page) -> list[str]:
    """Each text that is cut off or sticks out of the window, and whether the page scrolls sideways."""
    faults: list[str] = page.evaluate(_LAYOUT_FAULTS)
    return faults


def violations(page: Page) -> str:
    """The rules of WCAG A and AA that axe finds violated, with the elements; empty without any."""
    found: Any = Axe().run(page, options=_WCAG)
    return str(found.generate_report()) if found.violations_count else ""
