"""Requests to OpenSearch or Elasticsearch, and their errors in our own words.

    https://user:password@host:9200/prefix?ca=/path/to/ca.pem

The password may have any character that is written as in URLs (`%40` for `@`). `ca` names a file with the
certificates of who has signed the server's own; without it, those that this machine trusts count. Neither is
ever told: what is said of a server is its host and port.

A server that does not answer, or says that it has too much to do, is asked again after a pause that grows.
All requests that are made can be made twice.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import httpx

from headrace.errors import ConfigError, FaultError, StoreUnavailable

TRY_S_MAX: Final = 30.0
"""How long to try: a server that restarts has to be awaited."""
PAUSE_S: Final = 0.1
PAUSE_S_MAX: Final = 5.0
REQUEST_S_MAX: Final = 60.0
"""How long one answer may take."""
WORDS_MAX: Final = 500
"""How much of what a server says is told."""
BUSY: Final = frozenset({429, 502, 503, 504})
"""What may be otherwise another time."""
BLOCKED: Final = frozenset(
    {"index_closed_exception", "cluster_block_exception", "index_create_block_exception"}
)
"""Errors of an index that is closed or must not be written, because its disk is full, or somebody has it so:
what is asked may be done when it is open again."""
_REFUSED_LOGIN: Final = frozenset({401, 403})


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server, as a URL says it."""

    url: str
    """Without what is secret."""
    user: str
    password: str = field(repr=False)
    ca: str | None

    @classmethod
    def parse(cls, address: str) -> Address:
        """Read a URL; raises for what is none."""
        parts = urlsplit(address)
        options = dict(parse_qsl(parts.query))
        unknown = sorted(set(options) - {"ca"})
        try:
            port = parts.port
        except ValueError:
            port = 0
        if not parts.hostname or unknown or port == 0 or parts.fragment:
            raise ConfigError(
                f"the address of a search server can't be read{f' ({unknown[0]}?)' if unknown else ''}: "
                "write https://user:password@host:9200, and ?ca=/path.pem behind it where its certificate is "
                "your own"
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return cls(
            url=f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}",
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            ca=options.get("ca"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server has answered."""

    status: int
    text: str

    @property
    def body(self) -> dict[str, Any]:
        """Its JSON object; an empty one where it is none."""
        try:
            found = json.loads(self.text)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def kind(self) -> str:
        """The type of an error, in the server's words."""
        error = self.body.get("error")
        return str(error.get("type", "")) if isinstance(error, dict) else ""

    @property
    def words(self) -> str:
        """What the server says is wrong, in one line."""
        error = self.body.get("error")
        if isinstance(error, dict):
            causes = error.get("root_cause") or [error]
            said = "; ".join(dict.fromkeys(str(cause.get("reason") or cause.get("type")) for cause in causes))
        else:
            said = str(error or self.text)
        return f"{self.status} {' '.join(said.split())[:WORDS_MAX]}"


class Server:
    """A server, and the connections to it. Safe to share between threads."""

    def __init__(
        self,
        address: str,
        *,
        transport: httpx.BaseTransport | None = None,
        try_s_max: float = TRY_S_MAX,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Nothing is asked yet."""
        self._address = Address.parse(address)
        self._try_s_max = try_s_max
        self._sleep = sleep
        has_login = self._address.user or self._address.password
        self._client = httpx.Client(
            base_url=self._address.url,
            auth=(self._address.user, self._address.password) if has_login else None,
            verify=_trusted(self._address.ca),
            timeout=REQUEST_S_MAX,
            transport=transport,
        )

    @property
    def told(self) -> str:
        """Which server it is."""
        return self._address.url

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        what: str,
        accepted: Collection[int] = (),
        before_each: Callable[[], object] = lambda: None,
        **parameters: object,
    ) -> Answer:
        """Ask, again for a while where that may help. `what` is what is being done, for errors.

        Statuses below 300 and accepted ones are answers; others raise. `before_each` may raise before each
        attempt, where what is asked is not to be done any more.
        """
        content, kind = _content(body)
        answer = self._answered(
            lambda: self._client.request(
                method,
                path,
                content=content,
                headers={"Content-Type": kind} if content is not None else None,
                params={name: str(value) for name, value in parameters.items()},
            ),
            what,
            before_each,
        )
        if answer.status >= 400 and answer.kind in BLOCKED:
            raise StoreUnavailable(f"{what} is not possible on {self.told} for now: {answer.words}")
        if answer.status < 300 or answer.status in accepted:
            return answer
        if answer.status in _REFUSED_LOGIN:
            raise ConfigError(
                f"{what} is refused by {self.told}: {answer.words}; check user, password and rights"
            )
        raise FaultError(f"{what} failed on {self.told}: {answer.words}")

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()

    def _answered(
        self, ask: Callable[[], httpx.Response], what: str, before_each: Callable[[], object]
    ) -> Answer:
        """The first answer that is not that the server is busy."""
        waited_s = 0.0
        for pause_s in growing_pauses():
            before_each()
            try:
                response = ask()
                answer = Answer(status=response.status_code, text=response.text)
                if answer.status not in BUSY:
                    return answer
                said = answer.words
            except httpx.TransportError as error:
                said = f"{type(error).__name__}: {error}"
            if waited_s + pause_s > self._try_s_max:
                raise StoreUnavailable(
                    f"{what}: no answer of {self.told} within {self._try_s_max:.0f} s of trying: {said}"
                ) from None
            self._sleep(pause_s)
            waited_s += pause_s
        raise AssertionError("there is always another pause")


def growing_pauses() -> Iterator[float]:
    """How long to wait before each further attempt."""
    pause_s = PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, PAUSE_S_MAX)


@contextmanager
def connected(address: str) -> Iterator[Server]:
    """A server, for the time of the block."""
    server = Server(address)
    try:
        yield server
    finally:
        server.close()


def document_path(index: str, id_: str) -> str:
    """Where a document is."""
    return f"/{quote(index, safe='')}/_doc/{quote(id_, safe='')}"


def _content(body: object) -> tuple[bytes | None, str]:
    """What is sent: nothing, JSON, or lines of JSON that are ready."""
    if body is None:
        return None, ""
    if isinstance(body, bytes):
        return body, "application/x-ndjson"
    return json.dumps(body).encode(), "application/json"


def _trusted(ca: str | None) -> ssl.SSLContext | bool:
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise ConfigError(f"the certificates in {ca} can't be read: {error}") from error
