"""How far a connection's log-in has come, as in Kafka (KIP-43, KIP-152, KIP-368). No I/O.

    GREETING ──SaslHandshake──▶ TOKENS ──SaslAuthenticate…──▶ OPEN ──SaslHandshake──▶ TOKENS (again)
        │                         │
        └────── wrong ────────────┴──▶ FAILED: the connection is closed once the answer is sent

    GREETING   ApiVersions and SaslHandshake
    TOKENS     SaslAuthenticate; after SaslHandshake version 0, bare tokens instead of requests
    OPEN       everything, until the session's time is over; then only SaslHandshake

A client that logs in anew must stay the same user with the same mechanism. It may do so once a second at
most; a SaslHandshake before that, or on a listener without log-ins, is answered with ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from headrace.errors import ProtocolError
from headrace.kafka.services import ANONYMOUS
from headrace.security.mechanisms import LoginFailed, new_exchange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.config import SaslMechanism
    from headrace.security.mechanisms import Exchange, ReadUsers

HANDSHAKE_KEY: Final = 17
API_VERSIONS_KEY: Final = 18
AUTHENTICATE_KEY: Final = 36
RELOGIN_INTERVAL_S_MIN: Final = 1.0
LOGIN_FRAME_BYTES_MAX: Final = 64 * 1024
"""The most for any request before a client has logged in."""
STEP_COUNT_MAX: Final = 8
"""More tokens than this are no log-in."""


class Stage(Enum):
    """Where a connection is."""

    GREETING = auto()
    TOKENS = auto()
    OPEN = auto()
    FAILED = auto()


_ALLOWED: Final = {
    Stage.GREETING: frozenset({API_VERSIONS_KEY, HANDSHAKE_KEY}),
    Stage.TOKENS: frozenset({AUTHENTICATE_KEY}),
    Stage.FAILED: frozenset[int](),
}


class SaslSession:
    """One connection's log-in.

    Belongs to the event loop's thread; only the exchange leaves it, for one step at a time.
    """

    __slots__ = (
        "_began_s",
        "_expires_s",
        "_step_count",
        "exchange",
        "lifetime_ms",
        "mechanism",
        "mechanisms",
        "principal",
        "stage",
        "takes_bare_tokens",
    )

    def __init__(self, mechanisms: Sequence[SaslMechanism], *, lifetime_ms: int = 0) -> None:
        self.mechanisms = tuple(mechanisms)
        self.lifetime_ms = lifetime_ms
        self.stage = Stage.GREETING
        self.principal = ANONYMOUS
        self.mechanism: SaslMechanism | None = None
        self.exchange: Exchange | None = None
        self.takes_bare_tokens = False
        self._began_s = 0.0
        self._expires_s: float | None = None
        self._step_count = 0

    @property
    def is_open(self) -> bool:
        """Whether the client may ask for everything, time permitting."""
        return self.stage is Stage.OPEN

    @property
    def has_failed(self) -> bool:
        """Whether the connection is to end."""
        return self.stage is Stage.FAILED

    @property
    def has_logged_in(self) -> bool:
        """Whether the client has proved who it is, at least once."""
        return self.principal != ANONYMOUS

    def check(self, api_key: int, now_s: float) -> None:
        """Raise ProtocolError if the request may not be made now."""
        if self.stage is Stage.OPEN:
            if self._expires_s is not None and now_s > self._expires_s and api_key != HANDSHAKE_KEY:
                raise ProtocolError(f"the session of {self.principal} is over, and it has not logged in anew")
            return
        if api_key not in _ALLOWED[self.stage]:
            raise ProtocolError(
                f"API {api_key} was asked for before the log-in was done; the client must set "
                "security.protocol to SASL_PLAINTEXT (or SASL_SSL with TLS), sasl.mechanism to one of "
                f"{', '.join(self.mechanisms)}, and its user and password"
            )

    def may_begin(self, now_s: float) -> bool:
        """Whether a log-in may begin, for the first time or anew."""
        return self.stage is Stage.GREETING or (
            self.stage is Stage.OPEN and now_s - self._began_s >= RELOGIN_INTERVAL_S_MIN
        )

    def begin(self, mechanism: str, read_users: ReadUsers, now_s: float, *, with_bare_tokens: bool) -> bool:
        """Begin a log-in; False, and it has failed, if it can't be by that mechanism."""
        known = next((each for each in self.mechanisms if each == mechanism), None)
        is_changed = self.has_logged_in and mechanism != self.mechanism
        if known is None or is_changed:
            self.fail()
            return False
        self.stage = Stage.TOKENS
        self.mechanism = known
        self.exchange = new_exchange(known, read_users)
        self.takes_bare_tokens = with_bare_tokens
        self._began_s = now_s
        self._step_count = 0
        return True

    def next_exchange(self) -> Exchange:
        """The log-in that is to take the next token. Raises LoginFailed if there have been too many."""
        assert self.exchange is not None  # `check` has seen that a log-in has begun
        self._step_count += 1
        if self._step_count > STEP_COUNT_MAX:
            raise LoginFailed(f"more than {STEP_COUNT_MAX} tokens were sent")
        return self.exchange

    def complete(self, user: str, now_s: float) -> None:
        """Note that the client has proved to be the user. Raises LoginFailed if it was another before."""
        principal = f"User:{user}"
        if self.has_logged_in and principal != self.principal:
            raise LoginFailed(f"{self.principal} can't become {principal} on the same connection", user=user)
        self.principal = principal
        self.stage = Stage.OPEN
        self.exchange = None
        self.takes_bare_tokens = False
        if self.lifetime_ms:
            self._expires_s = now_s + self.lifetime_ms / 1000

    def fail(self) -> None:
        """Note that the log-in has failed: the connection ends."""
        self.stage = Stage.FAILED
        self.exchange = None
