from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.errors import QueueRefused
from headrace.queue.channel import Channel
from headrace.queue.limits import QueueLimits
from headrace.queue.properties import write_properties
from headrace.testing.queues import QueueBench

PLAIN = write_properties()
Act = Callable[[Channel], object]


def refusal(act: Act, channel: Channel) -> QueueRefused:
    with pytest.raises(QueueRefused) as caught:
        act(channel)
    return caught.value


@pytest.mark.parametrize(
    ("act", "code", "text", "closes_connection"),
    [
        (lambda c: c.queue_declare("no", passive=True), 404, "NOT_FOUND - no queue 'no' in vhost '/'", False),
        (lambda c: c.exchange_declare("no", "direct", passive=True), 404, "no exchange 'no'", False),
        (lambda c: c.queue_declare("amq.mine"), 403, "contains reserved prefix 'amq.*'", False),
        (lambda c: c.exchange_declare("amq.mine", "direct"), 403, "contains reserved prefix", False),
        (lambda c: c.exchange_declare("", "direct"), 403, "default exchange", False),
        (lambda c: c.exchange_delete("amq.direct"), 403, "deletion of system exchange", False),
        (lambda c: c.exchange_declare("x", "odd"), 503, "unknown exchange type 'odd'", True),
        (lambda c: c.queue_bind("q", "", "k"), 403, "default exchange", False),
        (lambda c: c.queue_bind("no", "amq.direct", "k"), 404, "no queue 'no'", False),
        (lambda c: c.queue_bind("q", "no", "k"), 404, "no exchange 'no'", False),
        (lambda c: c.basic_publish("no", "k", PLAIN, b""), 404, "no exchange 'no'", False),
        (lambda c: c.basic_consume("no"), 404, "no queue 'no'", False),
        (lambda c: c.basic_ack(7), 406, "unknown delivery tag 7", False),
        (lambda c: c.basic_ack(7, multiple=True), 406, "unknown delivery tag 7", False),
        (lambda c: c.basic_qos(1, prefetch_size=1), 540, "prefetch_size!=0", True),
        (lambda c: c.basic_recover(requeue=False), 540, "NOT_IMPLEMENTED", True),
        (lambda c: c.basic_publish("", "q", PLAIN, b"", immediate=True), 540, "immediate=true", True),
        (lambda c: c.tx_commit(), 406, "channel is not transactional", False),
        (lambda c: c.basic_publish("", "q", write_properties(expiration="soon"), b""), 406, "soon", False),
        (lambda c: c.basic_publish("", "q", b"\x80", b""), 502, "cut short", True),
        (lambda c: c.queue_declare("n" * 256), 502, "at most 255", True),
        (lambda c: c.queue_declare("t", arguments={"x-message-ttl": -1}), 406, "x-message-ttl", False),
        (lambda c: c.queue_declare("t", arguments={"x-message-ttl": "1"}), 406, "unacceptable_type", False),
        (lambda c: c.queue_declare("t", arguments={"x-overflow": "odd"}), 406, "x-overflow", False),
        (lambda c: c.queue_declare("t", arguments={"x-max-priority": 256}), 406, "x-max-priority", False),
        (
            lambda c: c.queue_declare("t", arguments={"x-dead-letter-routing-key": "k"}),
            406,
            "routing_key_but_no_dlx_defined",
            False,
        ),
    ],
)
def test_what_can_not_be_is_refused_with_the_code_that_clients_know(
    act: Act, code: int, text: str, closes_connection: bool
) -> None:
    channel, _ = QueueBench().channel()
    channel.queue_declare("q")
    error = refusal(act, channel)
    assert error.reply_code == code
    assert text in error.reply_text
    assert error.closes_connection is closes_connection


@pytest.mark.parametrize(
    ("again", "text"),
    [
        ({"durable": False}, "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false'"),
        ({"auto_delete": True}, "inequivalent arg 'auto_delete'"),
        ({"arguments": {}}, "'x-message-ttl' for queue 'q' in vhost '/': received none but current is"),
        ({"arguments": {"x-message-ttl": 6}}, "received the value '6' of type 'signedint'"),
    ],
)
def test_a_queue_declared_otherwise_is_refused(again: dict[str, object], text: str) -> None:
    channel, _ = QueueBench().channel()
    first: dict[str, object] = {"durable": True, "arguments": {"x-message-ttl": 5}}
    channel.queue_declare("q", **first)  # type: ignore[arg-type]
    channel.queue_declare("q", **first)  # type: ignore[arg-type]
    error = refusal(lambda c: c.queue_declare("q", **(first | again)), channel)  # type: ignore[arg-type]
    assert error.reply_code == 406
    assert text in error.reply_text


def test_an_exchange_declared_otherwise_is_refused() -> None:
    channel, _ = QueueBench().channel()
    channel.exchange_declare("x", "direct")
    channel.exchange_declare("x", "direct")
    error = refusal(lambda c: c.exchange_declare("x", "fanout"), channel)
    assert "inequivalent arg 'type' for exchange 'x'" in error.reply_text


def test_arguments_that_mean_nothing_need_not_agree() -> None:
    channel, _ = QueueBench().channel()
    channel.queue_declare("q", arguments={"x-queue-type": "classic", "note": "one"})
    assert channel.queue_declare("q", arguments={"note": "other"}).name == "q"


