"""BFCL's web search: as the official class, call by call; hostile models and pages; a service that is dead."""

import asyncio
import json
import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from envs.bfcl import pages
from envs.bfcl.agentic import is_answer
from envs.bfcl.web_exam import CALLS_AT_ONCE, WebSearchExam
from envs.bfcl.web_search import MAX_QUERY, OFFICIAL, Service, Web
from envs.dialects import DIALECTS
from envs.errors import EnvironmentFault, UserError
from envs.exams import Mark
from envs.task import ToolCall
from tests.bench.memory_parity import Official
from tests.bench.web_search_parity import MISSING, compared, fetch, search
from tests.envs.players import Scripted, sit
from tests.envs.web_search.stand_in import HTML, KEY, StandIn, running


@pytest.fixture(scope="module")
def server() -> Iterator[StandIn]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def shared(server: StandIn) -> Iterator[Web]:
    found = server.web()
    yield found
    found.close()


def result(web: Web, call: ToolCall, *, show_snippet: bool = True) -> str:
    return asyncio.run(web.execute(call, show_snippet=show_snippet)).text


def error_of(text: str) -> str:
    """What follows the address in the error of a page."""
    found: str = json.loads(text)["error"]
    assert found.startswith("An error occurred while fetching ")
    return found.partition(": ")[2]


@pytest.mark.skipif(bool(MISSING), reason=f"pip install {' '.join(MISSING)}")
def test_results_and_requests_are_the_official_ones(server: StandIn) -> None:
    found = list(compared(server))
    assert [each for each in found if each.ours != each.official or not each.asked] == []
    assert len(found) > 100


def test_items_and_marks_are_the_official_ones(shared: Web) -> None:
    exam = WebSearchExam(shared)
    items = {item.id: item for item in exam.items()}
    assert Counter(item.category for item in items.values()) == {"base": 100, "no_snippet": 100}
    assert len({item.group for item in items.values()}) == 100
    right = 0
    with Official() as official:
        for row in (row for category in ("base", "no_snippet") for row in official.ask(load=f"web_search_{category}")):
            item = items[row["id"]]
            first, *others = row["question"][0]
            assert first == {"role": "system", "content": item.system}
            assert [others] == item.entry["question"]
            assert [dict(tool.document) for tool in item.tools] == row["function"]
        for item in exam.items()[:100]:
            answer = item.answers[-1]
            for said in (f"{{'answer': '{answer.upper()}.'}}", f"x{answer}", answer[:-1], "-".join(answer), ""):
                assert is_answer(said, item.answers) is official.ask(said=said, answers=item.answers)
                right += is_answer(said, item.answers)
    assert 100 < right < 300


def test_an_answer_of_many_calls_is_bounded(shared: Web, server: StandIn) -> None:
    dialect = DIALECTS["qwen"]
    many = dialect.render_calls([search(keywords="tea", max_results=0)] * 200)
    server.asked.clear()
    candidate = Scripted(lambda conversation: many if len(conversation.entries) == 2 else "I do not know")
    assert sit(WebSearchExam(shared).items()[0], candidate) == Mark(False, "the answer is not in it")
    assert len(server.asked) == CALLS_AT_ONCE


def test_a_busy_service_is_asked_again(shared: Web, server: StandIn) -> None:
    server.busy = 2
    server.asked.clear()
    assert "tea 1" in result(shared, search(keywords="tea"))
    assert len(server.asked) == 3


