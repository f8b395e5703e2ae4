"""Settings: safe defaults, refused values, and a page that lists them all."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import (
    MIB,
    Address,
    BrokerConfig,
    CaptureConfig,
    ConsoleConfig,
    LogConfig,
    PostgresConfig,
    PushConfig,
    QueueConfig,
    RedisConfig,
    SecurityConfig,
    StreamsConfig,
    TlsConfig,
    ToQueueConfig,
    ToTopicConfig,
    check_topic_name,
    environment,
)
from headrace.errors import ConfigError

SETTINGS_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
CAPABILITIES = [
    LogConfig,
    TlsConfig,
    SecurityConfig,
    QueueConfig,
    BrokerConfig,
    ConsoleConfig,
    StreamsConfig,
    PostgresConfig,
    RedisConfig,
    CaptureConfig,
    ToTopicConfig,
    ToQueueConfig,
    PushConfig,
]


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_setting_is_documented(capability: type) -> None:
    page = SETTINGS_PAGE.read_text()
    section = page.partition(f"## {capability.__name__}\n")[2].partition("\n## ")[0]
    missing = [f.name for f in dataclasses.fields(capability) if f"| `{f.name}` |" not in section]
    assert missing == []


def test_every_environment_variable_is_documented() -> None:
    page = SETTINGS_PAGE.read_text()
    for name in re.findall(r'os\.environ\.get\("(\w+)"', Path(environment.__file__).read_text()):
        assert f"`{name}`" in page or name == "XDG_CACHE_HOME"


def test_only_one_module_reads_the_environment() -> None:
    package = Path(environment.__file__).parents[1]
    readers = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "os.environ.get" in path.read_text() or "os.getenv" in path.read_text()
    ]
    assert readers == ["config/environment.py"]


@given(st.sampled_from(["127.0.0.1", "localhost", "::1", "kafka.internal"]), st.integers(0, 65535))
def test_an_address_reads_back_what_it_prints(host: str, port: int) -> None:
    assert Address.parse(str(Address(host, port))) == Address(host, port)


@pytest.mark.parametrize("text", ["", "9092", "localhost", "localhost:", "localhost:x", ":9092", "h:70000"])
def test_a_bad_address_is_refused_with_an_example_or_a_range(text: str) -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:9092|0 to 65535"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *(("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("localhost", True)),
        *(("0.0.0.0", False), ("10.0.0.1", False), ("example.org", False)),  # noqa: S104
    ],
)
def test_loopback_is_what_only_this_machine_can_reach(host: str, expected: bool) -> None:
    assert Address(host, 1).is_loopback is expected


@pytest.mark.parametrize("capability", [BrokerConfig, ConsoleConfig])
def test_servers_without_authentication_refuse_to_listen_beyond_loopback(capability: type) -> None:
    with pytest.raises(ConfigError, match="loopback"):
        capability(listen=Address("0.0.0.0", 9092))  # noqa: S104


EVERYWHERE = Address("0.0.0.0", 9092)  # noqa: S104  # that is what the tests below are about
TLS = TlsConfig(certificate=Path("certificate.pem"), key=Path("key.pem"))


def test_a_broker_with_authentication_may_listen_beyond_loopback() -> None:
    for security in (
        SecurityConfig(users_file=Path("users.json")),
        SecurityConfig(tls=dataclasses.replace(TLS, client_ca=Path("ca.pem"))),
    ):
        assert BrokerConfig(listen=EVERYWHERE, security=security).security.is_authenticated


def test_encryption_alone_is_no_authentication() -> None:
    with pytest.raises(ConfigError, match=r"without authentication: .*--users FILE"):
        BrokerConfig(listen=EVERYWHERE, security=SecurityConfig(tls=TLS))


@pytest.mark.parametrize(
    ("listen", "tls", "offered"),
    [
        (Address("127.0.0.1", 9092), None, True),
        (EVERYWHERE, TLS, True),
        (EVERYWHERE, None, False),
    ],
)
def test_plain_is_offered_where_nobody_on_the_way_can_read_the_password(
    listen: Address, tls: TlsConfig | None, offered: bool
) -> None:
    security = SecurityConfig(users_file=Path("users.json"), tls=tls)
    assert ("PLAIN" in BrokerConfig(listen=listen, security=security).sasl_mechanisms) is offered
    asked = dataclasses.replace(security, sasl_mechanisms=("PLAIN",))
    if offered:
        assert BrokerConfig(listen=listen, security=asked).sasl_mechanisms == ("PLAIN",)
    else:
        with pytest.raises(ConfigError, match=r"PLAIN .* in the clear"):
            BrokerConfig(listen=listen, security=asked)


def test_without_users_nobody_has_to_log_in() -> None:
    assert BrokerConfig().sasl_mechanisms == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl_mechanisms": ()},
        {"sasl_mechanisms": ("GSSAPI",), "users_file": Path("users.json")},
        {"sasl_mechanisms": ("PLAIN",)},
        {"session_lifetime_ms_max": -1},
    ],
)
def test_security_settings_that_can_not_work_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        SecurityConfig(**settings)  # type: ignore[arg-type] # the point of the test


def test_a_password_is_not_shown_with_the_settings() -> None:
    assert "hunter2" not in repr(dataclasses.replace(TLS, key_password="hunter2"))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "../etc", "ä", "x" * 250, "a\n"])
def test_a_topic_name_that_kafka_refuses_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a topic name"):
        check_topic_name(name)


@pytest.mark.parametrize(
    "settings",
    [
        {"durability": "never"},
        {"default_partition_count": 0},
        {"message_bytes_max": 200 * MIB},
        {"frame_bytes_max": 300 * MIB},
        {"session_timeout_ms_min": 10, "session_timeout_ms_max": 9},
        {"connection_count_per_address_max": 0},
        {"connection_idle_ms_max": 0},
        {"authentication_wait_ms_max": 0},
        {"advertised": Address("kafka.example.org", 0)},
        {"share_session_timeout_ms": 5_000, "share_heartbeat_interval_ms": 5_000},
        {"share_heartbeat_interval_ms": 0},
        {"share_record_lock_duration_ms": 999},
        {"share_record_lock_duration_ms": 3_600_001},
        {"share_delivery_count_limit": 1},
        {"share_delivery_count_limit": 11},
        {"share_partition_record_lock_count_max": 99},
        {"share_partition_record_lock_count_max": 10_001},
        {"share_session_count_max": 0},
    ],
)
def test_broker_settings_that_contradict_each_other_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        BrokerConfig(**settings)  # type: ignore[arg-type] # the point of the test


def test_the_data_directory_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_DATA", "elsewhere")
    assert BrokerConfig().data_dir == Path("elsewhere")
    assert StreamsConfig().checkpoints_dir == Path("elsewhere/checkpoints")


@pytest.mark.parametrize("token", ["", "short", "x" * 201, "a" * 20 + ";", "a" * 20 + "\n", "ä" * 20])
def test_a_token_that_can_be_guessed_or_breaks_an_address_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="the token is too short or has characters"):
        ConsoleConfig(token=token)


def test_the_token_of_the_console_is_that_of_the_environment_and_is_not_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADRACE_CONSOLE_TOKEN", "t" * 30)
    assert ConsoleConfig().token == "t" * 30
    assert "ttt" not in repr(ConsoleConfig())
    monkeypatch.setenv("HEADRACE_CONSOLE_TOKEN", "")
    assert ConsoleConfig().token is None
