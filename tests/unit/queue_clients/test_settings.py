"""Settings of bridges and of pushing: defaults, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.config import PushConfig, ToQueueConfig, ToTopicConfig
from headrace.errors import ConfigError
from headrace.queue_clients.connection import address_of


def test_names_that_are_not_given_follow_from_those_that_are() -> None:
    assert ToTopicConfig(name="b", topic="t", exchange="shop").queue == "bridge.b"
    assert ToTopicConfig(name="b", topic="t", queue="q").refused_queue == "q.refused"
    assert PushConfig(queue="q", to="http://h/").dead_letter_queue == "q.dead"
    assert ToQueueConfig(name="b", topic="t", queue="q").position_queue == "headrace.bridge.b.position"


@pytest.mark.parametrize(
    "given",
    [
        {"name": "b", "topic": "t"},
        {"name": "a b", "topic": "t", "queue": "q"},
        {"name": "b", "topic": "a/b", "queue": "q"},
        {"name": "b", "topic": "t", "queue": "q" * 256},
        {"name": "b", "topic": "t", "queue": "q", "refused_queue": "q"},
        {"name": "b", "topic": "t", "queue": "q", "batch_count_max": 0},
        {"name": "b", "topic": "t", "queue": "q", "batch_count_max": 1001},
    ],
)
def test_a_bridge_to_a_topic_that_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ToTopicConfig(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"name": "b", "topic": "t"},
        {"name": "b", "topic": "t", "queue": "q", "exchange": "e"},
        {"name": "b", "topic": "t", "queue": "q", "routing_key": "k"},
    ],
)
def test_a_bridge_to_a_queue_that_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ToQueueConfig(**given)


@pytest.mark.parametrize("to", ["", "ftp://h/", "file:///etc/passwd", "http://", "http://h:x/", "h/path"])
def test_messages_are_pushed_by_http_only(to: str) -> None:
    with pytest.raises(ConfigError, match="http://"):
        PushConfig(queue="q", to=to)


@pytest.mark.parametrize(
    "given",
    [
        {"concurrency": 0},
        {"attempt_count_max": 0},
        {"timeout_s": 0},
        {"pause_s_first": 10, "pause_s_max": 5},
        {"pause_s_max": 10_000},
        {"dead_letter_queue": "q"},
    ],
)
def test_pushing_in_a_way_that_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        PushConfig(queue="q", to="http://h/", **given)


def test_secrets_are_not_shown() -> None:
    config = PushConfig(
        queue="q", to="http://user:pw@h:8/p?token=pw", url="amqp://u:pw@h/", secret="pw", headers={"a": "pw"}
    )
    assert "pw" not in repr(config)
    assert config.shown_to == "http://h:8/p"
    assert address_of("amqp://u:pw@host/v") == "host:5672/v"


@pytest.mark.parametrize("url", ["", "http://h/", "amqp://", "amqp://h:port/", "127.0.0.1:5672"])
def test_a_url_that_is_no_queue_servers_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigError, match="URL"):
        address_of(url)
