"""Settings, one frozen value per capability. This is the only module that reads the environment.

Every field has a safe default and is checked when the value is made, so that a wrong setting stops the
program before it has opened a file or a socket. `docs/reference/settings.md` lists every field; a test
keeps that page complete.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Literal

from headrace.errors import ConfigError

Durability = Literal["sync", "os"]
Guarantee = Literal["exactly-once", "at-least-once", "at-most-once"]
GUARANTEES: Final[tuple[Guarantee, ...]] = ("exactly-once", "at-least-once", "at-most-once")
SaslMechanism = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]
SASL_MECHANISMS: Final[tuple[SaslMechanism, ...]] = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
HOUR_MS: Final = 3600 * 1000
DAY_MS: Final = 24 * HOUR_MS
LONG_MAX: Final = 2**63 - 1
"""Kafka's word for "without limit", where -1 is not."""
COMPRESSION_TYPES: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")

TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""What Kafka allows in a topic's name. `.` and `..` match and are refused on their own."""


def default_bootstrap() -> str:
    """The broker that clients and commands talk to when none is named (HEADRACE_BOOTSTRAP)."""
    return os.environ.get("HEADRACE_BOOTSTRAP", "127.0.0.1:9092")


def default_client_config() -> Path | None:
    """A file of settings for the Kafka clients of the commands (HEADRACE_CLIENT_CONFIG)."""
    explicit = os.environ.get("HEADRACE_CLIENT_CONFIG")
    return Path(explicit) if explicit else None


def default_data_dir() -> Path:
    """Where the broker and the pipelines keep their data (HEADRACE_DATA)."""
    return Path(os.environ.get("HEADRACE_DATA", ".headrace"))


def default_cache_dir() -> Path:
    """Where downloaded jars are kept between runs (HEADRACE_CACHE)."""
    if explicit := os.environ.get("HEADRACE_CACHE"):
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "headrace"


def default_jars_dir() -> Path | None:
    """A directory of connector jars to use instead of downloading them (HEADRACE_JARS)."""
    explicit = os.environ.get("HEADRACE_JARS")
    return Path(explicit) if explicit else None


def default_tls_key_password() -> str | None:
    """The password of an encrypted private key (HEADRACE_TLS_KEY_PASSWORD); others could see an option."""
    return os.environ.get("HEADRACE_TLS_KEY_PASSWORD")


def new_user_password() -> str | None:
    """The password of a user that is being added (HEADRACE_PASSWORD), for programs that can't be prompted."""
    return os.environ.get("HEADRACE_PASSWORD")


FAILPOINTS_VARIABLE: Final = "HEADRACE_FAILPOINTS"


def failpoints_to_arm() -> str:
    """Where a test wants the broker to die, fail or wait (HEADRACE_FAILPOINTS); see failpoints.py."""
    return os.environ.get(FAILPOINTS_VARIABLE, "")


def java_home() -> Path | None:
    """JAVA_HOME, where it is set."""
    explicit = os.environ.get("JAVA_HOME")
    return Path(explicit) if explicit else None