def test_an_exclusive_queue_is_locked_for_others_and_goes_with_its_connection() -> None:
    bench = QueueBench()
    owner = bench.connection()
    other, _ = bench.channel()
    mine = owner.open_channel(bench.channel()[1])
    mine.queue_declare("q", exclusive=True)
    for act in (
        lambda c: c.queue_declare("q"),
        lambda c: c.queue_declare("q", passive=True),
        lambda c: c.basic_consume("q"),
        lambda c: c.queue_delete("q"),
        lambda c: c.queue_purge("q"),
        lambda c: c.queue_bind("q", "amq.direct", "k"),
    ):
        assert refusal(act, other).reply_code == 405
    owner.close()
    assert refusal(lambda c: c.queue_declare("q", passive=True), other).reply_code == 404


def test_the_empty_name_is_the_queue_that_was_declared_last() -> None:
    bench = QueueBench()
    channel, _ = bench.channel()
    assert refusal(lambda c: c.queue_purge(""), channel).reply_code == 404
    made = channel.queue_declare("")
    assert made.name.startswith("amq.gen-")
    channel.queue_bind("", "amq.direct", "k")
    channel.basic_publish("amq.direct", "k", PLAIN, b"body")
    assert channel.queue_purge("") == 1


def test_a_queue_in_use_or_with_messages_is_deleted_only_when_that_was_meant() -> None:
    bench = QueueBench()
    channel, sink = bench.channel()
    channel.queue_declare("q")
    channel.basic_publish("", "q", PLAIN, b"body")
    assert refusal(lambda c: c.queue_delete("q", if_empty=True), channel).reply_code == 406
    channel.basic_consume("q", "tag")
    assert refusal(lambda c: c.queue_delete("q", if_unused=True), channel).reply_code == 406
    assert channel.queue_delete("q") == 1
    assert sink.cancels == ["tag"]
    assert channel.queue_delete("q") == 0


def test_an_auto_delete_queue_goes_with_its_last_consumer_and_its_exchange_with_the_last_binding() -> None:
    bench = QueueBench()
    channel, _ = bench.channel()
    channel.exchange_declare("x", "fanout", auto_delete=True)
    channel.queue_declare("q", auto_delete=True)
    channel.queue_bind("q", "x", "")
    first, second = channel.basic_consume("q"), channel.basic_consume("q")
    channel.basic_cancel(first)
    channel.queue_declare("q", passive=True)
    channel.basic_cancel(second)
    assert refusal(lambda c: c.queue_declare("q", passive=True), channel).reply_code == 404
    assert refusal(lambda c: c.exchange_declare("x", "fanout", passive=True), channel).reply_code == 404


def test_an_exchange_in_use_is_deleted_only_when_that_was_meant() -> None:
    bench = QueueBench()
    channel, _ = bench.channel()
    channel.exchange_declare("x", "fanout")
    channel.queue_declare("q")
    channel.queue_bind("q", "x", "")
    assert refusal(lambda c: c.exchange_delete("x", if_unused=True), channel).reply_code == 406
    channel.queue_unbind("q", "x", "")
    channel.exchange_delete("x", if_unused=True)
    channel.exchange_delete("x")


def test_there_is_a_limit_on_everything() -> None:
    limits = QueueLimits(
        queue_count_max=1,
        exchange_count_max=7,
        binding_count_max=1,
        consumer_count_max=1,
        message_bytes_max=10,
    )
    bench = QueueBench(limits=limits)
    channel, _ = bench.channel()
    channel.queue_declare("q")
    channel.queue_bind("q", "amq.direct", "k")
    channel.basic_consume("q")
    channel.exchange_declare("x", "direct")
    assert refusal(lambda c: c.queue_declare("r"), channel).reply_code == 506
    assert refusal(lambda c: c.queue_bind("q", "amq.direct", "l"), channel).reply_code == 506
    assert refusal(lambda c: c.basic_consume("q"), channel).reply_code == 506
    assert refusal(lambda c: c.exchange_declare("y", "direct"), channel).reply_code == 506
    assert refusal(lambda c: c.basic_publish("", "q", PLAIN, b"x" * 11), channel).reply_code == 311


def test_an_unknown_virtual_host_is_refused_and_known_ones_are_apart() -> None:
    bench = QueueBench(limits=QueueLimits(vhosts=("/", "other")))
    with pytest.raises(QueueRefused) as caught:
        bench.connection(vhost="no")
    assert caught.value.reply_code == 530
    here, _ = bench.channel()
    there, _ = bench.channel(vhost="other")
    here.queue_declare("q")
    assert refusal(lambda c: c.queue_declare("q", passive=True), there).reply_code == 404


def test_a_user_id_that_is_not_the_users_is_refused() -> None:
    bench = QueueBench()
    channel, _ = bench.channel(user="ann")
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"\x00\x10\x03ann", b"")
    assert refusal(lambda c: c.basic_publish("", "q", b"\x00\x10\x03bob", b""), channel).reply_code == 406


def test_a_consumer_tag_is_used_once_and_an_exclusive_consumer_is_alone() -> None:
    bench = QueueBench()
    channel, _ = bench.channel()
    other, _ = bench.channel()
    channel.queue_declare("q")
    channel.basic_consume("q", "tag")
    reused = refusal(lambda c: c.basic_consume("q", "tag"), channel)
    assert (reused.reply_code, reused.closes_connection) == (530, True)
    assert refusal(lambda c: c.basic_consume("q", exclusive=True), other).reply_code == 403
    channel.basic_cancel("tag")
    channel.basic_consume("q", exclusive=True)
    assert refusal(lambda c: c.basic_consume("q"), other).reply_code == 403
