"""Settings of a group: Kafka's names, Kafka's rules, and a page that lists them all."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import BrokerConfig
from headrace.errors import ConfigError
from headrace.kafka.groups.offset_reset import reset_duration_ms
from headrace.kafka.groups.setting_definitions import GROUP_SETTINGS
from headrace.kafka.groups.settings import GroupSettings, checked_texts, limits_of

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "group-settings.md"
DEFAULTS = GroupSettings()
RESET = "share.auto.offset.reset"

KAFKA_TAKES = [
    *(("share.session.timeout.ms", " 50000 "), ("share.session.timeout.ms", "+60000")),
    *(("share.heartbeat.interval.ms", "15000"), ("share.record.lock.duration.ms", "15000")),
    *(("share.delivery.count.limit", "2"), ("share.delivery.count.limit", "10")),
    *(("share.partition.max.record.locks", "100"), ("share.partition.max.record.locks", "4000")),
    *((RESET, "earliest"), (RESET, " latest "), (RESET, "by_duration:PT1H"), (RESET, "by_duration:pt1h")),
    *((RESET, "by_duration:P1DT2H3M4.5S"), (RESET, "by_duration:PT1,5S"), (RESET, "by_duration:PT0S")),
    *((RESET, "by_duration:-PT-1H"), (RESET, "by_duration:PT1.S"), (RESET, "by_duration:PT1H-1M")),
    *((RESET, f"by_duration:PT{2**63 - 1}S"), (RESET, "by_duration:P106751991167300DT15H30M7S")),
    *(("share.isolation.level", " read_committed"), ("share.renew.acknowledge.enable", "TRUE")),
    *(("share.assignment.interval.ms", "0"), ("consumer.assignment.interval.ms", "15000")),
    *(("streams.num.standby.replicas", "2"), ("streams.initial.rebalance.delay.ms", "2147483647")),
]
KAFKA_REFUSES = [
    *(("nope", "1"), ("share.assignor.offload.enable", "true"), ("group.share.session.timeout.ms", "50000")),
    *(
        ("share.session.timeout.ms", "abc"),
        ("share.session.timeout.ms", ""),
        ("share.session.timeout.ms", "0"),
    ),
    *(("share.session.timeout.ms", "44999"), ("share.session.timeout.ms", "60001")),
    *(("share.session.timeout.ms", "99999999999"), ("share.session.timeout.ms", "50_000")),
    *(("share.heartbeat.interval.ms", "4999"), ("share.heartbeat.interval.ms", "15001")),
    *(("consumer.session.timeout.ms", "44999"), ("consumer.heartbeat.interval.ms", "15001")),
    *(("share.record.lock.duration.ms", "14999"), ("share.record.lock.duration.ms", "60001")),
    *(("share.delivery.count.limit", "1"), ("share.delivery.count.limit", "11")),
    *(("share.partition.max.record.locks", "99"), ("share.partition.max.record.locks", "4001")),
    *((RESET, ""), (RESET, "none"), (RESET, "Earliest"), (RESET, "by_duration"), (RESET, "by_duration:")),
    *(
        (RESET, "by_duration:1h"),
        (RESET, "by_duration:P1Y"),
        (RESET, "by_duration:P"),
        (RESET, "by_duration:PT"),
    ),
    *((RESET, "by_duration:P1DT"), (RESET, "by_duration: PT1H"), (RESET, "by_duration:PT\u0663S")),
    *((RESET, "by_duration:-PT1H"), (RESET, "by_duration:PT-0.5S"), (RESET, "by_duration:-PT0.000000001S")),
    *((RESET, "by_duration:PT1M1H"), (RESET, "by_duration:PT1.0000000001S"), (RESET, "by_duration:PT.5S")),
    *((RESET, "by_duration:P106751991167300DT15H30M8S"), (RESET, "by_duration:PT1H\n.")),
    *(("share.isolation.level", "READ_COMMITTED"), ("share.renew.acknowledge.enable", "yes")),
    *(("share.assignment.interval.ms", "-1"), ("streams.assignment.interval.ms", "15001")),
    *(("streams.num.standby.replicas", "3"), ("streams.initial.rebalance.delay.ms", "-1")),
]


@pytest.mark.parametrize(("name", "text"), KAFKA_TAKES)
def test_what_kafka_takes_is_taken_and_kept_as_kafka_tells_it(name: str, text: str) -> None:
    kept = checked_texts({name: text}, DEFAULTS)
    assert kept == {name: text.strip().removeprefix("+").replace("TRUE", "true")}
    assert GroupSettings.parse(kept, DEFAULTS).value_of(name) == kept[name]


@pytest.mark.parametrize(("name", "text"), KAFKA_REFUSES)
def test_what_kafka_refuses_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        checked_texts({name: text}, DEFAULTS)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            {RESET: "none"},
            r"'none' for configuration share\.auto\.offset\.reset: use earliest, latest or by_dur",
        ),
        (
            {"share.session.timeout.ms": "5"},
            r"is 5: .* group\.share\.min\.session\.timeout\.ms, which is 45000",
        ),
        (
            {"streams.num.standby.replicas": "3"},
            r"is 3: .* group\.streams\.max\.standby\.replicas, which is 2",
        ),
        ({"nope": "1", RESET: "none"}, r"Unknown group config name: nope\. Known are: consumer\.assignment"),
    ],
)
def test_a_refusal_says_what_is_allowed(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        checked_texts(texts, DEFAULTS)


@pytest.mark.parametrize("protocol", ["consumer", "share", "streams"])
def test_a_session_is_longer_than_the_time_between_heartbeats(protocol: str) -> None:
    defaults = GroupSettings(
        consumer_heartbeat_interval_ms=50_000,
        share_heartbeat_interval_ms=50_000,
        streams_heartbeat_interval_ms=50_000,
        consumer_session_timeout_ms=55_000,
        share_session_timeout_ms=55_000,
        streams_session_timeout_ms=55_000,
    )
    name = f"{protocol}.session.timeout.ms"
    assert checked_texts({name: "50001"}, defaults) == {name: "50001"}
    with pytest.raises(
        ConfigError, match=rf"greater than {protocol}\.heartbeat\.interval\.ms, which is 50000"
    ):
        checked_texts({name: "50000"}, defaults)


def test_what_nobody_set_comes_from_the_configuration_of_the_broker() -> None:
    config = BrokerConfig(
        consumer_session_timeout_ms=3_001,
        consumer_heartbeat_interval_ms=201,
        share_session_timeout_ms=3_002,
        share_heartbeat_interval_ms=202,
        share_record_lock_duration_ms=1_003,
        share_delivery_count_limit=4,
        share_partition_record_lock_count_max=105,
    )
    assert GroupSettings.of_broker(config) == GroupSettings(
        consumer_session_timeout_ms=3_001,
        consumer_heartbeat_interval_ms=201,
        share_session_timeout_ms=3_002,
        share_heartbeat_interval_ms=202,
        share_record_lock_duration_ms=1_003,
        share_delivery_count_limit=4,
        share_partition_max_record_locks=105,
    )
    assert GroupSettings.of_broker(BrokerConfig()) == DEFAULTS


def test_a_group_may_ask_for_what_its_broker_has_by_default_and_for_no_less() -> None:
    short = GroupSettings(share_record_lock_duration_ms=2_000, share_partition_max_record_locks=9_000)
    lock, locks = (
        GROUP_SETTINGS["share.record.lock.duration.ms"],
        GROUP_SETTINGS["share.partition.max.record.locks"],
    )
    assert (limits_of(lock, short), limits_of(locks, short)) == ((2_000, 60_000), (100, 9_000))
    assert checked_texts({lock.name: "2000", locks.name: "9000"}, short)
    for texts in ({lock.name: "1999"}, {locks.name: "9001"}):
        with pytest.raises(ConfigError):
            checked_texts(texts, short)


def test_what_lies_beyond_the_limits_after_a_restart_counts_as_the_limit() -> None:
    texts = {
        "share.record.lock.duration.ms": "2000",
        "share.partition.max.record.locks": "9000",
        RESET: "earliest",
    }
    held = GroupSettings.parse(texts, DEFAULTS)
    assert (held.share_record_lock_duration_ms, held.share_partition_max_record_locks) == (15_000, 4_000)
    assert held.share_auto_offset_reset == "earliest"


def test_a_setting_of_a_version_to_come_counts_for_nothing() -> None:
    assert GroupSettings.parse({"share.no.such": "1"}, DEFAULTS) == DEFAULTS


def test_only_a_reset_by_duration_has_one() -> None:
    found = {
        text: GroupSettings(share_auto_offset_reset=text).share_reset_duration_ms
        for text in ("latest", "earliest", "by_duration:P1DT1.5S", "by_duration:PT0S")
    }
    assert found == {
        "latest": None,
        "earliest": None,
        "by_duration:P1DT1.5S": 86_401_500,
        "by_duration:PT0S": 0,
    }


@given(
    days=st.integers(0, 10_000),
    hours=st.integers(-200_000, 200_000),
    minutes=st.integers(0, 10_000_000),
    seconds=st.integers(0, 10_000_000),
    milliseconds=st.integers(0, 999),
)
def test_a_duration_is_the_sum_of_its_parts(
    days: int, hours: int, minutes: int, seconds: int, milliseconds: int
) -> None:
    text = f"by_duration:P{days}DT{hours}H{minutes}M{seconds}.{milliseconds:03}S"
    expected = timedelta(
        days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
    ) // timedelta(milliseconds=1)
    if expected < 0:
        with pytest.raises(ValueError, match="a duration from nothing"):
            reset_duration_ms(text)
    else:
        assert reset_duration_ms(text) == expected


def test_every_field_is_a_setting_and_every_setting_a_field() -> None:
    assert [field.name for field in fields(GroupSettings)] == [each.field for each in GROUP_SETTINGS.values()]
    assert list(GROUP_SETTINGS) == sorted(GROUP_SETTINGS)


def test_the_page_tells_of_every_setting_its_default_and_what_it_does() -> None:
    page = PAGE.read_text()
    for name, setting in GROUP_SETTINGS.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert f"| `{DEFAULTS.value_of(name)}` |" in row
        assert row.endswith(f"| {setting.documentation} |")
        assert setting.config_field is None or f"| `{setting.config_field}` |" in row
        least, most = limits_of(setting, DEFAULTS)
        assert most is None or f"{least or 0} to {most}" in row
