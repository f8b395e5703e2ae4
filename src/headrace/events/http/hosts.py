"""Which requests are answered at all.

Any web page that somebody has open can make a browser send requests to an address of the inner network or of
the machine itself. So these are refused, whatever they ask for:

- a Host that is none of our own: that is how DNS rebinding looks;
- an Origin that is none of our own: another page is asking;
- a request that the browser marks as coming from another site, unless it is a plain navigation.

No CORS header is ever sent. A body has to be declared as JSON, which pages of others can't do unasked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.events.http.problems import Problem

HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def loopback_hosts(port: int) -> frozenset[str]:
    """The Host headers of a server that listens on this machine only."""
    names = ("127.0.0.1", "localhost", "[::1]")
    return frozenset(f"{name}:{port}" for name in names)


class OwnHostsOnly:
    """ASGI middleware that applies the rules above."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(
            f"{scheme}://{host}" for scheme in ("http", "https") for host in self._hosts
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on and add HEADERS to the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(Headers(scope=scope))
        app = self._app if refusal is None else refusal.response()
        await app(scope, receive, send_with_headers)

    def _refusal(self, headers: Headers) -> Problem | None:
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return _refused(f"this server does not answer to the host {_quoted(hosts)}")
        if origins and (len(origins) > 1 or origins[0].lower() not in self._origins):
            return _refused(f"this server does not answer to pages from {_quoted(origins)}")
        site = headers.get("sec-fetch-site", "none")
        if site not in {"none", "same-origin"} and headers.get("sec-fetch-mode") != "navigate":
            return _refused("this server does not answer to pages of other sites")
        return None


def _refused(detail: str) -> Problem:
    return Problem(403, "Forbidden", detail)


def _quoted(values: list[str]) -> str:
    return ", ".join(repr(value[:100]) for value in values) or "(none given)"
