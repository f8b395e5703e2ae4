"""Who a client of queues is: PLAIN and AMQPLAIN, checked on a thread, with a pause before each bad answer.

    PLAIN      authorisation id, NUL, user, NUL, password
    AMQPLAIN   a field table without its length: LOGIN and PASSWORD

Where there is a file of users, a client must be one of them. Where there is none, the broker is on loopback
or asks for certificates, and clients come as `guest` with the password `guest`, which all of them do unless
they are told otherwise. RabbitMQ does the same.
"""

from __future__ import annotations

import hmac
import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from struct import pack
from typing import TYPE_CHECKING, Final

from headrace.errors import ConfigError, HeadraceError, QueueRefused
from headrace.logs import fields
from headrace.queue.fields import read_table
from headrace.security.failed_logins import FailedLogins
from headrace.security.mechanisms import LoginFailed, PlainExchange

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from headrace.clock import Clock
    from headrace.security.users import UserRegistry

logger: Final = logging.getLogger(__name__)

GUEST: Final = "guest"
_GUEST_TOKEN: Final = b"guest\0guest"


class QueueLogins:
    """Belongs to the event loop's thread; passwords are checked on a thread of its own."""

    def __init__(self, users: UserRegistry | None, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        """Without users, all clients are guests."""
        self._users = users
        self._clock = clock
        self._loop = loop
        self._failures = FailedLogins()
        # One: however many strangers try, they take one core at most.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headrace-queue-login")
        self.outcomes: Counter[tuple[str, bool]] = Counter()
        """How many log-ins came to their end, by mechanism and whether they succeeded."""

    def check_users(self) -> None:
        """Raise ConfigError if nobody would be let in."""
        if self._users is not None and not self._users.all():
            raise ConfigError(
                f"there are no users in {self._users.path}: add one with `headrace users add NAME`"
            )

    def log_in(
        self,
        mechanism: str,
        response: bytes,
        host: str,
        *,
        on_success: Callable[[str], None],
        on_failure: Callable[[], None],
    ) -> None:
        """Check what a client says; one of the two is called later, on this thread."""

        def done(future: asyncio.Future[str]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            self.outcomes[mechanism, error is None] += 1
            if error is None:
                on_success(future.result())
                return
            delay_s = self._failed(mechanism, error, host)
            self._loop.call_later(delay_s, on_failure)

        self._loop.run_in_executor(self._thread, self._check, mechanism, response).add_done_callback(done)

    def close(self) -> None:
        """Check nothing more."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _check(self, mechanism: str, response: bytes) -> str:
        token = response if mechanism == "PLAIN" else plain_token(response)
        if self._users is not None:
            user = PlainExchange(self._users.all).step(token).user
            assert user is not None  # PLAIN has one step.
            return user
        _, _, name_and_password = token.partition(b"\0")
        if not hmac.compare_digest(name_and_password, _GUEST_TOKEN):
            name = name_and_password.partition(b"\0")[0].decode(errors="replace")
            raise LoginFailed("without a file of users, the only user is guest, password guest", user=name)
        return GUEST

    def _failed(self, mechanism: str, error: BaseException, host: str) -> float:
        """Count and log a failure; return how long its answer is to wait."""
        count, delay_s = self._failures.note(host, self._clock.monotonic_s())
        user = error.user if isinstance(error, LoginFailed) else ""
        logger.warning(
            "the log-in of %r from %s by %s failed: %s (failure %d from this address)",
            user,
            host,
            mechanism,
            error,
            count,
            exc_info=None if isinstance(error, HeadraceError) else error,
            extra=fields(client=host, principal=f"User:{user}", mechanism=mechanism),
        )
        return delay_s


def plain_token(response: bytes) -> bytes:
    """What PLAIN would have sent, of AMQPLAIN's table. Raises LoginFailed."""
    try:
        table = read_table(pack(">I", len(response)) + response)
    except QueueRefused:
        raise LoginFailed("the response is not AMQPLAIN's table") from None
    user, password = table.get("LOGIN"), table.get("PASSWORD")
    if not isinstance(user, str) or not isinstance(password, str):
        raise LoginFailed("AMQPLAIN's table has no LOGIN or no PASSWORD")
    return f"\0{user}\0{password}".encode()
