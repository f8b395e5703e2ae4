"""The arguments of a queue's declaration: what the broker makes of them, and whether two declarations agree.

Those of RabbitMQ have RabbitMQ's names and meanings. Our own are about coming back later:

    x-headrace-retry-delay-ms       a message that is given back (nack or reject with requeue) is ready again
                                    only after so many milliseconds
    x-headrace-retry-backoff        each time that it comes back, the delay is multiplied by this (default 2)
    x-headrace-retry-delay-max-ms   and never gets longer than this (default an hour)

An argument that nobody knows is kept and means nothing, as with RabbitMQ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NoReturn

from headrace.queue.fields import freeze
from headrace.queue.refusals import precondition_failed

if TYPE_CHECKING:
    from collections.abc import Mapping

Overflow = Literal["drop-head", "reject-publish", "reject-publish-dlx"]
OVERFLOWS: Final[tuple[Overflow, ...]] = ("drop-head", "reject-publish", "reject-publish-dlx")
QUEUE_TYPES: Final = ("classic", "quorum")
PRIORITY_MAX: Final = 255
TIME_MS_MAX: Final = 2**32 - 1
COUNT_MAX: Final = 2**63 - 1
HOUR_MS: Final = 3_600_000
BACKOFF_MAX: Final = 100
COMPARED: Final = frozenset(
    (
        "x-message-ttl",
        "x-expires",
        "x-max-length",
        "x-max-length-bytes",
        "x-overflow",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-max-priority",
        "x-delivery-limit",
        "x-queue-type",
        "x-single-active-consumer",
        "x-headrace-retry-delay-ms",
        "x-headrace-retry-delay-max-ms",
        "x-headrace-retry-backoff",
    )
)
"""Arguments in which two declarations of a queue have to agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueArguments:
    """What a queue was asked to do beyond keeping messages."""

    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    length_max: int | None = None
    length_bytes_max: int | None = None
    overflow: Overflow = "drop-head"
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    priority_max: int = 0
    delivery_limit: int | None = None
    counts_deliveries: bool = False
    """Whether it is written down how often a message came back, and consumers are told."""
    single_active_consumer: bool = False
    retry_delay_ms: int | None = None
    retry_delay_ms_max: int = HOUR_MS
    retry_backoff: int = 2

    def retry_after_ms(self, delivery_count: int) -> int:
        """How long a message waits that has come back so many times."""
        if self.retry_delay_ms is None:
            return 0
        # Above this the longest delay is reached whatever the factor is, and powers stay small.
        exponent = min(delivery_count - 1, 32)
        factor: int = self.retry_backoff**exponent
        return min(self.retry_delay_ms * factor, self.retry_delay_ms_max)

    @classmethod
    def parse(cls, queue: str, vhost: str, given: Mapping[str, object]) -> QueueArguments:
        """Read the arguments of a declaration. Raises QueueRefused (406)."""
        read = _Reader(queue, vhost, given)
        delivery_limit = read.number("x-delivery-limit", 0, COUNT_MAX)
        retry_delay_ms = read.number("x-headrace-retry-delay-ms", 0, TIME_MS_MAX)
        queue_type = read.choice("x-queue-type", QUEUE_TYPES)
        exchange = read.text("x-dead-letter-exchange")
        routing_key = read.text("x-dead-letter-routing-key")
        if routing_key is not None and exchange is None:
            read.refuse("x-dead-letter-routing-key", "routing_key_but_no_dlx_defined")
        overflow = read.choice("x-overflow", OVERFLOWS)
        delay_max = read.number("x-headrace-retry-delay-max-ms", 0, TIME_MS_MAX)
        backoff = read.number("x-headrace-retry-backoff", 1, BACKOFF_MAX)
        return cls(
            message_ttl_ms=read.number("x-message-ttl", 0, TIME_MS_MAX),
            expires_ms=read.number("x-expires", 1, TIME_MS_MAX),
            length_max=read.number("x-max-length", 0, COUNT_MAX),
            length_bytes_max=read.number("x-max-length-bytes", 0, COUNT_MAX),
            overflow=next((each for each in OVERFLOWS if each == overflow), "drop-head"),
            dead_letter_exchange=exchange,
            dead_letter_routing_key=routing_key,
            priority_max=read.number("x-max-priority", 0, PRIORITY_MAX) or 0,
            delivery_limit=delivery_limit,
            counts_deliveries=delivery_limit is not None
            or retry_delay_ms is not None
            or queue_type == "quorum",
            single_active_consumer=read.flag("x-single-active-consumer"),
            retry_delay_ms=retry_delay_ms,
            retry_delay_ms_max=HOUR_MS if delay_max is None else delay_max,
            retry_backoff=2 if backoff is None else backoff,
        )


class _Reader:
    def __init__(self, queue: str, vhost: str, given: Mapping[str, object]) -> None:
        self._queue = queue
        self._vhost = vhost
        self._given = given

    def number(self, name: str, least: int, most: int) -> int | None:
        value = self._given.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(name, f"unacceptable_type: {value!r} is no whole number")
        if not least <= value <= most:
            self.refuse(name, f"{value} is not between {least} and {most}")
        return value

    def text(self, name: str) -> str | None:
        value = self._given.get(name)
        if value is not None and not isinstance(value, str):
            self.refuse(name, f"unacceptable_type: {value!r} is no text")
        return value

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        value = self.text(name)
        if value is not None and value not in allowed:
            self.refuse(name, f"'{value}' is none of {', '.join(allowed)}")
        return value

    def flag(self, name: str) -> bool:
        value = self._given.get(name, False)
        if not isinstance(value, bool):
            self.refuse(name, f"unacceptable_type: {value!r} is neither true nor false")
        return value

    def refuse(self, name: str, why: str) -> NoReturn:
        raise precondition_failed(
            f"invalid arg '{name}' for queue '{self._queue}' in vhost '{self._vhost}': {why}"
        )


def compared(given: Mapping[str, object]) -> dict[str, object]:
    """Those of a queue's arguments in which two declarations have to agree."""
    return {
        name: value
        for name, value in given.items()
        if name in COMPARED and not (name == "x-queue-type" and value == "classic")
    }


def check_equivalent(
    kind: str, name: str, vhost: str, *, current: Mapping[str, object], given: Mapping[str, object]
) -> None:
    """Raise QueueRefused (406) where a declaration does not agree with what is there."""
    for argument in sorted({*current, *given}):
        before, now = current.get(argument), given.get(argument)
        if freeze(before) != freeze(now):
            raise precondition_failed(
                f"inequivalent arg '{argument}' for {kind} '{name}' in vhost '{vhost}': "
                f"received {_described(now)} but current is {_described(before)}"
            )


def _described(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return f"'{str(value).lower()}'"
        case int():
            return f"the value '{value}' of type 'signedint'"
        case str():
            return f"the value '{value}' of type 'longstr'"
    return f"the value '{value}'"
