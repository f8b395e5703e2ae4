"""How the broker serves clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from headrace.config.address import Address, check_metrics_address
from headrace.config.checks import require
from headrace.config.environment import default_data_dir
from headrace.config.log import LogConfig
from headrace.config.queue import QueueConfig
from headrace.config.security import SASL_MECHANISMS, SaslMechanism, SecurityConfig
from headrace.config.units import DAY_MS, KIB, MIB

Durability = Literal["sync", "os"]

_SHARE_GROUP_RANGES: Final = (
    ("share_record_lock_duration_ms", 1_000, 3_600_000),
    ("share_delivery_count_limit", 2, 10),
    ("share_partition_record_lock_count_max", 100, 10_000),
)
"""What Kafka allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """How the broker serves clients."""

    listen: Address = field(default_factory=lambda: Address("127.0.0.1", 9092))
    """Where the broker listens. Anything but loopback needs authentication: see SecurityConfig."""
    advertised: Address | None = None
    """Where clients are told to connect. None: where they have connected. Set it behind a proxy or NAT."""
    security: SecurityConfig = field(default_factory=SecurityConfig)
    """Who may use the broker, and how clients prove who they are."""
    queues: QueueConfig | None = None
    """Serve work queues as well, to clients of AMQP 0-9-1. None: no queues."""
    metrics_listen: Address | None = None
    """Where metrics and health are served over HTTP. None: nowhere."""
    metrics_public: bool = False
    """Whether metrics may be served beyond loopback: they need no log-in, and name topics and groups."""
    data_dir: Path = field(default_factory=default_data_dir)
    """Where the log is kept: mode 0700, locked by one process."""
    durability: Durability = "sync"
    """`sync`: an acknowledgement with acks=all means on disk. `os`: in the page cache, as Kafka does."""
    log: LogConfig = field(default_factory=LogConfig)
    """How partitions are kept on disk."""
    auto_create_topics: bool = True
    """Whether producing to an unknown topic, or asking for its metadata, creates it."""
    default_partition_count: int = 1
    """How many partitions a topic gets when nobody says."""
    topic_count_max: int = 10_000
    """Creating more topics is refused."""
    partition_count_max: int = 20_000
    """Creating more partitions, over all topics, is refused."""
    connection_count_max: int = 1_000
    """Further connections are closed at once."""
    connection_count_per_address_max: int = 500
    """Further connections from the same address are closed at once."""
    connection_idle_ms_max: int = 600_000
    """A connection on which nothing happens for longer is closed; clients reconnect by themselves."""
    authentication_wait_ms_max: int = 10_000
    """A client that has not proved who it is within this time, TLS included, is let go."""
    frame_bytes_max: int = 100 * MIB
    """A request that says it is larger closes its connection before anything is allocated."""
    in_flight_bytes_max: int = 256 * MIB
    """Requests read but not answered, over all connections; reading stops above it."""
    unsent_bytes_max: int = 256 * MIB
    """Answers in memory that clients have not taken yet, over all connections; fetches wait above it."""
    message_bytes_max: int = 16 * MIB
    """A record batch larger than this is refused with MESSAGE_TOO_LARGE."""
    fetch_bytes_max: int = 64 * MIB
    """The most that one fetch answers with, whatever the client asks for."""
    fetch_session_count_max: int = 1_000
    """How many fetch sessions are kept; above it, those that were idle longest make room."""
    fetch_wait_ms_max: int = 30_000
    """The longest that a fetch waits for data, whatever the client asks for."""
    session_timeout_ms_min: int = 1_000
    """The shortest session timeout that a group member may ask for."""
    session_timeout_ms_max: int = 1_800_000
    """The longest session timeout that a group member may ask for."""
    group_initial_rebalance_delay_ms: int = 0
    """How long an empty group waits for more members before its first assignment."""
    group_member_count_max: int = 1_000
    """Further members are refused (group.max.size, group.consumer.max.size, group.share.max.size)."""
    consumer_session_timeout_ms: int = 45_000
    """When a silent member of a KIP-848 group counts as dead (group.consumer.session.timeout.ms)."""
    consumer_heartbeat_interval_ms: int = 5_000
    """How often members of KIP-848 groups are to be heard of (group.consumer.heartbeat.interval.ms)."""
    share_session_timeout_ms: int = 45_000
    """When a silent member of a share group counts as dead (group.share.session.timeout.ms)."""
    share_heartbeat_interval_ms: int = 5_000
    """How often members of share groups are to be heard of (group.share.heartbeat.interval.ms)."""
    share_record_lock_duration_ms: int = 30_000
    """How long a record belongs to the member that it was given to (group.share.record.lock.duration.ms)."""
    share_delivery_count_limit: int = 5
    """How often a record is given to members of a share group at most (group.share.delivery.count.limit)."""
    share_partition_record_lock_count_max: int = 2_000
    """How many records of a partition a share group has in hand (group.share.partition.max.record.locks)."""
    share_session_count_max: int = 2_000
    """How many share sessions there may be (group.share.max.share.sessions)."""
    offsets_retention_minutes: int = 10_080
    """How long committed offsets outlive the last member of their group (offsets.retention.minutes)."""
    offsets_check_interval_ms: int = 600_000
    """How often offsets and groups that have outlived that are looked for."""
    offset_metadata_bytes_max: int = 4 * KIB
    """A commit with longer metadata is refused with OFFSET_METADATA_TOO_LARGE."""
    transaction_timeout_ms_max: int = 900_000
    """The longest that a producer may ask a transaction to take before the broker aborts it."""
    transactional_id_expiration_ms: int = 7 * DAY_MS
    """A transactional id that no producer has used for so long is forgotten."""

    def __post_init__(self) -> None:
        self._check_addresses()
        self._check_limits()
        self._check_coordinators()

    def _check_addresses(self) -> None:
        require(
            self.listen.is_loopback or self.security.is_authenticated,
            f"refusing to listen on {self.listen} without authentication: anybody could read and delete "
            "everything. Add users (`headrace users add NAME`) and name their file (--users FILE), or ask "
            "for client certificates (--tls-client-ca FILE), or listen on loopback (127.0.0.1)",
        )
        require(
            self._hides_passwords or "PLAIN" not in (self.security.sasl_mechanisms or ()),
            f"refusing to offer PLAIN on {self.listen} without TLS, where it would send passwords in the "
            "clear. Use SCRAM-SHA-512, which never sends them, or add TLS (--tls-certificate, --tls-key)",
        )
        self._check_queues_address()
        check_metrics_address(self.metrics_listen, is_public=self.metrics_public)
        require(
            self.advertised is None or self.advertised.port > 0,
            f"clients can't connect to the advertised address {self.advertised}: give it a port",
        )

    def _check_queues_address(self) -> None:
        if self.queues is None or self.queues.listen.is_loopback:
            return
        require(
            self.security.is_authenticated,
            f"refusing to serve queues on {self.queues.listen} without authentication: anybody could take "
            "everything. Add users (`headrace users add NAME`) and name their file (--users FILE), or "
            "ask for client certificates (--tls-client-ca FILE), or listen on loopback (127.0.0.1)",
        )
        require(
            self.security.tls is not None,
            f"refusing to serve queues on {self.queues.listen} without TLS: clients of AMQP send their "
            "passwords in the clear. Add TLS (--tls-certificate, --tls-key)",
        )

    def _check_limits(self) -> None:
        for name in ("connection_count_max", "connection_count_per_address_max"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        for name in ("connection_idle_ms_max", "authentication_wait_ms_max"):
            require(getattr(self, name) >= 100, f"{name} must be at least 100")
        require(self.durability in {"sync", "os"}, f"durability is {self.durability!r}: use sync or os")
        require(self.unsent_bytes_max >= 1, "unsent_bytes_max must be at least 1")
        require(self.fetch_session_count_max >= 0, "fetch_session_count_max must be at least 0")
        require(self.default_partition_count >= 1, "default_partition_count must be at least 1")
        require(self.message_bytes_max <= self.frame_bytes_max, "message_bytes_max is above frame_bytes_max")
        require(
            self.frame_bytes_max <= self.in_flight_bytes_max, "frame_bytes_max is above in_flight_bytes_max"
        )

    def _check_coordinators(self) -> None:
        require(self.transaction_timeout_ms_max >= 1, "transaction_timeout_ms_max must be at least 1")
        require(self.transactional_id_expiration_ms >= 1, "transactional_id_expiration_ms must be at least 1")
        require(
            self.session_timeout_ms_min <= self.session_timeout_ms_max,
            "session_timeout_ms_min is above session_timeout_ms_max",
        )
        require(self.group_member_count_max >= 1, "group_member_count_max must be at least 1")
        require(
            1 <= self.consumer_heartbeat_interval_ms < self.consumer_session_timeout_ms,
            "consumer_heartbeat_interval_ms must be at least 1 and below consumer_session_timeout_ms",
        )
        self._check_share_groups()
        require(self.offsets_retention_minutes >= 1, "offsets_retention_minutes must be at least 1")
        require(self.offsets_check_interval_ms >= 1, "offsets_check_interval_ms must be at least 1")
        require(self.offset_metadata_bytes_max >= 0, "offset_metadata_bytes_max must be at least 0")

    def _check_share_groups(self) -> None:
        require(
            1 <= self.share_heartbeat_interval_ms < self.share_session_timeout_ms,
            "share_heartbeat_interval_ms must be at least 1 and below share_session_timeout_ms",
        )
        for name, least, most in _SHARE_GROUP_RANGES:
            value = getattr(self, name)
            require(least <= value <= most, f"{name} is {value}: it must be from {least} to {most}")
        require(self.share_session_count_max >= 1, "share_session_count_max must be at least 1")

    @property
    def sasl_mechanisms(self) -> tuple[SaslMechanism, ...]:
        """How clients may log in; none where they need not."""
        if self.security.users_file is None:
            return ()
        if self.security.sasl_mechanisms is not None:
            return self.security.sasl_mechanisms
        return tuple(each for each in SASL_MECHANISMS if each != "PLAIN" or self._hides_passwords)

    @property
    def _hides_passwords(self) -> bool:
        """Whether nobody on the way can read what a client sends."""
        return self.security.tls is not None or self.listen.is_loopback
