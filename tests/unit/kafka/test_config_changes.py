"""What becomes of settings when some are changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from headrace.config import BrokerConfig, LogConfig
from headrace.kafka.config_changes import ConfigChange, Operation, changed_config
from headrace.kafka.refusal import Refused
from headrace.kafka.settings import Source, broker_settings, cluster_settings, topic_settings
from headrace.log.broker_overrides import BrokerOverrides
from headrace.log.store import LogStore
from headrace.log.topic_settings import TOPIC_SETTINGS, TopicSettings
from headrace.testing.clock import ManualClock
from headrace.testing.disk import SimulatedDisk

SET, DELETE, APPEND, SUBTRACT = Operation


def a_store(**log: Any) -> LogStore:
    return LogStore.open(Path("/data"), LogConfig(**log), ManualClock(), disk=SimulatedDisk())


STORE = a_store()


def change(config: dict[str, str], *changes: tuple[str, int, str | None]) -> dict[str, str]:
    return changed_config(
        config, topic_settings(STORE, config), [ConfigChange(*change) for change in changes]
    )


def test_a_setting_is_set_and_left_to_its_default_again() -> None:
    config = change({"segment.ms": "5"}, ("retention.ms", SET, "1000"))
    assert config == {"segment.ms": "5", "retention.ms": "1000"}
    assert change(config, ("segment.ms", DELETE, None), ("flush.ms", DELETE, None)) == {
        "retention.ms": "1000"
    }


def test_words_are_added_to_the_value_that_holds_each_once() -> None:
    assert change({}, ("cleanup.policy", APPEND, "compact")) == {"cleanup.policy": "delete,compact"}
    assert change({"cleanup.policy": "compact"}, ("cleanup.policy", APPEND, "compact, delete")) == {
        "cleanup.policy": "compact,delete"
    }


def test_words_are_taken_from_the_value_that_holds_whether_they_are_there_or_not() -> None:
    assert change({}, ("cleanup.policy", SUBTRACT, "compact")) == {"cleanup.policy": "delete"}
    assert change({}, ("cleanup.policy", SUBTRACT, "delete")) == {"cleanup.policy": ""}


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ([("retention.ms", SET, None)], ErrorCode.invalid_request, "retention.ms can't be set to null"),
        ([("retention.ms", APPEND, "1")], ErrorCode.invalid_config, "retention.ms is not a list"),
        ([("no.such", SUBTRACT, "1")], ErrorCode.invalid_config, "no.such is not a list"),
        ([("retention.ms", 9, "1")], ErrorCode.invalid_request, "9 is no operation for retention.ms"),
        (
            [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
            ErrorCode.invalid_request,
            "named twice",
        ),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(changes: Any, code: ErrorCode, message: str) -> None:
    with pytest.raises(Refused, match=message) as refusal:
        change({}, *changes)
    assert refusal.value.error_code is code


WORDS = st.lists(st.sampled_from(["compact", "delete"]), unique=True)


@given(held=WORDS, changes=st.lists(st.tuples(st.sampled_from([SET, APPEND, SUBTRACT]), WORDS)))
def test_lists_follow_what_sets_would_do(held: list[str], changes: list[tuple[int, list[str]]]) -> None:
    config, expected = {"cleanup.policy": ",".join(held)}, set(held)
    for operation, words in changes:
        config = change(config, ("cleanup.policy", operation, ",".join(words)))
        expected = {
            SET: set(words),
            APPEND: expected.union(words),
            SUBTRACT: expected.difference(words),
        }[Operation(operation)]
        assert set(TopicSettings.parse(config, STORE.defaults).cleanup_policy) == expected


def synonyms(settings: Any, name: str) -> list[tuple[str, str, Source]]:
    return [(each.name, each.value, each.source) for each in settings[name].synonyms]


def test_a_value_comes_from_the_nearest_place_and_the_others_are_its_synonyms() -> None:
    store = a_store(segment_ms=50)
    overrides = BrokerOverrides(cluster={"log.roll.ms": "40"}, broker={"log.roll.ms": "30"})
    expected = [
        ("segment.ms", "20", Source.TOPIC),
        ("log.roll.ms", "30", Source.BROKER),
        ("log.roll.ms", "40", Source.CLUSTER),
        ("log.roll.ms", "50", Source.STATIC),
        ("log.roll.ms", "604800000", Source.DEFAULT),
    ]
    assert synonyms(topic_settings(store, {}), "segment.ms") == expected[3:]
    store.begin_override(overrides).at_once()
    assert synonyms(topic_settings(store, {}), "segment.ms") == expected[1:]
    found = topic_settings(store, {"segment.ms": "20"})
    assert synonyms(found, "segment.ms") == expected
    assert (found["segment.ms"].value, found["segment.ms"].source) == ("20", Source.TOPIC)
    of_broker = broker_settings(BrokerConfig(), store)
    assert synonyms(of_broker, "log.roll.ms") == expected[1:]
    assert [(name, each.value) for name, each in cluster_settings(store).items()] == [("log.roll.ms", "40")]


def test_every_topic_setting_is_listed_with_its_default_but_for_those_of_tests() -> None:
    listed = topic_settings(STORE, {})
    assert set(listed) == {name for name, setting in TOPIC_SETTINGS.items() if not setting.is_internal}
    assert all(setting.value == TOPIC_SETTINGS[name].default for name, setting in listed.items())
    assert "internal.segment.bytes" in topic_settings(STORE, {"internal.segment.bytes": "100"})


def test_what_the_broker_was_started_with_is_read_only_and_told_from_a_default() -> None:
    settings = broker_settings(BrokerConfig(default_partition_count=3, auto_create_topics=False), STORE)
    partitions, sessions = settings["num.partitions"], settings["group.max.session.timeout.ms"]
    assert (partitions.value, partitions.source, partitions.is_read_only) == ("3", Source.STATIC, True)
    assert (sessions.source, sessions.is_read_only) == (Source.DEFAULT, True)
    assert settings["auto.create.topics.enable"].value == "false"
    assert not settings["log.retention.ms"].is_read_only