INSIDE = (
    *("127.0.0.1:1", "127.1:1", "2130706433", "0x7f.1", "localhost:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "10.0.0.1"),
    *("169.254.169.254/latest/meta-data", "0.0.0.0", "user:pass@127.0.0.1"),
)
HOSTILE = {
    "file:///etc/passwd": "Error during execution: Invalid URL: file:///etc/passwd",
    "gopher://127.0.0.1/x": "Invalid URL",
    **{f"http://{host}/": "is not on the public internet" for host in INSIDE},
    **{
        f"http://{host}": "An error occurred while fetching"
        for host in ("127.0.0.1:99999/", "", "\r\nHost: x/", "a" * 90_000, "x.invalid\ud800/")
    },
}


def test_hostile_addresses_are_refused(shared: Web) -> None:
    for url, said in HOSTILE.items():
        assert said in result(shared, fetch(url=url)), ascii(url[:90])


def test_this_machine_is_not_reached_unless_it_is_named_and_no_redirect_leads_there(server: StandIn) -> None:
    web, closed = server.web(), server.web(private=False)
    port = server.host.partition(":")[2]
    server.fetched.clear()
    assert "not on the public internet" in error_of(result(closed, fetch(url=f"http://{server.host}/plain")))
    assert server.fetched == []
    here = f"http://localhost:{port}/plain"
    for target in (here, "http://127.0.0.1:1/", "http://[::1]/", "file:///etc/passwd", "//x:y/"):
        assert error_of(result(web, fetch(url=f"http://{server.host}/to?{target}")))
    assert {path.partition("?")[0] for path in server.fetched} == {"/to"}
    assert json.loads(result(web, fetch(url=f"http://{server.host}/to?/plain")))["content"] == HTML
    web.close()


def test_public_addresses() -> None:
    assert all(map(pages.is_public, ("93.184.216.34", "2606:4700::1111", "::ffff:93.184.216.34", "64:ff9b::5db8:d822")))
    private = (
        "192.168.0.1", "100.64.0.1", "224.0.0.1", "fe80::1%eth0", "64:ff9b::7f00:1", "2002:7f00:1::", "::ffff:10.0.0.1",
        "fd00::1", "fec0::1", "::127.0.0.1", "::10.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b:1::7f00:1", "240.0.0.1", "::",
        "", "example.org", "192.0.0.192", "168.63.129.16", "192.88.99.1", "100.100.100.200", "5f00::1", "3fff::1",
        "2001:1::1", "2002:5db8:d822::1", "64:ff9b::a83f:8110", "::ffff:192.0.0.192", "4000::1", "ff0e::1",
        "2606:4700::1111%lo", "192.52.193.1",
    )  # fmt: skip
    assert [address for address in private if pages.is_public(address)] == []


def test_no_address_of_this_machine_is_public() -> None:
    """In a network of its own, whose machine has addresses that are public everywhere else."""
    script = "ip link set lo up && ip addr add 93.184.216.34 dev lo && ip addr add 2606:4700::1111 dev lo nodad && "
    code = "from envs.bfcl.pages import is_public as p; print(*map(p, ('93.184.216.34', '2606:4700::1111', '8.8.8.8')))"
    run = ("unshare", "--user", "--map-root-user", "--net", "sh", "-c", script + 'exec "$@"', "-", sys.executable)
    try:
        done = subprocess.run([*run, "-c", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespace here: {error}")
    assert done.stdout.split() == ["False", "False", "True"]


def test_a_name_is_connected_to_where_it_was_checked(monkeypatch: pytest.MonkeyPatch, server: StandIn) -> None:
    """A name that is public at the check and this machine at a second look-up: there is no second look-up."""
    looked_up = []

    async def addresses(host: str, port: int) -> list[str]:
        looked_up.append(host)
        return ["127.0.0.1"]

    monkeypatch.setattr(pages, "addresses_of", addresses)
    port = server.host.partition(":")[2]
    host = f"rebinding.test:{port}"
    page = asyncio.run(pages.fetch(f"http://{host}/plain", pages.PageLimits(), frozenset({host})))
    assert page.body == HTML.encode()
    assert looked_up == ["rebinding.test"]
    with pytest.raises(pages.PageRefused, match="not on the public internet"):
        asyncio.run(pages.fetch(f"http://other.test:{port}/plain", pages.PageLimits(), frozenset()))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        *(("/endless", "the page has more than 200,000 bytes"), ("/bomb", "the page has more than 200,000 bytes")),
        *(("/twice", "the page has the content encoding 'gzip, gzip'"), ("/round", "Exceeded 30 redirects.")),
        ("/drip", "the page takes longer than 0.7 seconds"),
    ],
)
def test_pages_without_end_end(server: StandIn, path: str, said: str) -> None:
    web = server.web(seconds=0.7 if path == "/drip" else 20.0, size=200_000)
    started = time.monotonic()
    assert error_of(result(web, fetch(url=f"http://{server.host}{path}"))) == said
    assert time.monotonic() - started < 15


def test_a_page_that_takes_too_long_to_read_is_an_error_and_the_next_one_is_read(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = server.web()
    monkeypatch.setattr(web.reader, "program", lambda: ("true",))
    page = fetch(url=f"http://{server.host}/plain")
    assert error_of(result(web, page)) == "the page takes too long to read"
    monkeypatch.undo()
    assert json.loads(result(web, page))["content"] == HTML
    web.close()


def test_queries_that_cannot_be_sent_are_errors_and_are_not_sent(shared: Web, server: StandIn) -> None:
    server.asked.clear()
    assert json.loads(result(shared, search(keywords="x" * MAX_QUERY))) == {"error": "The query is too long."}
    assert "surrogates not allowed" in result(shared, search(keywords="\ud83d"))
    assert "name 'nan' is not defined" in result(shared, search(keywords=float("nan")))
    assert "unexpected keyword" in result(shared, search(keywords="x", self_=1))
    assert "not defined" in result(shared, ToolCall("__init__", {}))
    assert "multiple values" in result(shared, search(keywords="x", self=1))
    assert server.asked == []


@contextmanager
def behaving(server: StandIn, **state: Any) -> Iterator[None]:
    """The search service in that state."""
    before = {name: getattr(server, name) for name in state}
    vars(server).update(state)
    yield
    vars(server).update(before)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"alive": False}, "does not answer"),
        ({"status": 503, "json": False}, "does not answer (status 503 without JSON); 3 tries"),
        ({"status": 429}, "takes no more requests"),
        ({"status": 401}, "refuses the key of SERPAPI_API_KEY (401: something with 401)"),
    ],
)
def test_a_service_that_is_dead_is_no_result(server: StandIn, state: dict[str, Any], said: str) -> None:
    with behaving(server, **state), pytest.raises(EnvironmentFault) as raised:
        result(server.web(), search(keywords="tea"))
    assert said in str(raised.value)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(("status", "is_json"), [(400, True), (414, False), (500, True)])
