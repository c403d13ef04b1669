"""The web search of BFCL V4: a search engine behind SerpAPI, and pages as text. Calls on it are structured.

For the same answers of the service and the same pages, results equal the official class's, with one exception: a
search service that is dead, or refuses the key, ends the exam instead of returning an error to the model.
"""

import asyncio
import base64
import json
import logging
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

from envs.bfcl import page_reader, pages
from envs.bfcl.world import ERROR, argument_of, rendered, unknown_tool
from envs.bounded import BoundedProcess, program_of
from envs.errors import EnvironmentFault, UserError
from envs.task import JSON, ToolCall
from envs.world import CallResult

KEY = "SERPAPI_API_KEY"
"""Environment variable with the key, as in the official class."""
ADDRESS = "SEAL_RAY_SEARCH_URL"
"""Environment variable with the address of another search service with SerpAPI's interface."""
PRIVATE = "SEAL_RAY_SEARCH_PRIVATE"
"""Environment variable with hosts (host:port, comma-separated) whose pages may have private addresses."""
OFFICIAL = "https://serpapi.com/search"

MAX_QUERY = 8_000
"""Length of a query without the key; the service accepts no more either."""
_UNAVAILABLE = {"error": "Failed to retrieve the search results from server. Please try again later."}


@dataclass(frozen=True)
class Patience:
    """Retries, in seconds: up to `tries` failures; after a 429 as in the official class, for `throttled` at most."""

    pause: float = 2.0
    longest: float = 120.0
    tries: int = 4
    throttled: float = 900.0
    answer: float = 60.0


@dataclass(frozen=True)
class Service:
    """The search service and its key."""

    key: str = field(repr=False)
    address: str = OFFICIAL
    private: frozenset[str] = frozenset()

    @classmethod
    def from_environment(cls) -> Self:
        """Reads the environment variables. Raises `UserError` if the key is missing or an address is invalid."""
        key, address = os.environ.get(KEY, "").strip(), os.environ.get(ADDRESS, "").strip() or OFFICIAL
        if not key:
            raise UserError(f"bfcl-v4-web-search: {KEY} is not set; searching needs a key of SerpAPI (serpapi.com).")
        if not _is_address(address):
            raise UserError(f"{ADDRESS}: {address!r:.120} is not possible; give an address such as {OFFICIAL}.")
        hosts = frozenset(filter(None, (each.strip().lower() for each in os.environ.get(PRIVATE, "").split(","))))
        for host in hosts:
            if not _is_address(f"http://{host}/") or urlsplit(f"http://{host}/").port is None:
                raise UserError(f"{PRIVATE}: {host!r:.120} is not possible; give host:port, such as 127.0.0.1:8000.")
        return cls(key, address, hosts)


def _is_address(address: str) -> bool:
    try:
        parts = urlsplit(address)
        plain = not (parts.query or parts.fragment or "@" in parts.netloc)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and plain and parts.port != 0
    except ValueError:
        return False