def check_topic_name(name: str) -> str:
    """Return the name, or say what is wrong with it."""
    if not TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        raise ConfigError(
            f"{name!r} is not a topic name: use 1 to 249 of the characters a-z A-Z 0-9 . _ - (not . or ..)"
        )
    return name


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, or where a client finds it."""

    host: str
    port: int

    def __post_init__(self) -> None:
        _require(bool(self.host), "an address needs a host, such as 127.0.0.1:9092")
        _require(0 <= self.port <= 65535, f"{self.port} is not a port: use 0 to 65535 (0 picks a free one)")

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `host:port`, with an IPv6 host in brackets: `[::1]:9092`."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal():
            raise ConfigError(f"{text!r} is not an address: write host:port, such as 127.0.0.1:9092")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """How partitions are kept on disk."""

    segment_bytes_max: int = 1 * GIB
    """A segment file that would grow past this is closed and a new one begun (log.segment.bytes)."""
    segment_ms: int = 7 * DAY_MS
    """A segment whose records would span more time than this is closed (log.roll.ms)."""
    segment_index_bytes_max: int = 10 * MIB
    """A segment whose offset index would grow past this is closed (log.index.size.max.bytes)."""
    index_interval_bytes: int = 4 * KIB
    """How many bytes of batches lie between two entries of a segment's sparse indexes."""
    cleanup_policy: tuple[str, ...] = ("delete",)
    """`delete`, `compact`, both or neither: what becomes of old records (log.cleanup.policy)."""
    retention_ms: int = -1
    """How old records get before they are deleted; -1 for ever, where Kafka has 7 days."""
    retention_bytes: int = -1
    """How large a partition gets before its oldest segments are deleted; -1 without limit."""
    min_cleanable_dirty_ratio: float = 0.5
    """The part of a compacted partition that must be new before it is compacted again."""
    min_compaction_lag_ms: int = 0
    """How long a record stays at least before compaction may remove it."""
    max_compaction_lag_ms: int = LONG_MAX
    """After how long a record is compacted at the latest, whatever the dirty ratio."""
    delete_retention_ms: int = 1 * DAY_MS
    """How long compaction keeps tombstones (log.cleaner.delete.retention.ms)."""
    cleaner_interval_ms: int = 15_000
    """How often partitions are looked at for what is to be deleted or compacted."""
    compaction_memory_bytes: int = 128 * MIB
    """What compaction may use to remember keys, 200 bytes each; with more keys, it takes several rounds."""
    compression_type: str = "producer"
    """`producer`: batches stay as they come. Otherwise the codec into which they are compressed anew."""
    message_timestamp_type: str = "CreateTime"
    """`CreateTime`: the producers' timestamps. `LogAppendTime`: the broker's."""
    message_timestamp_before_max_ms: int = LONG_MAX
    """A record with an older timestamp, by the broker's clock, is refused."""
    message_timestamp_after_max_ms: int = 1 * HOUR_MS
    """A record whose timestamp is further ahead of the broker's clock is refused."""
    producer_id_expiration_ms: int = 1 * DAY_MS
    """A producer that has written nothing to a partition for so long is forgotten there."""
    checkpoint_bytes: int = 32 * MIB
    """After so many bytes appended to a partition, what is needed to open it quickly is written down."""

    def __post_init__(self) -> None:
        _require(self.segment_bytes_max >= KIB, "segment_bytes_max must be at least 1024")
        _require(self.segment_bytes_max < 2 * GIB, "segment_bytes_max must stay below 2 GiB, as in Kafka")
        _require(self.index_interval_bytes >= 1, "index_interval_bytes must be at least 1")
        _require(self.segment_ms >= 1, "segment_ms must be at least 1")
        _require(self.segment_index_bytes_max >= 4, "segment_index_bytes_max must be at least 4")
        _require(
            {"delete", "compact"}.issuperset(self.cleanup_policy),
            f"cleanup_policy is {self.cleanup_policy!r}: use ('delete',), ('compact',) or both",
        )
        _require(self.retention_ms >= -1, "retention_ms must be at least 0, or -1 for ever")
        _require(0 <= self.min_cleanable_dirty_ratio <= 1, "min_cleanable_dirty_ratio must be from 0 to 1")
        _require(
            0 <= self.min_compaction_lag_ms <= self.max_compaction_lag_ms,
            "min_compaction_lag_ms must be from 0 to max_compaction_lag_ms",
        )
        _require(self.delete_retention_ms >= 0, "delete_retention_ms must be at least 0")
        _require(self.cleaner_interval_ms >= 1, "cleaner_interval_ms must be at least 1")
        _require(self.compaction_memory_bytes >= 1 * MIB, "compaction_memory_bytes must be at least 1 MiB")
        _require(
            self.compression_type in COMPRESSION_TYPES,
            f"compression_type is {self.compression_type!r}: use one of {', '.join(COMPRESSION_TYPES)}",
        )
        _require(
            self.message_timestamp_type in {"CreateTime", "LogAppendTime"},
            f"message_timestamp_type is {self.message_timestamp_type!r}: use CreateTime or LogAppendTime",
        )
        _require(
            min(self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms) >= 0,
            "message_timestamp_before_max_ms and message_timestamp_after_max_ms must be at least 0",
        )
        _require(self.producer_id_expiration_ms >= 1, "producer_id_expiration_ms must be at least 1")
        _require(self.checkpoint_bytes >= KIB, "checkpoint_bytes must be at least 1024")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The broker's certificate, and whose certificates clients must show."""

    certificate: Path
    """A PEM file with the broker's certificate, and after it those up to a root that clients trust."""
    key: Path
    """A PEM file with the certificate's private key. Others than its owner must not be able to read it."""
    key_password: str | None = field(default_factory=default_tls_key_password, repr=False)
    """The password of the key, where it is encrypted."""
    client_ca: Path | None = None
    """A PEM file of authorities. With it, clients must show a certificate that one of them has signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """Who may use the broker, and how clients prove who they are."""

    users_file: Path | None = None
    """The users and what proves their passwords (`headrace users`). With it, clients must log in by SASL."""
    sasl_mechanisms: tuple[SaslMechanism, ...] | None = None
    """How clients may log in. None: by SCRAM, and by PLAIN where nobody on the way can read the password."""
    session_lifetime_ms_max: int = 0
    """After this time a client must log in anew, on the same connection (KIP-368). 0: never."""
    tls: TlsConfig | None = None
    """Encrypt connections. None: plain text."""

    def __post_init__(self) -> None:
        chosen = self.sasl_mechanisms
        _require(chosen is None or bool(chosen), "sasl_mechanisms is empty: leave it out, or name one")
        for mechanism in chosen or ():
            _require(
                mechanism in SASL_MECHANISMS,
                f"there is no SASL mechanism {mechanism!r} here: use {', '.join(SASL_MECHANISMS)}",
            )
        _require(
            chosen is None or self.users_file is not None,
            "sasl_mechanisms needs a users_file to check with",
        )
        _require(self.session_lifetime_ms_max >= 0, "session_lifetime_ms_max must be at least 0")

    @property
    def is_authenticated(self) -> bool:
        """Whether clients have to prove who they are."""
        return self.users_file is not None or (self.tls is not None and self.tls.client_ca is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """How the broker serves clients."""

    listen: Address = field(default_factory=lambda: Address("127.0.0.1", 9092))
    """Where the broker listens. Anything but loopback needs authentication: see SecurityConfig."""
    advertised: Address | None = None
    """Where clients are told to connect. None: where they have connected. Set it behind a proxy or NAT."""
    security: SecurityConfig = field(default_factory=SecurityConfig)
    """Who may use the broker, and how clients prove who they are."""
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
    """Further members of a group are refused (group.max.size, group.consumer.max.size)."""
    consumer_session_timeout_ms: int = 45_000
    """When a silent member of a KIP-848 group counts as dead (group.consumer.session.timeout.ms)."""
    consumer_heartbeat_interval_ms: int = 5_000
    """How often members of KIP-848 groups are to be heard of (group.consumer.heartbeat.interval.ms)."""
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
        _require(
            self.listen.is_loopback or self.security.is_authenticated,
            f"refusing to listen on {self.listen} without authentication: anybody could read and delete "
            "everything. Add users (`headrace users add NAME`) and name their file (--users FILE), or ask "
            "for client certificates (--tls-client-ca FILE), or listen on loopback (127.0.0.1)",
        )
        _require(
            self._hides_passwords or "PLAIN" not in (self.security.sasl_mechanisms or ()),
            f"refusing to offer PLAIN on {self.listen} without TLS, where it would send passwords in the "
            "clear. Use SCRAM-SHA-512, which never sends them, or add TLS (--tls-certificate, --tls-key)",
        )
        check_metrics_address(self.metrics_listen, is_public=self.metrics_public)
        _require(
            self.advertised is None or self.advertised.port > 0,
            f"clients can't connect to the advertised address {self.advertised}: give it a port",
        )
        for name in ("connection_count_max", "connection_count_per_address_max"):
            _require(getattr(self, name) >= 1, f"{name} must be at least 1")
        for name in ("connection_idle_ms_max", "authentication_wait_ms_max"):
            _require(getattr(self, name) >= 100, f"{name} must be at least 100")
        _require(self.durability in {"sync", "os"}, f"durability is {self.durability!r}: use sync or os")
        _require(self.fetch_session_count_max >= 0, "fetch_session_count_max must be at least 0")
        _require(self.default_partition_count >= 1, "default_partition_count must be at least 1")
        _require(self.message_bytes_max <= self.frame_bytes_max, "message_bytes_max is above frame_bytes_max")
        _require(
            self.frame_bytes_max <= self.in_flight_bytes_max, "frame_bytes_max is above in_flight_bytes_max"
        )
        _require(self.transaction_timeout_ms_max >= 1, "transaction_timeout_ms_max must be at least 1")
        _require(
            self.transactional_id_expiration_ms >= 1, "transactional_id_expiration_ms must be at least 1"
        )
        _require(
            self.session_timeout_ms_min <= self.session_timeout_ms_max,
            "session_timeout_ms_min is above session_timeout_ms_max",
        )
        _require(self.group_member_count_max >= 1, "group_member_count_max must be at least 1")
        _require(
            1 <= self.consumer_heartbeat_interval_ms < self.consumer_session_timeout_ms,
            "consumer_heartbeat_interval_ms must be at least 1 and below consumer_session_timeout_ms",
        )
        _require(self.offsets_retention_minutes >= 1, "offsets_retention_minutes must be at least 1")
        _require(self.offsets_check_interval_ms >= 1, "offsets_check_interval_ms must be at least 1")
        _require(self.offset_metadata_bytes_max >= 0, "offset_metadata_bytes_max must be at least 0")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """What the web page shows, and where it is served."""

    listen: Address = field(default_factory=lambda: Address("127.0.0.1", 8500))
    """Where the page is served. Loopback only: there is no authentication yet."""
    bootstrap: str = field(default_factory=default_bootstrap)
    """The broker whose topics are shown."""
    alerts_topic: str = "fraud-alerts"
    """The topic whose records appear on the page as they come."""
    input_topic: str = "transactions"
    """The topic whose rate is shown beside the alerts'."""
    recent_alert_count_max: int = 200
    """How many alerts a page that has just opened is given."""
    viewer_count_max: int = 100
    """Further pages are refused with 503."""
    viewer_backlog_max: int = 1_000
    """A page that falls further behind is cut off; the browser reconnects by itself."""

    def __post_init__(self) -> None:
        _require(
            self.listen.is_loopback,
            f"refusing to listen on {self.listen}: the page has no authentication yet, so it is only "
            "served on loopback; use 127.0.0.1",
        )
        check_topic_name(self.alerts_topic)
        check_topic_name(self.input_topic)
        _require(bool(self.bootstrap), "bootstrap is empty: name a broker, such as 127.0.0.1:9092")
        _require(self.recent_alert_count_max >= 1, "recent_alert_count_max must be at least 1")
        _require(self.viewer_count_max >= 1, "viewer_count_max must be at least 1")
        _require(self.viewer_backlog_max >= 1, "viewer_backlog_max must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsConfig:
    """How pipelines run."""

    bootstrap: str = field(default_factory=default_bootstrap)
    """The broker, or the Kafka cluster, that pipelines read and write."""
    master: str | None = None
    """Spark's master. None runs Spark in this process with as many task slots as the pipelines need."""
    data_dir: Path = field(default_factory=default_data_dir)
    """Checkpoints are kept below it."""
    cache_dir: Path = field(default_factory=default_cache_dir)
    """Connector jars are kept below it."""
    jars_dir: Path | None = field(default_factory=default_jars_dir)
    """A directory of connector jars to use instead of downloading them."""
    shuffle_partition_count: int = 2
    """How many partitions keyed state has. Fixed by a pipeline's first checkpoint."""
    realtime_batch_s: int = 300
    """How long a batch of real-time mode lasts: state is checkpointed, and latency dips, once a batch."""
    guarantee: Guarantee | None = None
    """How often a row is written after a crash. None: exactly-once; in real-time mode at-least-once."""
    transaction_s_max: int = 900
    """How long writing a batch may take, exactly-once; a broker allows no more unless it is told to."""
    max_records_per_batch: int = 1_000_000
    """The most that one micro-batch reads of a topic that does not say so itself."""
    client_options: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    """How to log in to a secured broker, in librdkafka's words, for all Kafka clients of pipelines."""

    def __post_init__(self) -> None:
        _require(
            self.guarantee is None or self.guarantee in GUARANTEES,
            f"guarantee is {self.guarantee!r}: use one of {', '.join(GUARANTEES)}",
        )
        _require(self.transaction_s_max >= 1, "transaction_s_max must be at least 1")
        _require(self.max_records_per_batch >= 1, "max_records_per_batch must be at least 1")
        _require(bool(self.bootstrap), "bootstrap is empty: name a broker, such as 127.0.0.1:9092")
        _require(self.shuffle_partition_count >= 1, "shuffle_partition_count must be at least 1")
        _require(self.realtime_batch_s >= 5, "realtime_batch_s must be at least 5, Spark's own minimum")

    def guarantee_of(self, *, realtime: bool) -> Guarantee:
        """What is promised in that mode."""
        _require(
            not realtime or self.guarantee in {None, "at-least-once"},
            f"real-time mode can't write {self.guarantee}: run without --realtime, in micro-batches, or with "
            "--guarantee at-least-once",
        )
        return self.guarantee or ("at-least-once" if realtime else "exactly-once")

    @property
    def checkpoints_dir(self) -> Path:
        """One directory per pipeline lies below it."""
        return self.data_dir / "checkpoints"


def check_metrics_address(listen: Address | None, *, is_public: bool) -> None:
    """Refuse to serve metrics, which need no log-in, where others could read them, unless that is meant."""
    _require(
        listen is None or listen.is_loopback or is_public,
        f"refusing to serve metrics on {listen}, where everybody could read the names of topics, groups and "
        "pipelines. Use 127.0.0.1, or allow it (--metrics-public) on a network that you trust",
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)
