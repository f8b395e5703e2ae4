"""The server of queues at work: log-ins, TLS, limits, slow clients, restarts, metrics."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import httpx
import pika
import pytest
import trustme
from pamqp import commands
from pika.exceptions import AMQPConnectionError, ConnectionClosedByBroker, ProbableAuthenticationError

import headrace
from headrace.config import Address, BrokerConfig, QueueConfig, SecurityConfig, TlsConfig
from headrace.errors import ConfigError, UsageError
from headrace.queue.amqp.connection import GREETING
from headrace.testing.amqp import start_ok, to_bytes
from headrace.testing.waiting import eventually

ANY_PORT = Address("127.0.0.1", 0)


def connected(url: str, **options: Any) -> pika.BlockingConnection:
    parameters = pika.URLParameters(url)
    for name, value in options.items():
        setattr(parameters, name, value)
    return pika.BlockingConnection(parameters)


def test_a_broker_serves_queues_where_it_is_asked_to() -> None:
    with headrace.Broker() as broker, pytest.raises(UsageError, match="amqp=True"):
        _ = broker.amqp_url
    with headrace.Broker(amqp=True) as broker, connected(broker.amqp_url) as connection:
        channel = connection.channel()
        channel.queue_declare("work")
        channel.basic_publish("", "work", b"hello")
        assert channel.basic_get("work", auto_ack=True)[2] == b"hello"


def test_the_fixture_gives_the_url_of_fresh_queues(headrace_queues: str) -> None:
    with connected(headrace_queues) as connection:
        assert connection.channel().queue_declare("work").method.message_count == 0


def test_queues_and_messages_are_there_after_a_restart(tmp_path: Path) -> None:
    with headrace.Broker(tmp_path, amqp=True) as broker, connected(broker.amqp_url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("work", durable=True)
        for text in (b"acknowledged", b"held", b"waiting"):
            channel.basic_publish("", "work", text, pika.BasicProperties(delivery_mode=2))
        channel.basic_publish("", "work", b"transient", pika.BasicProperties(delivery_mode=1))
        channel.basic_get("work", auto_ack=True)
        channel.basic_get("work")
    with headrace.Broker(tmp_path, amqp=True) as broker, connected(broker.amqp_url) as connection:
        channel = connection.channel()
        found = [channel.basic_get("work", auto_ack=True) for _ in range(3)]
    assert [(body, method and method.redelivered) for method, _, body in found] == [
        (b"held", True),
        (b"waiting", False),
        (None, None),
    ]


def test_users_of_the_broker_are_those_of_the_queues() -> None:
    with headrace.Broker(users={"ann": "sec/ret"}, amqp=True) as broker:
        with connected(broker.amqp_url) as connection:
            connection.channel().queue_declare("work")
        for url in (
            broker.amqp_url.replace("sec%2Fret", "wrong"),
            broker.amqp_url.replace("ann:sec%2Fret", "guest:guest"),
        ):
            with pytest.raises((ProbableAuthenticationError, ConnectionClosedByBroker)) as refused:
                connected(url)
            assert "ACCESS_REFUSED" in str(refused.value)


def test_without_users_a_guest_is_let_in_and_nobody_else(headrace_queues: str) -> None:
    with pytest.raises((ProbableAuthenticationError, ConnectionClosedByBroker)):
        connected(headrace_queues.replace("guest:guest", "ann:guest"))


def test_connections_are_encrypted_where_there_is_a_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = tmp_path / "broker.pem", tmp_path / "broker.key"
    issued.cert_chain_pems[0].write_to_path(certificate)
    key.touch(mode=0o600)
    issued.private_key_pem.write_to_path(key)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with headrace.Broker(tls=TlsConfig(certificate=certificate, key=key), amqp=True) as broker:
        assert broker.amqp_url.startswith("amqps://")
        with connected(broker.amqp_url, ssl_options=pika.SSLOptions(context, "127.0.0.1")) as connection:
            connection.channel().queue_declare("work")
        with pytest.raises(AMQPConnectionError):
            connected(broker.amqp_url.replace("amqps", "amqp"))


@pytest.mark.parametrize("users_file", [None, Path("users")])
def test_anything_but_loopback_needs_authentication_and_encryption(users_file: Path | None) -> None:
    with pytest.raises(ConfigError, match=r"refusing to serve queues on 0\.0\.0\.0:5672"):
        BrokerConfig(
            queues=QueueConfig(listen=Address("0.0.0.0", 5672)),  # noqa: S104  # It is refused.
            security=SecurityConfig(users_file=users_file),
        )


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        config = BrokerConfig(listen=ANY_PORT, queues=QueueConfig(listen=address))
        with pytest.raises(ConfigError, match="for AMQP"):
            headrace.Broker(tmp_path, config=config).start()


def small(tmp_path: Path, **settings: Any) -> headrace.Broker:
    config = BrokerConfig(listen=ANY_PORT, queues=QueueConfig(listen=ANY_PORT), **settings)
    return headrace.Broker(tmp_path, config=config)


def test_no_more_connections_than_allowed_are_taken(tmp_path: Path) -> None:
    with small(tmp_path, connection_count_max=1) as broker:
        with connected(broker.amqp_url), pytest.raises(AMQPConnectionError):
            connected(broker.amqp_url)
        eventually(lambda: can_connect(broker.amqp_url))


def can_connect(url: str) -> bool:
    try:
        connected(url).close()
    except AMQPConnectionError:
        return False
    return True


def test_a_client_that_never_logs_in_is_let_go(tmp_path: Path) -> None:
    with small(tmp_path, authentication_wait_ms_max=200) as broker:
        port = pika.URLParameters(broker.amqp_url).port
        with socket.create_connection(("127.0.0.1", port), timeout=60) as stranger:
            stranger.sendall(GREETING)
            while stranger.recv(4096):
                pass


def test_a_message_above_the_limit_closes_its_channel(tmp_path: Path) -> None:
    config = BrokerConfig(listen=ANY_PORT, queues=QueueConfig(listen=ANY_PORT, message_bytes_max=1000))
    with headrace.Broker(tmp_path, config=config) as broker, connected(broker.amqp_url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("work")
        channel.basic_publish("", "work", b"x" * 1000)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="PRECONDITION_FAILED"):
            channel.basic_publish("", "work", b"x" * 1001)


def test_a_consumer_that_takes_nothing_does_not_fill_the_memory(tmp_path: Path) -> None:
    with headrace.Broker(amqp=True) as broker, connected(broker.amqp_url) as connection:
        channel = connection.channel()
        channel.queue_declare("work")
        body = b"x" * 100_000
        for _ in range(300):
            channel.basic_publish("", "work", body)
        eventually(lambda: channel.queue_declare("work", passive=True).method.message_count == 300)
        with lazy_consumer(broker.amqp_url) as lazy:
            # Some are on their way to it, as far as the system's buffers go, and the rest stays.
            eventually(lambda: channel.queue_declare("work", passive=True).method.message_count < 300)
            assert channel.queue_declare("work", passive=True).method.message_count > 50
            count = 0
            while count < 300 * len(body):
                count += len(lazy.recv(1 << 20))
        eventually(lambda: channel.queue_declare("work", passive=True).method.message_count == 300)


def lazy_consumer(url: str) -> socket.socket:
    """A consumer without limits that has read all answers but for deliveries."""
    stranger = socket.socket()
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    stranger.settimeout(60)
    stranger.connect(("127.0.0.1", pika.URLParameters(url).port))
    stranger.sendall(GREETING + start_ok())
    tuned = commands.Connection.TuneOk(2_047, 131_072, 0)
    stranger.sendall(to_bytes(0, tuned, commands.Connection.Open()))
    stranger.sendall(to_bytes(1, commands.Channel.Open(), commands.Basic.Consume(queue="work")))
    return stranger


def metrics_of(broker: headrace.Broker) -> dict[str, float]:
    lines = httpx.get(broker.metrics_url).text.splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")
    }


def test_queues_are_among_the_metrics() -> None:
    with headrace.Broker(amqp=True, metrics=True) as broker, connected(broker.amqp_url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("work")
        for text in (b"one", b"two", b"three"):
            channel.basic_publish("", "work", text)
        channel.basic_get("work")
        channel.basic_get("work", auto_ack=True)
        channel.queue_declare("strict", arguments={"x-dead-letter-exchange": "nowhere"})
        channel.basic_publish("", "strict", b"bad")
        rejected, _, _ = channel.basic_get("strict")
        channel.basic_reject(rejected.delivery_tag, requeue=False)
        channel.queue_declare("work", passive=True)
        found = metrics_of(broker)
        dropped = '{queue="strict",reason="no_exchange",vhost="/"}'
        assert found[f"headrace_queue_dead_letters_dropped_total{dropped}"] == 1
        labels = '{queue="work",vhost="/"}'
        assert found[f"headrace_queue_messages_ready{labels}"] == 1
        assert found[f"headrace_queue_messages_unacknowledged{labels}"] == 1
        assert found[f"headrace_queue_published_total{labels}"] == 3
        assert found["headrace_amqp_connections"] == 1
        assert found["headrace_amqp_channels"] == 1
        assert found['headrace_amqp_logins_total{mechanism="PLAIN",outcome="success"}'] == 1


def test_every_number_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "monitor-the-broker.md").read_text()
    with headrace.Broker(amqp=True, metrics=True) as broker, connected(broker.amqp_url) as connection:
        connection.channel().queue_declare("work")
        names = {name.partition("{")[0].removeprefix("headrace_") for name in metrics_of(broker)}
    queues = {
        name for name in names if name.startswith(("queue", "amqp", "publishing")) and "_created" not in name
    }
    assert len(queues) > 15
    assert {name for name in queues if f"`{name}`" not in page} == set()


def test_clients_are_told_that_the_broker_stops() -> None:
    broker = headrace.Broker(amqp=True).start()
    connection = connected(broker.amqp_url)
    broker.stop()
    with pytest.raises(ConnectionClosedByBroker, match="CONNECTION_FORCED"):
        connection.process_data_events(60)


def test_many_channels_and_clients_share_a_queue(headrace_queues: str) -> None:
    with connected(headrace_queues) as one, connected(headrace_queues) as other:
        one.channel().queue_declare("work")
        for connection in (one, other):
            for _ in range(20):
                connection.channel().basic_publish("", "work", b"x")
        channel = other.channel()
        eventually(lambda: channel.queue_declare("work", passive=True).method.message_count == 40)
