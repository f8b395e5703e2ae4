"""What the topics of a capture keep."""

from __future__ import annotations

import pytest

from headrace.cdc.topics import kept
from headrace.config import CaptureConfig
from headrace.errors import ConfigError

FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
OF_CAPTURE = ("shop.public.orders", "shop.transaction", "shop.schema-changes", "shop.message")
OF_OTHERS = ("shop.heartbeat", "outbox.event.orders", "shopping.public.orders", "my.shop.public.orders")


def config(**settings: object) -> CaptureConfig:
    return CaptureConfig(name="shop", dsn="host=nowhere", bootstrap="b:9092", **settings)  # type: ignore[arg-type]


def test_events_are_kept_for_ever_whatever_the_broker_does_with_other_topics() -> None:
    assert [kept(topic, config()) for topic in OF_CAPTURE] == [FOR_EVER] * len(OF_CAPTURE)
    assert [kept(topic, config()) for topic in OF_OTHERS] == [{}] * len(OF_OTHERS)


def test_events_are_kept_as_long_as_was_asked_for() -> None:
    asked = config(retention_ms=1000, topic_settings={"max.message.bytes": "5"})
    assert kept("shop.public.orders", asked) == {
        **FOR_EVER,
        "retention.ms": "1000",
        "max.message.bytes": "5",
    }


def test_only_topics_of_tables_are_compacted() -> None:
    compacted = config(keeps_last_only=True)
    found = {topic: kept(topic, compacted) for topic in (*OF_CAPTURE, *OF_OTHERS)}
    assert found.pop("shop.public.orders") == {"cleanup.policy": "compact"}
    assert set(map(str, found.values())) == {"{}"}


def test_events_of_an_outbox_are_never_compacted() -> None:
    assert kept("outbox.event.orders", config(prefix="outbox", keeps_last_only=True)) == {}


def test_settings_of_a_topic_go_before_all_else() -> None:
    asked = config(topic_settings={"retention.ms": "7"})
    assert kept("shop.public.orders", asked) == {**FOR_EVER, "retention.ms": "7"}


def test_what_contradicts_itself_is_refused() -> None:
    with pytest.raises(ConfigError, match="leave retention_ms at -1"):
        config(keeps_last_only=True, retention_ms=1000)
    with pytest.raises(ConfigError, match="-1 for ever"):
        config(retention_ms=-2)
