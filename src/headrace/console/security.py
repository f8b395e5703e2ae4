"""Who may talk to the console, and what browsers may do with what it sends.

The console has no log-in; it trusts the machine that it runs on, and listens on loopback only. Any web page
that the user has open can make the browser send requests to loopback, so these are refused:

- a Host that is not one of our own names with our port: that is how DNS rebinding looks;
- an Origin that is not ours: another page is asking;
- a request that the browser marks as coming from another site, unless it is a plain navigation (a link);
- any method but GET, HEAD and POST, and a POST that does not prove to come from the page of somebody who was
  given the token: see `Session`.

No CORS header is ever sent. Every answer carries HEADERS, which forbid other origins, frames, inline script
and sniffing.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from headrace.config import Address

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='; "
        # That hash is the one of an empty text: the chart library makes an empty <style> to add rules to.
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
METHODS: Final = ("GET", "HEAD", "POST")
TOKEN_BYTES: Final = 24


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(TOKEN_BYTES)


class Session:
    """Who may act and read records: whoever opened the address with the token, which only the terminal shows.

    The page that is opened with the token gets it as a cookie, which scripts can't read and browsers don't
    send along with requests that other sites make. Cookies are not kept apart by port, so the name has it.
    """

    def __init__(self, address: Address, token: str) -> None:
        self._cookie = f"headrace-{address.port}"
        self._token = token

    def is_token(self, given: str) -> bool:
        """Whether it is the token; takes as long whatever is wrong with it."""
        return hmac.compare_digest(given.encode(errors="replace"), self._token.encode())

    def is_held_by(self, headers: Headers) -> bool:
        """Whether a request carries the cookie."""
        pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
        return any(name == self._cookie and self.is_token(value) for name, _, value in pairs)

    def give_to(self, response: Response) -> None:
        """Set the cookie."""
        response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")


def own_hosts(address: Address) -> frozenset[str]:
    """The Host headers that browsers send when they mean this console."""
    names = {"127.0.0.1", "localhost", "[::1]", str(address).rpartition(":")[0]}
    with_port = {f"{name}:{address.port}" for name in names}
    return frozenset(with_port | (names if address.port == 80 else set()))


class LoopbackOnly:
    """ASGI middleware that applies the rules above."""

    def __init__(self, app: ASGIApp, *, address: Address, session: Session) -> None:
        self._app = app
        self._session = session
        self._hosts = own_hosts(address)
        self._origins = frozenset(f"http://{host}" for host in self._hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on and add HEADERS to the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self._refusal(scope["method"], Headers(scope=scope))
        await (answer or self._app)(scope, receive, send_with_headers)

    def _refusal(self, method: str, headers: Headers) -> PlainTextResponse | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return _refuse(f"This console does not answer to the host {_quoted(hosts)}", self._advice())
        origins = headers.getlist("origin")
        if origins and (len(origins) > 1 or origins[0].lower() not in self._origins):
            return _refuse(f"This console does not answer to pages from {_quoted(origins)}", self._advice())
        if _is_from_another_page(headers):
            return _refuse("This console does not answer to pages of other sites", self._advice())
        if method not in METHODS:
            return PlainTextResponse(
                f"{method[:20]} is not possible here: use GET to look, and POST to act.\n",
                status_code=405,
                headers={"Allow": ", ".join(METHODS)},
            )
        if method == "POST" and not (origins and self._session.is_held_by(headers)):
            return _refuse(
                "Only the page of whoever started the console may do that", "open the address that it printed"
            )
        return None

    def _advice(self) -> str:
        return f"open http://{min(self._hosts)}/ in a browser on this machine"


def _is_from_another_page(headers: Headers) -> bool:
    """Whether the browser says so. Other clients don't send these headers."""
    site = headers.get("sec-fetch-site", "none")
    return site not in {"none", "same-origin"} and headers.get("sec-fetch-mode") != "navigate"


def _refuse(what: str, advice: str) -> PlainTextResponse:
    return PlainTextResponse(f"{what}: {advice}.\n", status_code=403)


def _quoted(values: list[str]) -> str:
    return ", ".join(repr(value[:100]) for value in values) or "(none given)"
