"""Events and position in one transaction, and one publisher at a time."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from apache_kafka import ApacheKafka
from headrace.broker import Broker
from headrace.cdc.publisher import Publisher
from headrace.cdc.record import Record
from headrace.cdc.state import CaptureState, Phase
from headrace.config import Address, BrokerConfig, CaptureConfig, LogConfig
from headrace.errors import BrokerUnavailable, CaptureFailed, CaptureReplaced, ConfigError, SetupError

STATE = CaptureState(slot="s", system="1", phase=Phase.STREAMING)


def config_of(broker: Broker) -> CaptureConfig:
    return CaptureConfig(name="shop", dsn="host=nowhere", bootstrap=broker.bootstrap, partition_count=3)


def records(*numbers: int) -> list[Record]:
    return [Record("shop.public.orders", b'{"id":%d}' % n, b'{"op":"c"}', (("n", b"1"),)) for n in numbers]


class FullProducer:
    """Has no room, ever."""

    def __init__(self) -> None:
        self.polled_count = 0

    def begin_transaction(self) -> None: ...

    def abort_transaction(self, timeout: float) -> None: ...

    def flush(self, timeout: float) -> None: ...

    def produce(self, *_: object, **__: object) -> None:
        raise BufferError

    def poll(self, timeout: float) -> None:  # noqa: ARG002
        self.polled_count += 1
        assert self.polled_count < 10, "it waits for ever"


class StandingTime:
    """Moves on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class TimedProducer(FullProducer):
    """Notes when it is asked for commits."""

    def __init__(self, time: StandingTime) -> None:
        super().__init__()
        self.time = time
        self.committed_s: list[float] = []

    def produce(self, *_: object, **__: object) -> None: ...

    def commit_transaction(self, timeout: float) -> None:  # noqa: ARG002
        self.committed_s.append(self.time.now_s)


def test_the_client_is_asked_for_a_commit_when_it_has_told_of_the_partitions_and_no_later(
    headrace_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Publisher(config_of(headrace_broker))) as publisher:
        time = StandingTime()
        producer = TimedProducer(time)
        monkeypatch.setattr(publisher, "_producer", producer)
        monkeypatch.setattr("headrace.cdc.publisher.time", time)
        publisher.send(records(1))
        publisher.commit(STATE.advanced(100, 1))
        assert producer.committed_s == [pytest.approx(100.001)]
        publisher.send(records(2))
        time.sleep(5.0)
        publisher.commit(STATE.advanced(200, 1))
        assert producer.committed_s[1:] == [pytest.approx(105.001)]


def test_what_is_committed_is_read_back_and_what_is_not_never_was(headrace_broker: Broker) -> None:
    config = config_of(headrace_broker)
    with closing(Publisher(config)) as publisher:
        assert publisher.state is None
        publisher.send(records(1, 2))
        assert publisher.sent_count == 2
        publisher.commit(STATE.advanced(100, 2))
        publisher.send(records(3))
    with closing(Publisher(config)) as publisher:
        assert publisher.state == STATE.advanced(100, 2)
        # Many that are given up lie between the last state and the end.
        for _ in range(4):
            publisher.send([Record("shop.capture", b"shop", b"given up")])
            publisher._producer.flush()
            publisher.abort()
    with closing(Publisher(config)) as publisher:
        assert publisher.state == STATE.advanced(100, 2)


def test_whoever_comes_later_fences_whoever_was_there(headrace_broker: Broker) -> None:
    config = config_of(headrace_broker)
    with closing(Publisher(config)) as first:
        first.commit(STATE.advanced(100, 1))
        first.send(records(1))
        with closing(Publisher(config)) as second:
            assert second.state == STATE.advanced(100, 1)
            with pytest.raises(CaptureReplaced, match="capture shop was taken over"):
                first.commit(STATE.advanced(200, 2))
            second.commit(STATE.advanced(150, 2))
    with closing(Publisher(config)) as third:
        assert third.state == STATE.advanced(150, 2)


def test_captures_of_other_names_do_not_disturb_each_other(headrace_broker: Broker) -> None:
    config = config_of(headrace_broker)
    with (
        closing(Publisher(config)) as one,
        closing(Publisher(replace(config, name="b", prefix="b"))) as other,
    ):
        one.commit(STATE.advanced(1, 1))
        other.commit(STATE.advanced(2, 2))
        assert one.state != other.state


def test_the_position_of_another_capture_is_never_taken_for_ones_own(headrace_broker: Broker) -> None:
    config = config_of(headrace_broker)
    with closing(Publisher(config)) as publisher:
        publisher.commit(STATE.advanced(100, 2))
    with pytest.raises(ConfigError, match=r"capture b can't publish to shop\.\*: capture shop does"):
        Publisher(replace(config, name="b", prefix="shop"))


