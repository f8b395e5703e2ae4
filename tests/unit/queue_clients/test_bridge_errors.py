"""What Kafka's client raises, in our own words."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import BridgeFailed, BridgeReplaced, BrokerUnavailable
from headrace.queue_clients.bridge.topic_writer import bridge_errors


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._FENCED, BridgeReplaced),
        (KafkaError.PRODUCER_FENCED, BridgeReplaced),
        (KafkaError._TRANSPORT, BrokerUnavailable),
        (KafkaError._TIMED_OUT, BrokerUnavailable),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, BridgeFailed),
    ],
)
def test_what_may_pass_is_told_from_what_does_not(code: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="bridge b"), bridge_errors("b", "host:9092"):
        raise KafkaException(KafkaError(code))


def test_an_error_is_found_beneath_what_was_raised_over_it() -> None:
    fenced = KafkaException(KafkaError(KafkaError._FENCED))
    first, second = SystemError("a callback"), SystemError("flush")
    first.__cause__, second.__cause__ = fenced, first
    with pytest.raises(BridgeReplaced), bridge_errors("b", "host:9092"):
        raise second


def test_a_mistake_of_our_own_stays_one() -> None:
    with pytest.raises(SystemError), bridge_errors("b", "host:9092"):
        raise SystemError("ours")
