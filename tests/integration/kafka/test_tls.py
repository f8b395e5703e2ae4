"""Encrypted connections, with certificates on one side or on both."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import aiokafka
import kafka
import pytest
import trustme
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from headrace.broker import Broker
from headrace.config import Address, BrokerConfig, SecurityConfig, TlsConfig
from headrace.errors import ConfigError
from headrace.kafka import engine
from headrace.security.tls import make_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PASSWORD = "hunter2"
METADATA = 3


@dataclass(frozen=True)
class Pem:
    """The PEM files of an authority, of a broker's certificate and of a client's."""

    ca: Path
    certificate: Path
    key: Path
    client_certificate: Path
    client_key: Path

    @property
    def tls(self) -> TlsConfig:
        return TlsConfig(certificate=self.certificate, key=self.key)

    @property
    def mutual_tls(self) -> TlsConfig:
        return replace(self.tls, client_ca=self.ca)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Pem:
    directory = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    broker = authority.issue_cert("localhost", "127.0.0.1")
    client = authority.issue_cert("ann@example.org", common_name="ann", organization_name="Mill, Ltd")
    paths = Pem(*(directory / name for name in ("ca", "certificate", "key", "client", "client-key")))
    authority.cert_pem.write_to_path(str(paths.ca))
    for leaf, certificate, key in (
        (broker, paths.certificate, paths.key),
        (client, paths.client_certificate, paths.client_key),
    ):
        certificate.write_bytes(b"".join(each.bytes() for each in leaf.cert_chain_pems))
        key.write_bytes(leaf.private_key_pem.bytes())
        key.chmod(0o600)
    return paths


@pytest.fixture(scope="module")
def encrypted(pem: Pem) -> Iterator[Broker]:
    with Broker(tls=pem.tls) as broker:
        yield broker


@pytest.fixture(scope="module")
def mutual(pem: Pem) -> Iterator[Broker]:
    with Broker(tls=pem.mutual_tls) as broker:
        yield broker


def confluent(broker: Broker, pem: Pem, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(pem.ca),
        "log_level": 0,
        **settings,
    }


def produce_and_consume(settings: dict[str, Any], topic: str, value: bytes, wait_until: Any) -> bytes:
    producer = Producer({**settings, "message.max.bytes": 8_000_000})
    producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = wait_until(lambda: consumer.poll(0.1), "a record")
    consumer.close()
    return bytes(message.value())


@pytest.mark.parametrize("size_bytes", [5, 5_000_000])
def test_confluent_kafka_produces_and_consumes_over_tls(
    encrypted: Broker, pem: Pem, wait_until: Callable[..., Any], size_bytes: int
) -> None:
    value = os.urandom(size_bytes)
    topic = f"confluent-{size_bytes}"
    assert produce_and_consume(confluent(encrypted, pem), topic, value, wait_until) == value


def test_kafka_python_produces_and_consumes_over_tls(encrypted: Broker, pem: Pem) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": encrypted.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(pem.ca),
    }
    producer = kafka.KafkaProducer(**settings)
    assert producer.send("kafka-python", b"hello").get(30).offset == 0
    producer.close()
    consumer = kafka.KafkaConsumer("kafka-python", auto_offset_reset="earliest", **settings)
    assert next(iter(consumer)).value == b"hello"
    consumer.close()


def test_aiokafka_logs_in_produces_and_consumes_over_tls(pem: Pem) -> None:
    async def run(broker: Broker) -> bytes:
        settings: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap,
            "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=str(pem.ca)),
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "ann",
            "sasl_plain_password": PASSWORD,
        }
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait("aiokafka", b"hello")
        async with aiokafka.AIOKafkaConsumer(
            "aiokafka", auto_offset_reset="earliest", **settings
        ) as consumer:
            return bytes((await consumer.getone()).value)

    with Broker(tls=pem.tls, users={"ann": PASSWORD}) as broker:
        assert asyncio.run(run(broker)) == b"hello"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_clients_log_in_over_tls(pem: Pem, mechanism: str) -> None:
    with Broker(tls=pem.tls, users={"ann": PASSWORD}) as broker:
        login = {"security.protocol": "SASL_SSL", "sasl.username": "ann", "sasl.password": PASSWORD}
        settings = confluent(broker, pem, **login, **{"sasl.mechanism": mechanism})
        AdminClient(settings).list_topics(timeout=30)


def test_a_client_with_a_certificate_is_known_by_its_name(
    mutual: Broker, pem: Pem, caplog: pytest.LogCaptureFixture, wait_until: Callable[..., Any]
) -> None:
    certificate = {
        "ssl.certificate.location": str(pem.client_certificate),
        "ssl.key.location": str(pem.client_key),
    }
    settings = confluent(mutual, pem, **certificate)
    assert produce_and_consume(settings, "mutual", b"hello", wait_until) == b"hello"
    with tls_socket(mutual, pem, pem.client_certificate, pem.client_key) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert is_closed(connection)
    record = next(each for each in caplog.records if "an HTTP request" in each.getMessage())
    assert vars(record)["fields"]["principal"].startswith("User:")
    assert r"O=Mill\, Ltd" in vars(record)["fields"]["principal"]


def test_a_client_without_a_certificate_is_turned_away_where_one_is_asked_for(
    mutual: Broker, pem: Pem, caplog: pytest.LogCaptureFixture, wait_until: Callable[..., Any]
) -> None:
    errors: list[KafkaError] = []
    client = Producer(confluent(mutual, pem, error_cb=errors.append))
    wait_until(lambda: client.poll(0.05) or errors, "an error of the client")
    assert "certificate required" in errors[0].str()
    assert "the client must show a certificate" in caplog.text


def test_a_client_that_does_not_trust_the_broker_hangs_up_and_the_log_says_so(
    encrypted: Broker, caplog: pytest.LogCaptureFixture, wait_until: Callable[..., Any]
) -> None:
    stranger = trustme.CA()
    context = ssl.create_default_context()
    stranger.configure_trust(context)
    address = (encrypted.address.host, encrypted.address.port)
    with socket.create_connection(address) as plain, pytest.raises(ssl.SSLCertVerificationError):
        context.wrap_socket(plain, server_hostname="localhost")
    wait_until(lambda: "the client does not trust the broker's certificate" in caplog.text, "a log line")


def tls_socket(
    broker: Broker,
    pem: Pem,
    certificate: Path | None = None,
    key: Path | None = None,
    name: str = "localhost",
) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(pem.ca))
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    plain = socket.create_connection((broker.address.host, broker.address.port), timeout=30)
    return context.wrap_socket(plain, server_hostname=name)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_plain_text_on_the_tls_port_is_named_in_the_log(
    encrypted: Broker, raw_at: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    raw = raw_at(encrypted.bootstrap)
    raw.send(raw.request_frame(METADATA, 1, topics=None))
    assert raw.is_closed_by_the_broker()
    assert "not a TLS handshake, and this port speaks TLS only" in caplog.text


def test_noise_after_a_good_beginning_is_refused(
    encrypted: Broker, raw_at: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    raw = raw_at(encrypted.bootstrap)
    raw.send(b"\x16\x03\x01\x00\x10" + bytes(16))
    alert = raw.receive_exactly(7)
    assert alert[0] == 0x15
    assert raw.is_closed_by_the_broker()
    assert "the TLS handshake failed" in caplog.text


def test_a_handshake_that_never_comes_is_not_waited_for(
    pem: Pem, tmp_path: Path, raw_at: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SWEEP_INTERVAL_S", 0.02)
    config = BrokerConfig(listen=Address("127.0.0.1", 0), authentication_wait_ms_max=100)
    with Broker(tmp_path, tls=pem.tls, config=config) as broker:
        silent, started = raw_at(broker.bootstrap), raw_at(broker.bootstrap)
        started.send(b"\x16\x03\x01\x02\x00")
        assert silent.is_closed_by_the_broker()
        assert started.is_closed_by_the_broker()


def test_versions_before_tls_1_2_are_not_spoken(pem: Pem) -> None:
    assert make_context(pem.tls).minimum_version == ssl.TLSVersion.TLSv1_2


def test_the_name_by_which_a_client_asks_for_the_broker_is_advertised_to_it(
    encrypted: Broker, pem: Pem
) -> None:
    by_name = confluent(encrypted, pem, **{"bootstrap.servers": f"localhost:{encrypted.address.port}"})
    hosts = {each.host for each in AdminClient(by_name).list_topics(timeout=30).brokers.values()}
    assert hosts == {"localhost"}
    by_number = AdminClient(confluent(encrypted, pem)).list_topics(timeout=30)
    assert {each.host for each in by_number.brokers.values()} == {"127.0.0.1"}


def test_an_advertised_address_comes_before_what_the_client_has_used(tmp_path: Path, raw_at: Any) -> None:
    advertised = Address("kafka.example.org", 19_092)
    config = BrokerConfig(listen=Address("127.0.0.1", 0), advertised=advertised)
    with Broker(tmp_path, config=config) as broker:
        raw = raw_at(broker.bootstrap)
        (metadata,) = raw.request(METADATA, 1, topics=()).brokers
        coordinator = raw.request(10, 0, key="g")
        (described,) = raw.request(60, 0, include_cluster_authorized_operations=False).brokers
        found = {(each.host, each.port) for each in (metadata, coordinator, described)}
        assert found == {("kafka.example.org", 19_092)}


def test_an_open_tls_connection_is_closed_properly_when_the_broker_stops(pem: Pem) -> None:
    with Broker(tls=pem.tls) as broker:
        connection = tls_socket(broker, pem)
    # A connection that was cut would raise SSLEOFError here.
    assert connection.recv(1) == b""
    connection.close()


def test_a_client_that_says_goodbye_is_let_go(encrypted: Broker, pem: Pem) -> None:
    connection = tls_socket(encrypted, pem)
    connection.unwrap().close()


def test_mutual_tls_is_authentication_enough_to_listen_beyond_loopback(pem: Pem, tmp_path: Path) -> None:
    config = BrokerConfig(
        listen=Address("0.0.0.0", 0),  # noqa: S104  # that is the test
        security=SecurityConfig(tls=pem.mutual_tls),
    )
    with Broker(tmp_path, config=config) as broker:
        local = replace(broker.address, host="127.0.0.1")
        certificate = {
            "ssl.certificate.location": str(pem.client_certificate),
            "ssl.key.location": str(pem.client_key),
            "bootstrap.servers": str(local),
        }
        AdminClient(confluent(broker, pem, **certificate)).list_topics(timeout=30)


def test_a_key_that_others_can_read_is_refused(pem: Pem, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(pem.key.read_bytes())
    key.chmod(0o644)
    with pytest.raises(ConfigError, match=r"mode 644.*chmod 600"):
        make_context(replace(pem.tls, key=key))


def test_files_that_are_missing_or_do_not_belong_together_are_refused(pem: Pem, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't read the key"):
        make_context(replace(pem.tls, key=tmp_path / "missing"))
    with pytest.raises(ConfigError, match=r"can't read .*missing"):
        make_context(replace(pem.tls, certificate=tmp_path / "missing"))
    with pytest.raises(ConfigError, match="belong together"):
        make_context(replace(pem.tls, key=pem.client_key))
    with pytest.raises(ConfigError, match="is not a PEM file of certificates"):
        make_context(replace(pem.tls, client_ca=pem.key))
    with pytest.raises(ConfigError, match=r"can't read .*missing"):
        make_context(replace(pem.tls, client_ca=tmp_path / "missing"))