def test_a_topic_that_somebody_else_has_written_to_stops_the_capture(headrace_broker: Broker) -> None:
    config = config_of(headrace_broker)
    with closing(Publisher(config)) as publisher:
        publisher.send([Record("shop.capture", b"shop", b"what is this?")])
        publisher.commit(STATE)
        publisher.send([Record("shop.capture", b"shop", b"what is this?")])
        publisher._producer.commit_transaction()
        publisher._is_open = False
    with pytest.raises(CaptureFailed, match="none that a capture writes"):
        Publisher(config)


@pytest.mark.parametrize("has_failed_before", [False, True])
@pytest.mark.parametrize(
    ("settings", "record", "words"),
    [
        ({"max.message.bytes": "1000"}, Record("shop.t", b"1", b"x" * 2000), "raise max.message.bytes"),
        ({"cleanup.policy": "compact"}, Record("shop.t", None, b"x"), "takes no record without a key"),
    ],
)
def test_a_record_that_will_always_be_refused_stops_the_capture(
    headrace_broker: Broker, settings: dict[str, str], record: Record, words: str, *, has_failed_before: bool
) -> None:
    config = replace(config_of(headrace_broker), topic_settings=settings)
    with closing(Publisher(config)) as publisher:
        publisher.send([record])
        if has_failed_before:
            publisher._producer.flush()
        with pytest.raises(CaptureFailed, match=words):
            publisher.send(records(1)) if has_failed_before else publisher.commit(STATE)


def test_a_transaction_that_an_outage_has_ended_is_had_again(headrace_broker: Broker) -> None:
    with closing(Publisher(config_of(headrace_broker))) as publisher:
        publisher.send(records(1))
        publisher.commit(STATE)
        # What the client says of a transaction that is none any more.
        publisher._is_open = True
        with pytest.raises(BrokerUnavailable, match="for now"):
            publisher.send(records(2))


def test_who_ends_does_not_wait_for_room_without_end(
    headrace_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cdc.publisher.ABORT_S_MAX", 0.0)
    with closing(Publisher(config_of(headrace_broker), is_ending=lambda: True)) as publisher:
        monkeypatch.setattr(publisher, "_producer", FullProducer())
        with pytest.raises(BrokerUnavailable, match=r"ends while .* takes nothing"):
            publisher.send(records(1))


def test_a_broker_that_is_not_there_is_named() -> None:
    config = CaptureConfig(name="shop", dsn="host=nowhere", bootstrap="127.0.0.1:1")
    with pytest.raises(BrokerUnavailable, match=r"can't publish to 127\.0\.0\.1:1 for now"):
        Publisher(config, answer_s_max=0.5)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, {"cleanup.policy": "delete", "retention.ms": "-1"}),
        ({"retention_ms": 5_000}, {"cleanup.policy": "delete", "retention.ms": "5000"}),
        ({"keeps_last_only": True}, {"cleanup.policy": "compact", "retention.ms": "604800000"}),
    ],
)
def test_topics_of_tables_keep_what_was_asked_for_and_not_what_the_broker_would(
    asked: dict[str, Any], expected: dict[str, str]
) -> None:
    forgetful = BrokerConfig(listen=Address("127.0.0.1", 0), log=LogConfig(retention_ms=604_800_000))
    with Broker(config=forgetful) as broker:
        with closing(Publisher(replace(config_of(broker), **asked))) as publisher:
            publisher.send(records(1))
            publisher.commit(STATE)
        assert expected.items() <= settings_of(broker.bootstrap, "shop.public.orders").items()


@pytest.mark.java
def test_topics_of_tables_keep_what_was_asked_for_on_apache_kafka_too() -> None:
    try:
        kafka = ApacheKafka(settings={"log.retention.hours": "1", "log.retention.bytes": "1000000"})
        kafka.start()
    except SetupError as error:
        pytest.skip(f"no Apache Kafka here: {error}")
    try:
        config = CaptureConfig(name="shop", dsn="host=nowhere", bootstrap=kafka.bootstrap)
        for number, is_last_only in enumerate((False, True)):
            own = replace(config, name=f"shop{number}", prefix=f"shop{number}", keeps_last_only=is_last_only)
            with closing(Publisher(own)) as publisher:
                publisher.send([Record(f"shop{number}.public.orders", b"1", b"x")])
                publisher.commit(STATE)
        kept_all = settings_of(kafka.bootstrap, "shop0.public.orders")
        assert (kept_all["retention.ms"], kept_all["retention.bytes"]) == ("-1", "-1")
        assert settings_of(kafka.bootstrap, "shop1.public.orders")["cleanup.policy"] == "compact"
    finally:
        kafka.stop()


def settings_of(bootstrap: str, topic: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    [found] = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in found.result(60).items()}
