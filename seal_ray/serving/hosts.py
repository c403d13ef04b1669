"""The host names of a server without a key: a web page can make its own name resolve to this machine."""

import ipaddress
import re
import socket

from starlette.types import ASGIApp, Receive, Scope, Send

from seal_ray.serving.limits import error_response, header

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - names of addresses, nothing is bound


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback if is_address(host) else host == "localhost"


def host_of(authority: str) -> str:
    """The host of `host` or `host:port`, in lower case, without the brackets of an IPv6 address."""
    return re.sub(r":\d*$", "", authority.strip().lower()).removeprefix("[").removesuffix("]")


class KnownHosts:
    """Answers 403 to requests for another host than this machine, or from a page of another host.

    Args:
        app: The application behind.
        listens: The server's address. A server at all addresses answers to each, and to the machine's name; no page can
            have one of these.
    """

    def __init__(self, app: ASGIApp, listens: str) -> None:
        self._app = app
        self._everywhere = listens in EVERYWHERE
        self._names = {listens.lower(), socket.gethostname().lower()} if self._everywhere else {listens.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_known(scope):
            await self._app(scope, receive, send)
            return
        message = "without a key the server answers only to its own address; use that, or start it with a key."
        await error_response(403, message, "unknown_host")(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        host = host_of(header(scope, b"host").decode("latin-1"))
        if not (self._is_own(host) or (self._everywhere and is_address(host))):
            return False
        origin = header(scope, b"origin").decode("latin-1")
        _, _, page = origin.partition("://")
        return not origin or self._is_own(host_of(page)) or host_of(page) == host

    def _is_own(self, host: str) -> bool:
        return is_loopback(host) or host in self._names