class Web:
    """The tools, for all questions of an exam."""

    def __init__(
        self, service: Service, *, patience: Patience | None = None, limits: pages.PageLimits | None = None
    ) -> None:
        self.service = service
        self._patience, self._limits = patience or Patience(), limits or pages.PageLimits()
        self.reader = BoundedProcess(
            lambda: program_of(page_reader.__name__, "bs4", "html2text"), seconds=5.0 * page_reader.SECONDS
        )
        # At INFO it logs every URL, the service's with its key.
        logger = logging.getLogger("httpx")
        logger.setLevel(max(logging.WARNING, logger.level))

    def close(self) -> None:
        self.reader.close()

    async def execute(self, call: ToolCall, *, show_snippet: bool) -> CallResult:
        """Executes one call, or returns an error.

        Raises `EnvironmentFault` if the search service is dead or accepts no more requests, and nothing else.
        """
        try:
            arguments = {key: argument_of(value) for key, value in call.arguments.items()}
            if call.name not in _TOOLS:
                raise unknown_tool(call.name)
            return rendered(await getattr(WebSearchAPI(self, show_snippet), call.name)(**arguments))
        except EnvironmentFault:
            raise
        except Exception as error:  # noqa: BLE001 - the error is the call's result
            return CallResult(f"{ERROR}{error}", is_error=True)

    async def read(self, page: pages.Page, mode: str) -> JSON:
        """A page as text. Raises `ValueError` if it cannot be read."""
        body = base64.b64encode(page.body).decode()
        reply = await asyncio.to_thread(self.reader.ask, {"body": body, "encoding": page.encoding, "mode": mode})
        if reply is None:
            raise ValueError("the page takes too long to read")
        if "error" in reply:
            raise ValueError(reply["error"])
        return {"content": reply["content"]}

    async def page(self, url: str) -> pages.Page:
        return await pages.fetch(url, self._limits, self.service.private)

    async def search(self, query: str) -> Mapping[str, Any] | str:
        """The service's answer to a query: an object, or a text with the reason why it refuses this one."""
        patience, pause, waited, failed = self._patience, self._patience.pause, 0.0, 0
        while True:
            status, answer, why = await self._request(query)
            message = str(answer.get("error", "")) if answer is not None else ""
            if status == 429 or "429" in message:
                if waited >= patience.throttled:
                    raise EnvironmentFault(
                        "the search service takes no more requests (429: too many, or the account is used up)"
                    )
            elif status == 401 or (status == 403 and answer is not None):
                raise EnvironmentFault(f"the search service refuses the key of {KEY} ({status}: {self._safe(message)})")
            elif answer is not None:
                return answer
            elif status is not None and 400 <= status < 500:
                return f"the search service refuses the request ({status})"
            else:
                failed += 1
                if failed >= patience.tries:
                    raise EnvironmentFault(f"the search service does not answer ({self._safe(why)}); {failed} tries")
            wait = pause + random.uniform(0, pause)
            await asyncio.sleep(wait)
            waited, pause = waited + wait, min(2 * pause, patience.longest)

    async def _request(self, query: str) -> tuple[int | None, Mapping[str, Any] | None, str]:
        """Status and object of the answer, or the problem."""
        import httpx

        try:
            async with asyncio.timeout(self._patience.answer):
                client = httpx.AsyncClient(timeout=self._patience.answer, verify=pages.certificates())
                async with client, client.stream("GET", f"{self.service.address}?{query}") as response:
                    body = bytearray()
                    async for part in response.aiter_bytes():
                        body += part
                        if len(body) > self._limits.size:
                            return response.status_code, None, "its answer is too long"
        except TimeoutError:
            return None, None, f"no answer within {self._patience.answer:g} seconds"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return None, None, f"{type(error).__name__}: {error}"
        try:
            answer = json.loads(bytes(body))
        except (ValueError, RecursionError):
            return response.status_code, None, f"status {response.status_code} without JSON"
        is_object = isinstance(answer, dict)
        return response.status_code, answer if is_object else None, f"status {response.status_code} without an object"

    def _safe(self, text: str) -> str:
        """One line without the key."""
        return " ".join(text.replace(self.service.key, "…").split())[:200] or "no reason given"


_TOOLS = frozenset({"search_engine_query", "fetch_url_content"})


class WebSearchAPI:
    """The calls. The class has the official name, which appears in Python's error texts."""

    def __init__(self, web: Web, show_snippet: bool) -> None:
        self._web, self._show_snippet = web, show_snippet

    async def search_engine_query(
        self, keywords: str, max_results: int | None = 10, region: str | None = "wt-wt"
    ) -> Any:
        parameters = {"engine": "duckduckgo", "q": keywords, "kl": region}
        try:
            query = _encoded(parameters)
            if len(query) > MAX_QUERY:
                raise ValueError("The query is too long.")
        except Exception as error:  # noqa: BLE001 - as in the official class, an error of the call
            return {"error": str(error)}
        key = {"api_key": self._web.service.key, "output": "json", "source": "python"}
        answer = await self._web.search(f"{query}&{_encoded(key)}")
        if isinstance(answer, str):
            return {"error": answer}
        if "organic_results" not in answer:
            return _UNAVAILABLE
        results = []
        for result in answer["organic_results"][:max_results]:
            shown = {"title": result["title"], "href": result["link"]}
            if self._show_snippet:
                shown["body"] = result["snippet"]
            results.append(shown)
        return results

    async def fetch_url_content(self, url: str, mode: str = "raw") -> Any:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"Invalid URL: {url}")
        try:
            page = await self._web.page(url)
            if not isinstance(mode, str) or mode not in ("raw", "markdown", "truncate"):
                raise ValueError(f"Unsupported mode: {mode}")
            return await self._web.read(page, mode)
        except Exception as error:  # noqa: BLE001 - as in the official class, an error of the call
            return {"error": f"An error occurred while fetching {url}: {error}"}


def _encoded(parameters: Mapping[str, Any]) -> str:
    """The query string, as `requests` writes it."""
    from requests import Request

    return str(Request("GET", OFFICIAL, params=parameters).prepare().url).partition("?")[2]
