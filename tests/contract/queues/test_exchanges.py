"""Exchanges of all kinds: where messages go."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from queues.steps import drained, refused_with

NewQueue = Callable[..., str]


@pytest.fixture
def exchange(channel: BlockingChannel, name: str) -> Callable[..., str]:
    """Declare an exchange that goes when its last binding does."""

    def declare(kind: str, suffix: str = "", **arguments: str) -> str:
        channel.exchange_declare(
            name + suffix,
            kind,
            auto_delete=True,
            arguments={key.replace("_", "-"): value for key, value in arguments.items()},
        )
        return name + suffix

    return declare


@pytest.fixture
def queue(channel: BlockingChannel) -> Callable[[], str]:
    """Declare a queue that goes with its connection."""
    return lambda: str(channel.queue_declare("", exclusive=True).method.queue)


def test_a_direct_exchange_goes_by_the_whole_key(
    channel: BlockingChannel, exchange: Callable[..., str], queue: Callable[[], str]
) -> None:
    source, red, green = exchange("direct"), queue(), queue()
    channel.queue_bind(red, source, "red")
    channel.queue_bind(green, source, "green")
    channel.queue_bind(green, source, "red")
    for key in ("red", "green", "blue"):
        channel.basic_publish(source, key, key.encode())
    assert (drained(channel, red), drained(channel, green)) == (["red"], ["red", "green"])


def test_a_fanout_exchange_goes_everywhere_once(
    channel: BlockingChannel, exchange: Callable[..., str], queue: Callable[[], str]
) -> None:
    source, one, two = exchange("fanout"), queue(), queue()
    channel.queue_bind(one, source, "a")
    channel.queue_bind(one, source, "b")
    channel.queue_bind(two, source)
    channel.basic_publish(source, "whatever", b"hello")
    assert (drained(channel, one), drained(channel, two)) == (["hello"], ["hello"])


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("*.orange.*", {"quick.orange.rabbit"}),
        ("lazy.#", {"lazy", "lazy.brown.fox", "lazy.pink.rabbit.male"}),
        ("#", {"quick.orange.rabbit", "lazy", "lazy.brown.fox", "lazy.pink.rabbit.male", "", "a..b"}),
        ("*", {"lazy", ""}),
        ("#.rabbit.#", {"quick.orange.rabbit", "lazy.pink.rabbit.male"}),
        ("*.*.*", {"quick.orange.rabbit", "lazy.brown.fox", "a..b"}),
        ("quick.orange.rabbit", {"quick.orange.rabbit"}),
        ("a.*.b", {"a..b"}),
    ],
)
def test_a_topic_exchange_goes_by_words(
    channel: BlockingChannel,
    exchange: Callable[..., str],
    queue: Callable[[], str],
    pattern: str,
    matching: set[str],
) -> None:
    source, target = exchange("topic"), queue()
    channel.queue_bind(target, source, pattern)
    keys = ("quick.orange.rabbit", "lazy", "lazy.brown.fox", "lazy.pink.rabbit.male", "", "a..b")
    for key in keys:
        channel.basic_publish(source, key, key.encode())
    found = drained(channel, target)
    # RabbitMQ takes an empty key for no word at all.
    assert set(found) - {""} == matching - {""}
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    ("arguments", "headers", "matches"),
    [
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1, "b": "x", "c": True}, True),
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1}, False),
        ({"x-match": "any", "a": 1, "b": "x"}, {"b": "x"}, True),
        ({"x-match": "any", "a": 1}, {"a": 2}, False),
        ({"a": 1}, {"a": 1}, True),
        ({"x-match": "all", "a": None}, {"a": 5}, True),
        ({"x-match": "all"}, {}, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"x-match": "all", "x-ignored": 1, "a": 1}, {"a": 1}, True),
        ({"x-match": "all-with-x", "x-seen": 1, "a": 1}, {"a": 1}, False),
        ({"x-match": "any-with-x", "x-seen": 1}, {"x-seen": 1}, True),
    ],
)
def test_a_headers_exchange_goes_by_headers(
    channel: BlockingChannel,
    exchange: Callable[..., str],
    queue: Callable[[], str],
    arguments: dict[str, object],
    headers: dict[str, object],
    matches: bool,
) -> None:
    source, target = exchange("headers"), queue()
    channel.queue_bind(target, source, arguments=arguments)
    channel.basic_publish(source, "", b"hello", pika.BasicProperties(headers=headers))
    assert drained(channel, target) == (["hello"] if matches else [])


def test_exchanges_can_be_bound_to_each_other_even_in_a_circle(
    channel: BlockingChannel, exchange: Callable[..., str], queue: Callable[[], str]
) -> None:
    first, second, target = exchange("fanout"), exchange("fanout", "-second"), queue()
    channel.exchange_bind(second, first)
    channel.exchange_bind(first, second)
    channel.queue_bind(target, second)
    channel.queue_bind(target, first)
    keeper = queue()
    channel.queue_bind(keeper, first)
    channel.basic_publish(first, "", b"hello")
    assert drained(channel, target) == ["hello"]
    channel.exchange_unbind(second, first)
    channel.queue_unbind(target, first)
    channel.basic_publish(first, "", b"nobody")
    assert (drained(channel, target), drained(channel, keeper)) == ([], ["hello", "nobody"])


def test_what_no_queue_takes_goes_to_the_alternate_exchange(
    channel: BlockingChannel, exchange: Callable[..., str], queue: Callable[[], str]
) -> None:
    alternate, target, other = exchange("fanout", "-alternate"), queue(), queue()
    channel.queue_bind(other, alternate)
    source = exchange("direct", alternate_exchange=alternate)
    channel.queue_bind(target, source, "known")
    channel.basic_publish(source, "known", b"known", mandatory=True)
    channel.basic_publish(source, "unknown", b"unknown", mandatory=True)
    assert (drained(channel, target), drained(channel, other)) == (["known"], ["unknown"])


def test_an_unbound_queue_gets_no_more(
    channel: BlockingChannel, exchange: Callable[..., str], queue: Callable[[], str]
) -> None:
    source, target, keeper = exchange("direct"), queue(), queue()
    channel.queue_bind(keeper, source, "key")
    channel.queue_bind(target, source, "key")
    channel.queue_unbind(target, source, "key")
    channel.queue_unbind(target, source, "never bound")
    channel.basic_publish(source, "key", b"hello")
    assert (drained(channel, target), drained(channel, keeper)) == ([], ["hello"])


def test_an_auto_delete_exchange_goes_with_its_last_binding(
    channel: BlockingChannel, exchange: Callable[..., str], queue: Callable[[], str]
) -> None:
    source, target = exchange("direct"), queue()
    channel.queue_bind(target, source, "key")
    channel.queue_unbind(target, source, "key")
    assert refused_with(lambda: channel.exchange_declare(source, passive=True)) == (404, "NOT_FOUND")


def test_an_internal_exchange_takes_nothing_from_clients(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "fanout", internal=True, auto_delete=True)
    assert refused_with(lambda: channel.basic_publish(name, "", b"hello")) == (403, "ACCESS_REFUSED")


def test_an_exchange_can_not_be_declared_as_another(
    channel: BlockingChannel, exchange: Callable[..., str]
) -> None:
    source = exchange("direct")
    refused = refused_with(lambda: channel.exchange_declare(source, "fanout", auto_delete=True))
    assert refused == (406, "PRECONDITION_FAILED")


def test_exchanges_of_the_server_are_there_and_stay_its_own(connection: BlockingConnection) -> None:
    channel = connection.channel()
    for name in ("amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"):
        channel.exchange_declare(name, passive=True)
    for call in (
        lambda channel: channel.exchange_delete("amq.direct"),
        lambda channel: channel.exchange_declare("amq.new", "direct"),
        lambda channel: channel.queue_bind(channel.queue_declare("", exclusive=True).method.queue, "", "key"),
    ):
        channel = connection.channel()
        assert refused_with(partial(call, channel)) == (403, "ACCESS_REFUSED")


def test_an_exchange_that_is_not_there_is_not_found(connection: BlockingConnection, name: str) -> None:
    channel = connection.channel()
    assert refused_with(lambda: channel.exchange_declare(name, passive=True)) == (404, "NOT_FOUND")
    channel = connection.channel()
    channel.confirm_delivery()
    assert refused_with(lambda: channel.basic_publish(name, "key", b"hello")) == (404, "NOT_FOUND")
    connection.channel().exchange_delete(name)


def test_a_used_exchange_can_be_kept_from_deletion(
    channel: BlockingChannel, exchange: Callable[..., str], queue: Callable[[], str]
) -> None:
    source, target = exchange("direct"), queue()
    channel.queue_bind(target, source, "key")
    refused = refused_with(lambda: channel.exchange_delete(source, if_unused=True))
    assert refused == (406, "PRECONDITION_FAILED")


def test_a_kind_that_there_is_not_ends_the_connection(connection: BlockingConnection, name: str) -> None:
    channel = connection.channel()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        channel.exchange_declare(name, "magic")
    assert closed.value.reply_code == 503
