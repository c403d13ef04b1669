"""Our web search against the official class, on calls that a local server answers to both.

    python -m tests.bench.web_search_parity

Needs the packages beautifulsoup4, html2text and google-search-results. Prints the calls whose results differ.
"""

import asyncio
import contextlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass

from envs.task import JSON, ToolCall
from tests.bench import single_turn_parity as single_turn
from tests.envs.official import as_source
from tests.envs.web_search.stand_in import PAGES, StandIn, running

NEEDED = {"bs4": "beautifulsoup4", "html2text": "html2text", "serpapi": "google-search-results"}
MISSING = [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]


class Official(single_turn.Official):
    """The official class, running."""

    module = "tests.bench.web_search_official"


def search(**arguments: JSON) -> ToolCall:
    return ToolCall("search_engine_query", arguments)


def fetch(**arguments: JSON) -> ToolCall:
    return ToolCall("fetch_url_content", arguments)


def calls_on(host: str) -> list[ToolCall]:
    """Searches and fetches that a server at `host` answers, possible ones and others."""
    words = ("tea", "a b+c&d=e/f?#%20", "Ünï 漢字 “x”", "", "nothing", "bare", "'\"\\\n", "~*()!$,;:@[]{}|^`<>")
    made = [search(keywords=each) for each in words]
    made += [search(keywords="many", max_results=number) for number in (0, 1, 3, 100, -1, None, "3", 2.0, True, [1])]
    made += [search(keywords="tea", region=region) for region in ("de-de", "x x", None, 5, ["a", "b"], {"a": 1})]
    made += [search(keywords=odd) for odd in (None, 5, 2.5, True, ["tea", None], {"tea": 1})]
    made += [search(), search(keywords="tea", more=1), ToolCall("search", {}), ToolCall("os.remove", {"path": "x"})]
    for page in PAGES:
        made += [fetch(url=f"http://{host}{page}", mode=mode) for mode in ("raw", "markdown", "truncate")]
    made += [fetch(url=f"http://{host}/status/{status}") for status in (403, 404, 429, 500, 503)]
    made += [fetch(url=f"http://{host}/to?/to?/plain"), fetch(url=f"http://{host}/round")]
    made += [fetch(url=f"http://{host}/plain", mode=mode) for mode in ("html", "", "RAW", None, 1, ["raw"])]
    made += [
        fetch(url=url) for url in ("file:///etc/passwd", "ftp://x/y", "HTTP://x", "plain", "", 5, None, ["http://"])
    ]
    made += [fetch(), fetch(url=f"http://{host}/plain", more=1), fetch(mode="raw")]
    return made


@dataclass(frozen=True)
class Compared:
    """One call, and what both made of it."""

    call: ToolCall
    ours: str
    official: str
    asked: bool
    """Whether the service was sent the same by both."""


def compared(server: StandIn) -> Iterator[Compared]:
    """All calls, with snippets and without."""
    server.found["many"] = [{"title": f"t{n}", "link": f"http://x/{n}", "snippet": f"«{n}»"} for n in range(12)]
    server.found["bare"] = [{"title": "t", "link": "http://x/"}]
    web = server.web()
    calls = calls_on(server.host)
    with contextlib.closing(web), Official() as official:
        for snippet, call in [*((True, call) for call in calls), *((False, call) for call in calls[:12])]:
            server.asked.clear()
            ours = asyncio.run(web.execute(call, show_snippet=snippet)).text
            asked = list(server.asked)
            server.asked.clear()
            (theirs,) = official.ask(backend=f"http://{server.host}", show_snippet=snippet, calls=[as_source(call)])
            yield Compared(call, ours, theirs, asked == server.asked)


def main() -> None:
    with running() as server:
        found = list(compared(server))
    for each in found:
        if each.ours != each.official or not each.asked:
            print(str(each.call)[:200], each.ours[:300], each.official[:300], sep="\n    ")
    unlike = sum(each.ours != each.official for each in found)
    print(f"{len(found)} calls: {unlike} results and {sum(not each.asked for each in found)} requests differ")


if __name__ == "__main__":
    main()
