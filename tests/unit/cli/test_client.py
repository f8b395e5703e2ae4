"""What commands say when the library reports an error."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError

from headrace.cli import client
from headrace.errors import BrokerUnavailable, ConfigError


def test_a_broker_that_does_not_answer_may_want_a_login() -> None:
    said = client.explain(KafkaError(KafkaError._TRANSPORT), "host:9092")
    assert isinstance(said, BrokerUnavailable)
    assert "no broker answers at host:9092" in str(said)
    assert "--client-config" in str(said)


def test_an_admin_call_that_never_ends_is_a_broker_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "REQUEST_TIMEOUT_S", 0.0)
    with pytest.raises(BrokerUnavailable, match="no broker answers at host:9092"):
        client.result_of(Future(), "host:9092")


def test_a_refused_login_is_told_instead_of_the_timeout_that_follows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = KafkaError(KafkaError._AUTHENTICATION, "the password is wrong")
    monkeypatch.setattr(client, "_refused_logins", [refused])
    said = client.explain(KafkaError(KafkaError._MSG_TIMED_OUT), "host:9092")
    assert isinstance(said, ConfigError)
    assert "refused the login: the password is wrong" in str(said)


def test_a_record_for_a_partition_that_is_not_there_is_not_called_a_missing_topic() -> None:
    said = str(client.explain(KafkaError(KafkaError._UNKNOWN_PARTITION), "host:9092"))
    assert "no such partition" in said


def test_a_refused_record_is_told_what_compacted_topics_want() -> None:
    said = str(client.explain(KafkaError(KafkaError.INVALID_RECORD), "host:9092"))
    assert "without a key" in said