def test_a_query_that_the_service_refuses_is_a_result(server: StandIn, status: int, is_json: bool) -> None:
    """Otherwise one query would end the exam, and again after a resume."""
    with behaving(server, status=status, json=is_json):
        found = json.loads(result(server.web(), search(keywords="tea")))
    official = "Failed to retrieve the search results from server. Please try again later."
    assert found == {"error": official if is_json else f"the search service refuses the request ({status})"}


def test_the_key_is_in_no_log_and_no_repr(shared: Web, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        result(shared, search(keywords="tea"))
    assert KEY not in caplog.text
    assert KEY not in repr(shared.service)


def test_what_the_environment_says_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    key, url, private = "SERPAPI_API_KEY", "SEAL_RAY_SEARCH_URL", "SEAL_RAY_SEARCH_PRIVATE"
    for name in (key, url, private):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="SERPAPI_API_KEY is not set"):
        Service.from_environment()
    monkeypatch.setenv(key, KEY)
    assert Service.from_environment() == Service(KEY, OFFICIAL, frozenset())
    monkeypatch.setenv(private, "127.0.0.1:8000, LOCALHOST:1")
    assert Service.from_environment().private == {"127.0.0.1:8000", "localhost:1"}
    addresses = ("file:///etc", "localhost", "http://", "http://x:y/", "http://x/?a=b", "http://a:b@x/")
    for name, value in (
        *((private, host) for host in ("127.0.0.1", "x:0", "x:y", "*")),
        *((url, a) for a in addresses),
    ):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            with pytest.raises(UserError, match=name):
                Service.from_environment()
