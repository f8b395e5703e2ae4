"""Settings of a topic: Kafka's names, Kafka's rules, and a page that lists them all."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from headrace.config import LONG_MAX, LogConfig
from headrace.errors import ConfigError
from headrace.log.topic_settings import TOPIC_SETTINGS, TopicSettings

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "topic-settings.md"
DEFAULTS = TopicSettings()

KAFKA_TAKES = [
    *(
        ("cleanup.policy", ""),
        ("cleanup.policy", "compact,compact"),
        ("cleanup.policy", " compact , delete "),
    ),
    *(("retention.bytes", "-5"), ("retention.ms", " 5 "), ("retention.ms", "+5"), ("retention.ms", "-1")),
    *(("preallocate", "TRUE"), ("min.cleanable.dirty.ratio", "5e-1"), ("compression.gzip.level", "-1")),
    *(("internal.segment.bytes", "1000"), ("min.insync.replicas", "5"), ("max.message.bytes", "0")),
    *(("leader.replication.throttled.replicas", "*"), ("leader.replication.throttled.replicas", "0:1,1:1")),
    *(("local.retention.ms", "5"), ("remote.log.copy.disable", "true"), ("index.interval.bytes", "0")),
]
KAFKA_REFUSES = [
    *(("cleanup.policy", "COMPACT"), ("cleanup.policy", "delete,compact,x"), ("cleanup.policy", "compact,")),
    *(("retention.ms", "-2"), ("retention.ms", "1_0"), ("retention.ms", "5.0"), ("retention.ms", "")),
    *(("retention.ms", "٣"), ("retention.ms", str(2**63)), ("segment.ms", "0"), ("segment.bytes", "1024")),
    *(("segment.bytes", str(2**31)), ("preallocate", "yes"), ("min.cleanable.dirty.ratio", "1.1")),
    *(("min.cleanable.dirty.ratio", "x"), ("min.cleanable.dirty.ratio", "nan"), ("compression.type", "none")),
    *(
        ("compression.type", "GZIP"),
        ("compression.gzip.level", "0"),
        ("message.timestamp.type", "logappendtime"),
    ),
    *(("leader.replication.throttled.replicas", "x"), ("remote.storage.enable", "true"), ("foo", "1")),
    *(("message.downconversion.enable", "true"), ("message.format.version", "3.0")),
]


@pytest.mark.parametrize(("name", "text"), KAFKA_TAKES)
def test_what_kafka_takes_is_taken_and_can_be_written_back(name: str, text: str) -> None:
    settings = TopicSettings.parse({name: text}, DEFAULTS)
    assert TopicSettings.parse({name: settings.value_of(name)}, DEFAULTS) == settings


@pytest.mark.parametrize(("name", "text"), KAFKA_REFUSES)
def test_what_kafka_refuses_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        TopicSettings.parse({name: text}, DEFAULTS)


def test_a_refusal_says_what_is_allowed() -> None:
    with pytest.raises(ConfigError, match=r"compression\.gzip\.level: use a whole number from 1 to 9 or -1"):
        TopicSettings.parse({"compression.gzip.level": "0"}, DEFAULTS)


def test_lags_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms is 10, more than max"):
        TopicSettings.parse({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, DEFAULTS)


def test_every_field_has_a_definition_and_every_definition_a_field() -> None:
    assert [setting.field for setting in TOPIC_SETTINGS.values()] == [each.name for each in fields(DEFAULTS)]


@pytest.mark.parametrize("name", TOPIC_SETTINGS)
def test_every_default_can_be_set_explicitly(name: str) -> None:
    setting = TOPIC_SETTINGS[name]
    if not setting.is_internal:
        assert TopicSettings.parse({name: setting.default}, DEFAULTS) == DEFAULTS


def test_defaults_are_those_of_kafka_except_for_retention_and_the_largest_batch() -> None:
    assert {name: DEFAULTS.value_of(name) for name in ("retention.ms", "max.message.bytes")} == {
        "retention.ms": "-1",
        "max.message.bytes": "16777216",
    }
    assert DEFAULTS.value_of("segment.ms") == "604800000"
    assert DEFAULTS.value_of("cleanup.policy") == "delete"
    assert DEFAULTS.value_of("min.cleanable.dirty.ratio") == "0.5"
    assert DEFAULTS.value_of("max.compaction.lag.ms") == str(LONG_MAX)


def test_what_a_topic_does_not_set_comes_from_the_brokers_configuration() -> None:
    config = LogConfig(segment_bytes_max=2048, retention_ms=7, cleanup_policy=("compact", "delete"))
    defaults = TopicSettings.of_broker(config, message_bytes_max=99)
    settings = TopicSettings.parse({"retention.ms": "8"}, defaults)
    assert (settings.segment_bytes_max, settings.retention_ms, settings.max_message_bytes) == (2048, 8, 99)
    assert settings.is_compacted
    assert settings.is_deleted


def test_a_segment_size_for_tests_goes_before_the_usual_one() -> None:
    assert TopicSettings.parse({"internal.segment.bytes": "10"}, DEFAULTS).segment_bytes_max == 10


def test_types_have_the_numbers_that_kafka_gives_them() -> None:
    names = ["preallocate", "compression.type", "segment.bytes", "segment.ms", "min.cleanable.dirty.ratio"]
    kinds = [TOPIC_SETTINGS[name].setting_type for name in (*names, "cleanup.policy")]
    assert [int(kind) for kind in kinds] == [1, 2, 3, 5, 6, 7]


def test_every_setting_is_listed_in_the_documentation_with_its_default_and_its_meaning() -> None:
    rows = PAGE.read_text().splitlines()
    for setting in TOPIC_SETTINGS.values():
        if setting.is_internal:
            continue
        default = f"`{setting.default}`" if setting.default else "none"
        shown = "2^63 - 1 (without limit)" if setting.default == str(LONG_MAX) else default
        assert f"| `{setting.name}` | {shown} | {setting.documentation} |" in rows
