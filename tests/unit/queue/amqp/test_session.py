"""A session between the wire and the broker: what stops it, what it answers when, and whom it tells what."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands
from pamqp.body import ContentBody

from headrace.queue.amqp.connection import GREETING
from headrace.queue.amqp.session import OUTGOING_BYTES_MAX
from headrace.queue.broker import QueueBroker
from headrace.testing.amqp import publish, start_ok, to_bytes
from headrace.testing.fuzz.queue_checks import PlayedClient, PlayedLoop, new_broker


@pytest.fixture
def broker_and_loop() -> tuple[QueueBroker, PlayedLoop]:
    return new_broker()


def opened(broker_and_loop: tuple[QueueBroker, PlayedLoop], **capabilities: bool) -> PlayedClient:
    client = PlayedClient(*broker_and_loop)
    names = {name.replace("_blocked", ".blocked"): value for name, value in capabilities.items()}
    client.receive(GREETING + start_ok(capabilities=names))
    tuned = commands.Connection.TuneOk(2_047, 131_072, 0)
    client.receive(to_bytes(0, tuned, commands.Connection.Open()) + to_bytes(1, commands.Channel.Open()))
    client.answers()
    return client


def kinds(client: PlayedClient) -> list[type[Any]]:
    return [type(value) for value in client.answers()]


def test_publishers_are_told_of_an_alarm_and_not_read_until_it_is_over(
    broker_and_loop: tuple[QueueBroker, PlayedLoop],
) -> None:
    client, other = opened(broker_and_loop, connection_blocked=True), opened(broker_and_loop)
    broker, _ = broker_and_loop
    client.receive(to_bytes(1, commands.Queue.Declare(queue="q")) + publish(b"one", routing_key="q"))
    client.answers()
    broker.set_alarm("memory", is_on=True)
    client.receive(publish(b"two", routing_key="q"))
    (blocked,) = client.answers()
    assert (type(blocked), blocked.reason) == (commands.Connection.Blocked, "low on memory")
    # Who has published nothing may go on.
    other.receive(to_bytes(1, commands.Queue.Declare(queue="q", passive=True)))
    assert other.answers()[0].message_count == 1
    broker.set_alarm("memory", is_on=False)
    client.receive(b"")
    assert kinds(client) == [commands.Connection.Unblocked]
    other.receive(to_bytes(1, commands.Queue.Declare(queue="q", passive=True)))
    assert other.answers()[0].message_count == 2


def test_who_does_not_understand_is_not_told_of_an_alarm(
    broker_and_loop: tuple[QueueBroker, PlayedLoop],
) -> None:
    client = opened(broker_and_loop)
    client.receive(publish(b"one", routing_key="q"))
    broker_and_loop[0].set_alarm("disk", is_on=True)
    client.receive(b"")
    assert client.answers() == []
    assert client.session.is_blocked


@pytest.mark.parametrize("is_capable", [True, False])
def test_consumers_are_told_that_their_queue_is_gone_if_they_understand(
    broker_and_loop: tuple[QueueBroker, PlayedLoop], is_capable: bool
) -> None:
    client, other = opened(broker_and_loop, consumer_cancel_notify=is_capable), opened(broker_and_loop)
    client.receive(to_bytes(1, commands.Queue.Declare(queue="q"), commands.Basic.Consume(queue="q")))
    client.answers()
    other.receive(to_bytes(1, commands.Queue.Delete(queue="q")))
    client.receive(b"")
    assert kinds(client) == ([commands.Basic.Cancel] if is_capable else [])


def test_deliveries_stop_when_too_much_waits_to_be_written(
    broker_and_loop: tuple[QueueBroker, PlayedLoop],
) -> None:
    client = opened(broker_and_loop)
    client.receive(to_bytes(1, commands.Queue.Declare(queue="q")))
    body = b"x" * 60_000
    for _ in range(30):
        client.receive(publish(body, routing_key="q"))
    client.answers()
    consumer = opened(broker_and_loop)
    consumer.wire.receive(to_bytes(1, commands.Basic.Consume(queue="q", no_ack=True)), 0.0)
    consumer.session.pump()
    broker_and_loop[1].run()
    written = consumer.session.take_outgoing()
    assert len(body) < len(written) < OUTGOING_BYTES_MAX + 2 * len(body)
    # Each time that it was written, more comes, until all of it has come.
    consumer.sent = written
    while consumer.session.resume():
        consumer.receive(b"")
    assert sum(isinstance(value, ContentBody) for value in consumer.answers()) == 30


def test_nothing_more_is_taken_while_an_answer_waits_for_the_disk(
    broker_and_loop: tuple[QueueBroker, PlayedLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened(broker_and_loop)
    waiting: list[Any] = []
    monkeypatch.setattr(broker_and_loop[0], "when_durable", waiting.append)
    client.receive(to_bytes(1, commands.Queue.Declare(queue="q"), commands.Basic.Qos(prefetch_count=1)))
    assert client.answers() == []
    waiting.pop()()
    client.receive(b"")
    assert kinds(client) == [commands.Queue.DeclareOk, commands.Basic.QosOk]


def test_a_refused_method_closes_its_channel_and_gives_back_what_it_held(
    broker_and_loop: tuple[QueueBroker, PlayedLoop],
) -> None:
    client, other = opened(broker_and_loop), opened(broker_and_loop)
    client.receive(to_bytes(1, commands.Queue.Declare(queue="q")) + publish(b"one", routing_key="q"))
    client.receive(to_bytes(1, commands.Basic.Get(queue="q"), commands.Basic.Get(queue="not there")))
    assert client.answers()[-1].reply_code == 404
    other.receive(to_bytes(1, commands.Basic.Get(queue="q")))
    assert other.answers()[0].redelivered


def test_a_client_that_is_gone_leaves_no_exclusive_queue_behind(
    broker_and_loop: tuple[QueueBroker, PlayedLoop],
) -> None:
    client, other = opened(broker_and_loop), opened(broker_and_loop)
    client.receive(to_bytes(1, commands.Queue.Declare(queue="q", exclusive=True)))
    client.receive(to_bytes(0, commands.Connection.Close(200, "", 0, 0)))
    assert kinds(client) == [commands.Queue.DeclareOk, commands.Connection.CloseOk]
    other.receive(to_bytes(1, commands.Queue.Declare(queue="q", passive=True)))
    assert other.answers()[0].reply_code == 404
