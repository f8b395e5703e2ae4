"""Clients of three libraries log in by SASL, or are turned away."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from headrace.broker import Broker
from headrace.config import Address, BrokerConfig, SecurityConfig
from headrace.errors import ConfigError
from headrace.kafka import engine
from headrace.kafka.security import session as sessions
from headrace.security.users import UserRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
PASSWORD = "söme=se,cret"
METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 3, 17, 18, 36


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(users={"ann": PASSWORD, "CN=bob,OU=x": "other"}) as broker:
        yield broker


def confluent(
    broker: Broker, mechanism: str, password: str = PASSWORD, user: str = "ann", **settings: Any
) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
        **settings,
    }


def kafka_python(broker: Broker, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "ann",
        "sasl_plain_password": password,
    }


def first_error(client: Any, wait_until: Callable[..., Any], errors: list[KafkaError]) -> KafkaError:
    wait_until(lambda: client.poll(0.05) or errors, "an error of the client")
    return errors[0]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_logs_in_produces_and_consumes(
    secured: Broker, mechanism: str, wait_until: Callable[..., Any]
) -> None:
    topic = f"confluent-{mechanism}"
    producer = Producer(confluent(secured, mechanism))
    producer.produce(topic, b"hello")
    assert producer.flush(30) == 0
    settings = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(confluent(secured, mechanism, **settings))
    consumer.subscribe([topic])
    message = wait_until(lambda: consumer.poll(0.1), "a record")
    assert message.value() == b"hello"
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in_produces_and_consumes(secured: Broker, mechanism: str) -> None:
    topic = f"kafka-python-{mechanism}"
    producer = kafka.KafkaProducer(**kafka_python(secured, mechanism))
    assert producer.send(topic, b"hello").get(30).offset == 0
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, auto_offset_reset="earliest", group_id=topic, **kafka_python(secured, mechanism)
    )
    assert next(iter(consumer)).value == b"hello"
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_logs_in_produces_and_consumes(secured: Broker, mechanism: str) -> None:
    topic = f"aiokafka-{mechanism}"

    async def run() -> bytes:
        settings = kafka_python(secured, mechanism)
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"hello")
        consumer = aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", group_id=topic, **settings)
        async with consumer:
            return bytes((await consumer.getone()).value)

    assert asyncio.run(run()) == b"hello"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_hears_that_its_password_is_wrong(
    secured: Broker, mechanism: str, wait_until: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[KafkaError] = []
    client = Producer(confluent(secured, mechanism, "wrong", error_cb=errors.append))
    assert first_error(client, wait_until, errors).code() == KafkaError._AUTHENTICATION
    assert "the log-in of 'ann' from 127.0.0.1:" in caplog.text
    assert f"by {mechanism} failed: the password is wrong" in caplog.text
    assert "wrong\0" not in caplog.text


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_and_aiokafka_hear_that_their_password_is_wrong(secured: Broker, mechanism: str) -> None:
    settings = kafka_python(secured, mechanism, "wrong")

    async def start() -> None:
        producer = aiokafka.AIOKafkaProducer(**settings)
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises((kafka.errors.SaslAuthenticationFailedError, kafka.errors.KafkaTimeoutError)):
        kafka.KafkaAdminClient(**settings, bootstrap_timeout_ms=500)
    with pytest.raises((aiokafka.errors.AuthenticationFailedError, aiokafka.errors.KafkaConnectionError)):
        asyncio.run(start())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_unknown_user_is_turned_away_like_a_wrong_password(
    secured: Broker, mechanism: str, wait_until: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[KafkaError] = []
    client = Producer(confluent(secured, mechanism, user="eve", error_cb=errors.append))
    error = first_error(client, wait_until, errors)
    assert error.code() == KafkaError._AUTHENTICATION
    assert "the user or the password is wrong" in error.str()
    assert "the log-in of 'eve'" in caplog.text
    assert "there is no such user" in caplog.text


def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are(
    tmp_path: Path, wait_until: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    security = SecurityConfig(users_file=tmp_path / "users", sasl_mechanisms=("SCRAM-SHA-512",))
    config = BrokerConfig(listen=Address("127.0.0.1", 0), security=security)
    with Broker(tmp_path / "data", users={"ann": PASSWORD}, config=config) as broker:
        errors: list[KafkaError] = []
        client = Producer(confluent(broker, "PLAIN", error_cb=errors.append))
        assert "SCRAM-SHA-512" in first_error(client, wait_until, errors).str()
        assert "it asked for the mechanism 'PLAIN'; set sasl.mechanism to SCRAM-SHA-512" in caplog.text
        AdminClient(confluent(broker, "SCRAM-SHA-512")).list_topics(timeout=30)


def test_a_client_that_does_not_log_in_gets_nothing_but_the_versions(
    secured: Broker, raw_at: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    raw = raw_at(secured.bootstrap)
    assert raw.request(API_VERSIONS, 0).error_code.name == "none"
    raw.send(raw.request_frame(METADATA, 1, topics=None))
    assert raw.is_closed_by_the_broker()
    assert (
        "before the log-in was done; the client must set security.protocol to SASL_PLAINTEXT" in caplog.text
    )


def test_a_request_behind_a_log_in_that_is_under_way_is_not_answered(
    secured: Broker, raw_at: Callable[[str], Any]
) -> None:
    raw = raw_at(secured.bootstrap)
    assert raw.request(SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code.name == "none"
    raw.send(raw.request_frame(METADATA, 1, topics=None))
    assert raw.is_closed_by_the_broker()


def test_a_large_frame_before_the_log_in_closes_the_connection(
    secured: Broker, raw_at: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    raw = raw_at(secured.bootstrap)
    raw.send(struct.pack(">ih", 100_000, SASL_AUTHENTICATE))
    assert raw.is_closed_by_the_broker()
    assert "10 to 65536 are accepted" in caplog.text


def test_a_client_that_dallies_with_its_log_in_is_let_go(
    raw_at: Callable[[str], Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(engine, "SWEEP_INTERVAL_S", 0.02)
    config = BrokerConfig(listen=Address("127.0.0.1", 0), authentication_wait_ms_max=100)
    with Broker(tmp_path, users={"ann": PASSWORD}, config=config) as broker:
        raw = raw_at(broker.bootstrap)
        assert raw.is_closed_by_the_broker()
        assert "it has not logged in within 100 ms" in caplog.text
        # Whoever has logged in may take its time.
        open_session = raw_at(broker.bootstrap)
        assert log_in(open_session).error_code.name == "none"
        assert raw_at(broker.bootstrap).is_closed_by_the_broker()
        assert open_session.request(METADATA, 1, topics=()).topics == ()


def log_in(raw: Any, user: str = "ann", password: str = PASSWORD) -> Any:
    assert raw.request(SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code.name == "none"
    return raw.request(SASL_AUTHENTICATE, 1, auth_bytes=f"\0{user}\0{password}".encode())


def test_after_a_failed_log_in_the_answer_comes_and_then_the_connection_ends(
    secured: Broker, raw_at: Callable[[str], Any]
) -> None:
    raw = raw_at(secured.bootstrap)
    answer = log_in(raw, password="wrong")
    assert answer.error_code.name == "sasl_authentication_failed"
    assert raw.is_closed_by_the_broker()


def test_the_handshake_of_the_first_days_takes_tokens_without_headers(
    secured: Broker, raw_at: Callable[[str], Any]
) -> None:
    raw = raw_at(secured.bootstrap)
    assert raw.request(SASL_HANDSHAKE, 0, mechanism="PLAIN").error_code.name == "none"
    token = f"\0ann\0{PASSWORD}".encode()
    raw.send(struct.pack(">i", len(token)) + token)
    assert raw.receive_exactly(4) == bytes(4)
    assert raw.request(METADATA, 1, topics=()).topics == ()


def test_the_handshake_of_the_first_days_ends_without_a_word_if_the_password_is_wrong(
    secured: Broker, raw_at: Callable[[str], Any]
) -> None:
    raw = raw_at(secured.bootstrap)
    raw.request(SASL_HANDSHAKE, 0, mechanism="PLAIN")
    raw.send(struct.pack(">i", 4) + b"\0a\0b")
    assert raw.is_closed_by_the_broker()


def test_a_session_that_is_over_is_renewed_by_a_log_in_on_the_same_connection(
    tmp_path: Path,
    raw_at: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sessions, "RELOGIN_INTERVAL_S_MIN", 0.0)
    security = SecurityConfig(session_lifetime_ms_max=300)
    config = BrokerConfig(listen=Address("127.0.0.1", 0), security=security)
    with Broker(tmp_path, users={"ann": PASSWORD, "bob": "x"}, config=config) as broker:
        renewed, forgetful, fickle = (raw_at(broker.bootstrap) for _ in range(3))
        for raw in (renewed, forgetful, fickle):
            assert log_in(raw).session_lifetime.total_seconds() == 0.3

        def is_let_go() -> bool:
            with suppress(EOFError, ConnectionError):
                forgetful.request(METADATA, 1, topics=())
                return False
            return True

        wait_until(is_let_go, "the end of a session")
        assert "the session of User:ann is over" in caplog.text
        assert log_in(renewed).error_code.name == "none"
        assert renewed.request(METADATA, 1, topics=()).topics == ()
        assert log_in(fickle, "bob", "x").error_code.name == "sasl_authentication_failed"
        assert "User:ann can't become User:bob" in caplog.text


def test_a_log_in_where_none_is_asked_for_is_an_illegal_state(raw: Any) -> None:
    assert raw.request(SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code.name == "illegal_sasl_state"
    answer = raw.request(SASL_AUTHENTICATE, 2, auth_bytes=b"\0ann\0x")
    assert answer.error_code.name == "illegal_sasl_state"


def test_a_user_who_is_added_or_removed_while_the_broker_runs_is_noticed(
    tmp_path: Path, raw_at: Callable[[str], Any]
) -> None:
    with Broker(tmp_path, users={"ann": PASSWORD}) as broker:
        assert log_in(raw_at(broker.bootstrap), "bob", "x").error_code.name == "sasl_authentication_failed"
        registry = UserRegistry(tmp_path / "users.json")
        registry.add({"bob": "x"})
        assert log_in(raw_at(broker.bootstrap), "bob", "x").error_code.name == "none"
        registry.change(lambda users: {name: users[name] for name in users if name != "bob"})
        assert log_in(raw_at(broker.bootstrap), "bob", "x").error_code.name == "sasl_authentication_failed"


def describe(admin: AdminClient, users: list[str] | None = None) -> Any:
    return admin.describe_user_scram_credentials(users)


def test_administrators_add_describe_and_remove_users(
    secured: Broker, wait_until: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    admin = AdminClient(confluent(secured, "SCRAM-SHA-512"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 10_000)
    with caplog.at_level(logging.INFO, logger="headrace.audit"):
        for future in admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("carl", info, b"new")]
        ).values():
            future.result(30)
    assert "user.change user=carl, by User:ann from 127.0.0.1:" in caplog.text
    described = describe(admin, ["carl"])["carl"].result(30)
    assert [(each.mechanism, each.iterations) for each in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 10_000)
    ]
    AdminClient(confluent(secured, "SCRAM-SHA-256", "new", "carl")).list_topics(timeout=30)
    AdminClient(confluent(secured, "PLAIN", "new", "carl")).list_topics(timeout=30)
    deletion = UserScramCredentialDeletion("carl", ScramMechanism.SCRAM_SHA_256)
    for future in admin.alter_user_scram_credentials([deletion]).values():
        future.result(30)
    with pytest.raises(KafkaException) as raised:
        describe(admin, ["carl"])["carl"].result(30)
    assert raised.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND
    everybody = describe(admin).result(30)
    assert set(everybody) == {"ann", "CN=bob,OU=x"}


def test_credentials_that_can_not_be_had_are_refused_one_by_one(secured: Broker) -> None:
    admin = AdminClient(confluent(secured, "PLAIN"))
    weak = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 100)
    strong = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
    futures = admin.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion("weak", weak, b"x"),
            UserScramCredentialUpsertion("fine", strong, b"x"),
            UserScramCredentialDeletion("nobody", ScramMechanism.SCRAM_SHA_512),
        ]
    )
    codes = {}
    for user, future in futures.items():
        try:
            future.result(30)
            codes[user] = 0
        except KafkaException as error:
            codes[user] = error.args[0].code()
    assert codes == {
        "weak": KafkaError.UNACCEPTABLE_CREDENTIAL,
        "fine": 0,
        "nobody": KafkaError.RESOURCE_NOT_FOUND,
    }
    deletion = UserScramCredentialDeletion("fine", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])["fine"].result(30)


def test_a_name_with_signs_that_scram_escapes_can_log_in(secured: Broker) -> None:
    for mechanism in MECHANISMS:
        settings = confluent(secured, mechanism, "other", "CN=bob,OU=x")
        AdminClient(settings).list_topics(timeout=30)


def test_users_can_be_there_before_log_ins_are_asked_for(
    tmp_path: Path, kafka_at: Callable[..., Any]
) -> None:
    with Broker(tmp_path) as broker:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
        change = UserScramCredentialUpsertion("dora", info, b"pw")
        client = kafka_at(broker.bootstrap)
        client.admin.alter_user_scram_credentials([change])["dora"].result(30)
    security = SecurityConfig(users_file=tmp_path / "users.json")
    config = BrokerConfig(listen=Address("127.0.0.1", 0), security=security)
    with Broker(tmp_path, config=config) as broker:
        AdminClient(confluent(broker, "SCRAM-SHA-512", "pw", "dora")).list_topics(timeout=30)


def test_a_broker_that_would_let_nobody_in_does_not_start(tmp_path: Path) -> None:
    security = SecurityConfig(users_file=tmp_path / "missing")
    config = BrokerConfig(listen=Address("127.0.0.1", 0), security=security)
    with pytest.raises(ConfigError, match=r"there are no users in .*missing: add one with"):
        Broker(tmp_path / "data", config=config).start()


def test_a_file_of_users_that_others_can_read_is_refused(tmp_path: Path) -> None:
    UserRegistry(tmp_path / "users").add({"ann": "x"})
    (tmp_path / "users").chmod(0o644)
    config = BrokerConfig(
        listen=Address("127.0.0.1", 0), security=SecurityConfig(users_file=tmp_path / "users")
    )
    with pytest.raises(ConfigError, match=r"mode 644.*chmod 600"):
        Broker(tmp_path / "data", config=config).start()


def test_a_broker_beyond_loopback_offers_scram_and_keeps_plain_to_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = BrokerConfig(
        listen=Address("0.0.0.0", 0),  # noqa: S104  # that is the test
        security=SecurityConfig(users_file=tmp_path / "users"),
    )
    with Broker(tmp_path / "data", users={"ann": PASSWORD}, config=config) as broker:
        local = replace(broker.address, host="127.0.0.1")
        settings = {**confluent(broker, "SCRAM-SHA-256"), "bootstrap.servers": str(local)}
        cluster = AdminClient(settings).list_topics(timeout=30)
        # Clients are told the address that they have used.
        assert {str(each.host) for each in cluster.brokers.values()} == {"127.0.0.1"}
        assert config.sasl_mechanisms == ("SCRAM-SHA-512", "SCRAM-SHA-256")
        assert "connections to 0.0.0.0:0 are not encrypted" in caplog.text


def test_a_stop_while_log_ins_are_under_way_is_clean(tmp_path: Path) -> None:
    with Broker(tmp_path, users={"ann": PASSWORD}) as broker:
        clients = [socket.create_connection((broker.address.host, broker.address.port)) for _ in range(5)]
        for client in clients:
            handshake = struct.pack(">hhihh5s", SASL_HANDSHAKE, 1, 1, -1, 5, b"PLAIN")
            token = f"\0ann\0{PASSWORD}x".encode()
            login = struct.pack(">hhihi", SASL_AUTHENTICATE, 0, 2, -1, len(token)) + token
            for frame in (handshake, login):
                client.sendall(struct.pack(">i", len(frame)) + frame)
    for client in clients:
        client.close()
