"""Log-ins at work: a thread for what takes long, a pause before each bad answer, and a line in the log.

Checking a password takes milliseconds on purpose, and the file of users is on a disk, so every step of a
log-in runs on a thread. There is one: however many strangers try, they take one core at most.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.errors import ConfigError, HeadraceError
from headrace.kafka.answer import Pending
from headrace.kafka.security.session import SaslSession
from headrace.logs import fields
from headrace.security.failed_logins import FailedLogins
from headrace.security.mechanisms import LoginFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from headrace.clock import Clock
    from headrace.config import BrokerConfig
    from headrace.kafka.services import Scheduler
    from headrace.kafka.topic_changes import Submit
    from headrace.security.mechanisms import Step
    from headrace.security.users import UserRegistry

    Result = TypeVar("Result")

logger: Final = logging.getLogger(__name__)

MECHANISM_CHARS_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class LoginAnswer:
    """What a client hears of its token: what to go on with, or nothing but that it failed."""

    token: bytes
    has_failed: bool = False


class Logins:
    """Belongs to the event loop's thread."""

    def __init__(
        self,
        config: BrokerConfig,
        users: UserRegistry,
        clock: Clock,
        scheduler: Scheduler,
        submit: Submit,
    ) -> None:
        """`submit` does work on a thread, one piece after the other, and then calls back on the loop's."""
        self.users = users
        self._config = config
        self._clock = clock
        self._scheduler = scheduler
        self._submit = submit
        self._is_closed = False
        self._failures = FailedLogins()
        self.outcomes: Counter[tuple[str, bool]] = Counter()
        """How many log-ins came to their end, by mechanism and whether they succeeded."""

    def check_users(self) -> None:
        """Raise ConfigError if the broker would let nobody in."""
        path = self._config.security.users_file
        if path is not None and not self.users.all():
            raise ConfigError(f"there are no users in {path}: add one with `headrace users add NAME`")

    def new_session(self) -> SaslSession | None:
        """The log-in of a new connection, where there must be one."""
        mechanisms = self._config.sasl_mechanisms
        if not mechanisms:
            return None
        return SaslSession(mechanisms, lifetime_ms=self._config.security.session_lifetime_ms_max)

    def now_s(self) -> float:
        """The time by which sessions live. It never jumps."""
        return self._clock.monotonic_s()

    def step(self, session: SaslSession, token: bytes, host: str, port: int) -> Pending[LoginAnswer]:
        """Take a client's next token; the answer comes once the thread has looked at it."""
        pending: Pending[LoginAnswer] = Pending()

        def on_step(step: Step) -> None:
            if step.user is not None:
                try:
                    session.complete(step.user, self.now_s())
                except LoginFailed as error:
                    on_error(error)
                    return
                self._succeeded(session, host, port)
            pending.resolve(LoginAnswer(step.answer))

        def on_error(error: Exception) -> None:
            delay_s = self._failed(session, error, host, port)
            session.fail()
            self._scheduler.call_later(delay_s, lambda: pending.resolve(LoginAnswer(b"", has_failed=True)))

        try:
            exchange = session.next_exchange()
        except LoginFailed as error:
            on_error(error)
        else:
            self.off_loop(lambda: exchange.step(token), on_step, on_error)
        return pending

    def note_unsupported(self, session: SaslSession, mechanism: str, host: str, port: int) -> None:
        """Log that a client asked for a mechanism that it can't have."""
        logger.warning(
            "the log-in from %s:%d failed: it asked for the mechanism %r; set sasl.mechanism to %s",
            host,
            port,
            mechanism[:MECHANISM_CHARS_MAX],
            f"{session.mechanism}, as before" if session.has_logged_in else " or ".join(session.mechanisms),
            extra=fields(client=f"{host}:{port}", principal=session.principal),
        )

    def off_loop(
        self,
        work: Callable[[], Result],
        on_result: Callable[[Result], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        """Do what takes long on the thread, and come back to the loop with what came of it."""
        results: list[Result] = []
        errors: list[Exception] = []

        def do() -> None:
            if self._is_closed:
                errors.append(LoginFailed("the broker is stopping"))
                return
            try:
                results.append(work())
            except Exception as error:  # noqa: BLE001  # it is handed on, to be logged or answered
                errors.append(error)

        self._submit(do, lambda: on_error(errors[0]) if errors else on_result(results[0]))

    def close(self) -> None:
        """Do nothing more of what is waiting for its turn."""
        self._is_closed = True

    def _succeeded(self, session: SaslSession, host: str, port: int) -> None:
        mechanism = session.mechanism or ""
        self.outcomes[mechanism, True] += 1
        logger.debug(
            "%s logged in from %s:%d by %s",
            session.principal,
            host,
            port,
            mechanism,
            extra=fields(client=f"{host}:{port}", principal=session.principal, mechanism=mechanism),
        )

    def _failed(self, session: SaslSession, error: Exception, host: str, port: int) -> float:
        """Count and log a failure; return how long its answer is to wait."""
        mechanism = session.mechanism or ""
        self.outcomes[mechanism, False] += 1
        count, delay_s = self._failures.note(host, self.now_s())
        user = error.user if isinstance(error, LoginFailed) else ""
        logger.warning(
            "the log-in of %r from %s:%d by %s failed: %s (failure %d from this address)",
            user,
            host,
            port,
            mechanism,
            error,
            count,
            exc_info=None if isinstance(error, HeadraceError) else error,
            extra=fields(client=f"{host}:{port}", principal=f"User:{user}", mechanism=mechanism),
        )
        return delay_s
