"""Fetches a page whose URL a model wrote: http and https on public addresses, within limits, never stored on disk.

Each connection, also after a redirect, goes to an address that was resolved and checked just before: a name cannot be
public when it is checked and private when it is used. The environment's proxies are not used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

HEADERS = {
    "User-Agent": (
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
        "Chrome/112.0.0.0 Safari/537.36"
    ),
    "Accept": (
        "text/html,application/xhtml+xml,application/xml;q=0.9,"
        "image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"
    ),
    "Accept-Language": "en-US,en;q=0.9",
    "Accept-Encoding": "gzip, deflate",
    "Connection": "keep-alive",
    "Upgrade-Insecure-Requests": "1",
    "Referer": "https://www.google.com/",
    "Sec-Fetch-Site": "same-origin",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-User": "?1",
    "Sec-Fetch-Dest": "document",
}
"""The official class's headers, without the encoding `br`, which needs one more package."""

_SPECIAL = {
    "192.0.0.0/24": "protocols of the IETF; a cloud has its metadata at 192.0.0.192",
    "192.31.196.0/24": "AS112",
    "192.52.193.0/24": "tunnels for multicast",
    "192.88.99.0/24": "relays of 6to4",
    "192.175.48.0/24": "AS112",
    "168.63.129.16/32": "metadata and name service of a cloud",
    "2001::/23": "protocols of the IETF, Teredo among them",
    "2002::/16": "6to4, which can hold any IPv4 address",
    "2620:4f:8000::/48": "AS112",
    "3fff::/20": "documentation",
}
"""Networks without web pages that `ipaddress` calls global in some Python: IANA's special-purpose registries, and one
of a cloud."""
_NETWORKS = [ipaddress.ip_network(each) for each in _SPECIAL]
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""The part of IPv6 that IANA has assigned."""
_HOLD_IPV4 = [ipaddress.IPv6Network(each) for each in ("::ffff:0:0/96", "64:ff9b::/96")]
"""IPv4-mapped and NAT64 addresses."""
_PORTS = {"http": 80, "https": 443}
_TRIES = 4


class PageRefused(Exception):
    """The page is not fetched, or not completely. The message is for the model."""


@dataclass(frozen=True, slots=True)
class PageLimits:
    """Limits of a page: seconds without a byte and in all, bytes, redirects."""

    idle: float = 20.0
    seconds: float = 60.0
    size: int = 5_000_000
    redirects: int = 30


@dataclass(frozen=True, slots=True)
class Page:
    """A body, and the encoding that `requests` would use; None if it would guess."""

    body: bytes
    encoding: str | None


def is_public(address: str) -> bool:
    """Whether an address, wrapped in IPv6 or not, is on the public internet and not on this machine."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if any(ip in each for each in _HOLD_IPV4):
            return is_public(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
        if ip not in _UNICAST or ip.scope_id:
            return False
    special = ip.is_multicast or any(ip in each for each in _NETWORKS)
    return ip.is_global and not special and not _is_own(str(ip))


def _is_own(address: str) -> bool:
    """Whether this machine has the address: the kernel then uses it for both ends of a connection. Nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return str(probe.getsockname()[0]) == address
    except OSError:
        return False


async def fetch(url: str, limits: PageLimits, private: frozenset[str]) -> Page:
    """The page at a URL. Hosts in `private` (host:port) may have any address. Raises any exception on failure."""
    import httpx
    from requests.structures import CaseInsensitiveDict
    from requests.utils import get_encoding_from_headers

    try:
        async with asyncio.timeout(limits.seconds):
            client = httpx.AsyncClient(
                transport=_checking(private),
                trust_env=False,
                headers=HEADERS,
                timeout=limits.idle,
                follow_redirects=True,
                max_redirects=limits.redirects,
            )
            async with client, client.stream("GET", url) as response:
                if response.status_code >= 400:
                    kind = "Client" if response.status_code < 500 else "Server"
                    said = f"{response.status_code} {kind} Error: {response.reason_phrase} for url: {response.url}"
                    raise PageRefused(said)
                return Page(
                    await _body(response, limits), get_encoding_from_headers(CaseInsensitiveDict(response.headers))
                )
    except TimeoutError:
        raise PageRefused(f"the page takes longer than {limits.seconds:g} seconds") from None
    except httpx.TimeoutException:
        raise PageRefused(f"Read timed out. (read timeout={limits.idle:g})") from None
    except httpx.TooManyRedirects:
        raise PageRefused(f"Exceeded {limits.redirects} redirects.") from None


async def _body(response: httpx.Response, limits: PageLimits) -> bytes:
    """The whole body, unpacked at most once, within the limit."""
    too_large = PageRefused(f"the page has more than {limits.size:,} bytes")
    raw = bytearray()
    async for part in response.aiter_raw():
        raw += part
        if len(raw) > limits.size:
            raise too_large
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding in ("", "identity") or not raw:
        return bytes(raw)
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise PageRefused(f"the page has the content encoding {coding[:80]!r}")
    body = await asyncio.to_thread(_unpacked, bytes(raw), limits.size + 1)
    if len(body) > limits.size:
        raise too_large
    return body


def _unpacked(raw: bytes, most: int) -> bytes:
    """The first bytes of unpacked gzip or deflate data, the latter with or without a header."""
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(raw, most)
    except zlib.error:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(raw, most)


async def addresses_of(host: str, port: int) -> Sequence[str]:
    """The addresses of a host now. Raises `PageRefused`."""
    try:
        look_up = asyncio.get_running_loop().getaddrinfo
        resolved = await look_up(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except (OSError, UnicodeError):
        raise PageRefused(f"Failed to resolve '{host[:200]}'") from None
    return list(dict.fromkeys(str(each[4][0]) for each in resolved))


@cache
def certificates() -> Any:
    import httpx

    return httpx.create_ssl_context(trust_env=False)


def _checking(private: frozenset[str]) -> httpx.AsyncBaseTransport:
    """A transport that resolves every host itself and connects only to addresses that it has checked."""
    import httpx

    class Checking(httpx.AsyncBaseTransport):
        def __init__(self) -> None:
            self._inner = httpx.AsyncHTTPTransport(verify=certificates())

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            url = request.url
            if url.scheme not in _PORTS:
                raise PageRefused(f"the address {str(url)[:200]} is neither http nor https")
            port = url.port or _PORTS[url.scheme]
            addresses = await addresses_of(url.host, port)
            if f"{url.host}:{port}" not in private:
                if not addresses or not all(map(is_public, addresses)):
                    raise PageRefused(f"the host '{url.host[:200]}' is not on the public internet")
            for number, address in enumerate(addresses[:_TRIES], start=1):
                checked = httpx.Request(
                    request.method,
                    url.copy_with(host=address),
                    headers=request.headers,
                    stream=request.stream,
                    extensions={**request.extensions, "sni_hostname": url.host},
                )
                try:
                    return await self._inner.handle_async_request(checked)
                except (httpx.ConnectError, httpx.ConnectTimeout):
                    if number == min(len(addresses), _TRIES):
                        raise
            raise AssertionError("there is an address")

        async def aclose(self) -> None:
            await self._inner.aclose()

    return Checking()
