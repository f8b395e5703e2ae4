"""Work with queues: bridges between queues and topics, and pushing messages to a URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import SplitResult, urlsplit

from headrace.config.checks import check_topic_name, require
from headrace.config.environment import default_bootstrap, default_queues_url
from headrace.config.units import KIB, MIB

BridgeKey = Literal["routing-key", "message-id", "none"]
BridgeStart = Literal["earliest", "latest"]
BRIDGE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,50}")
SHORT_STRING_BYTES_MAX: Final = 255
"""What AMQP allows for the names of queues and exchanges, and for routing keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToTopicConfig:
    """A bridge from a queue, or from an exchange, to a topic."""

    name: str
    """Tells bridges apart; only one of a name runs at a time."""
    topic: str
    """Where records go; made if it is not there."""
    queue: str = ""
    """Whose messages are handed over; empty: `bridge.` and the name, which needs an exchange."""
    exchange: str | None = None
    """An exchange to bind the queue to. It must be there."""
    binding_keys: tuple[str, ...] = ("#",)
    """What the queue is bound to the exchange with."""
    key: BridgeKey = "routing-key"
    """What becomes a record's key, and so decides about its partition."""
    url: str = field(default_factory=default_queues_url, repr=False)
    """The queue server, with user and password."""
    bootstrap: str = field(default_factory=default_bootstrap)
    """The broker, or the Kafka cluster."""
    client_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of librdkafka that a secured broker asks for."""
    partition_count: int = 1
    """How many partitions a new topic has."""
    refused_queue: str = ""
    """Where messages go that the topic does not take, such as those that are too large; empty: the queue's
    name and `.refused`."""
    batch_count_max: int = 500
    """How many messages are handed over in a transaction, at most."""
    remembered_batch_count: int = 2000
    """Of how many batches the ids are remembered, to recognise what comes again."""
    transaction_s_max: int = 60
    """How long a transaction may take before the broker gives it up."""

    def __post_init__(self) -> None:
        _check_bridge_name(self.name)
        check_topic_name(self.topic)
        require(
            bool(self.queue) or self.exchange is not None,
            f"bridge {self.name} needs a queue or an exchange to take messages from",
        )
        require(self.partition_count >= 1, "partition_count must be 1 or more")
        require(1 <= self.batch_count_max <= 10_000, "batch_count_max must be 1 to 10000")
        require(
            self.remembered_batch_count >= 2 * self.batch_count_max,
            f"remembered_batch_count {self.remembered_batch_count} is too few: all that may come again "
            f"must be remembered, even one by one, so use {2 * self.batch_count_max} or more",
        )
        require(1 <= self.transaction_s_max <= 900, "transaction_s_max must be 1 to 900")
        if not self.queue:
            object.__setattr__(self, "queue", f"bridge.{self.name}")
        if not self.refused_queue:
            object.__setattr__(self, "refused_queue", f"{self.queue}.refused")
        for name in (self.queue, self.refused_queue, self.exchange or "", *self.binding_keys):
            check_short(name)
        require(
            self.refused_queue != self.queue, "refused_queue must be another queue than the one read from"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToQueueConfig:
    """A bridge from a topic to a queue, or to an exchange."""

    name: str
    """Tells bridges apart; only one of a name runs at a time."""
    topic: str
    """Whose records are handed over."""
    queue: str = ""
    """Where messages go; made, as a durable queue, if it is not there. Empty: to an exchange."""
    exchange: str | None = None
    """Where messages go instead of a queue. It must be there, and route all of them."""
    routing_key: str | None = None
    """What messages for an exchange are published with; None: each with its record's key."""
    start: BridgeStart = "earliest"
    """Where the first start begins: with what is in the topic, or with what comes."""
    url: str = field(default_factory=default_queues_url, repr=False)
    """The queue server, with user and password."""
    bootstrap: str = field(default_factory=default_bootstrap)
    """The broker, or the Kafka cluster."""
    client_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of librdkafka that a secured broker asks for."""
    batch_count_max: int = 500
    """How many records are handed over in a transaction, at most."""

    def __post_init__(self) -> None:
        _check_bridge_name(self.name)
        check_topic_name(self.topic)
        require(
            bool(self.queue) != (self.exchange is not None),
            f"bridge {self.name} needs a queue or an exchange to hand records to, and not both",
        )
        require(
            self.exchange is not None or self.routing_key is None,
            "a routing key is for an exchange: a queue is published to by its name",
        )
        require(1 <= self.batch_count_max <= 10_000, "batch_count_max must be 1 to 10000")
        for name in (self.queue, self.exchange or "", self.routing_key or ""):
            check_short(name)

    @property
    def position_queue(self) -> str:
        """The queue whose one message says how far the bridge is."""
        return f"headrace.bridge.{self.name}.position"


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConfig:
    """Pushing a queue's messages to a URL, by HTTP POST."""

    queue: str
    """Whose messages are pushed."""
    to: str = field(repr=False)
    """Where they are posted: http:// or https://."""
    url: str = field(default_factory=default_queues_url, repr=False)
    """The queue server, with user and password."""
    dead_letter_queue: str = ""
    """Where messages go that were not accepted; empty: the queue's name and `.dead`."""
    concurrency: int = 8
    """How many requests are under way at once, at most."""
    attempt_count_max: int = 8
    """After so many attempts a message is given up."""
    timeout_s: float = 10.0
    """How long an attempt may take."""
    pause_s_first: float = 1.0
    """How long it takes to the second attempt; each further pause is twice as long, less a random part."""
    pause_s_max: float = 300.0
    """The longest pause, also where the server asks for a longer one by Retry-After."""
    secret: str = field(default="", repr=False)
    """What requests are signed with; empty: they are not."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More headers for each request, such as Authorization."""
    follow_redirects: bool = False
    """Whether to repeat a request elsewhere on the same server, where that asks for it (307, 308)."""
    answer_bytes_max: int = 4 * KIB
    """How much of an answer is read; the rest is left."""
    body_bytes_max: int = 16 * MIB
    """A message that is larger is given up at once."""

    def __post_init__(self) -> None:
        parts = _url_parts(self.to)
        require(
            parts.scheme in {"http", "https"} and bool(parts.hostname),
            "messages are pushed to a URL that begins with http:// or https:// and names a host",
        )
        require(1 <= self.concurrency <= 1000, "concurrency must be 1 to 1000")
        require(1 <= self.attempt_count_max <= 100, "attempt_count_max must be 1 to 100")
        require(0 < self.timeout_s <= 600, "timeout_s must be above 0 and at most 600")
        require(
            0 < self.pause_s_first <= self.pause_s_max <= 900,
            "pauses must be above 0, the first at most the longest, and that at most 900 seconds: a server "
            "takes a message back that nobody acknowledges for half an hour",
        )
        if not self.dead_letter_queue:
            object.__setattr__(self, "dead_letter_queue", f"{self.queue}.dead")
        require(bool(self.queue), "which queue is pushed?")
        require(self.dead_letter_queue != self.queue, "dead letters must go to another queue")
        for name in (self.queue, self.dead_letter_queue):
            check_short(name)

    @property
    def shown_to(self) -> str:
        """Where messages are posted, without what may be secret in it."""
        parts = _url_parts(self.to)
        port = f":{parts.port}" if parts.port is not None else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


def check_short(name: str) -> str:
    """Return a name or a routing key, or say that it is too long for AMQP."""
    require(
        len(name.encode()) <= SHORT_STRING_BYTES_MAX,
        f"{name[:60]!r}... is too long: names and routing keys have up to {SHORT_STRING_BYTES_MAX} bytes",
    )
    return name


def _check_bridge_name(name: str) -> None:
    require(
        BRIDGE_NAME.fullmatch(name) is not None,
        f"{name!r} can't be a bridge's name: use 1 to 50 letters, digits, - and _",
    )


def _url_parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return urlsplit("")
    return parts
