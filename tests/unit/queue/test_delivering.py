from __future__ import annotations

import json

import pytest

from headrace.queue.fields import write_table
from headrace.queue.limits import QueueLimits
from headrace.queue.listing import LISTING
from headrace.queue.message import Message
from headrace.queue.properties import headers_of, write_properties
from headrace.testing.queues import QueueBench, RecordingSink

LASTING = write_properties(is_persistent=True)


def deaths_of(properties: bytes) -> list[dict[str, object]]:
    """The header x-death."""
    found = headers_of(properties)["x-death"]
    assert isinstance(found, list)
    return found


def publish(bench: QueueBench, queue: str, *bodies: bytes, properties: bytes = LASTING) -> None:
    channel, _ = bench.channel()
    for body in bodies:
        channel.basic_publish("", queue, properties, body)


def test_messages_come_in_their_order_and_no_more_than_the_prefetch(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    channel.queue_declare("q", durable=True)
    publish(bench, "q", b"1", b"2", b"3", b"4")
    channel.basic_qos(2)
    channel.basic_consume("q", "tag")
    assert sink.bodies == []
    bench.run()
    assert sink.bodies == [b"1", b"2"]
    channel.basic_ack(1)
    bench.run()
    assert sink.bodies == [b"1", b"2", b"3"]
    channel.basic_ack(3, multiple=True)
    bench.run()
    assert sink.bodies == [b"1", b"2", b"3", b"4"]
    assert not any(delivery.redelivered for delivery in sink.deliveries)


def test_consumers_take_turns(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    channel.queue_declare("q", durable=True)
    for tag in ("a", "b", "c"):
        channel.basic_consume("q", tag)
    bench.run()
    publish(bench, "q", *(b"%d" % number for number in range(9)))
    bench.run()
    tags = [delivery.consumer_tag for delivery in sink.deliveries]
    assert tags == ["a", "b", "c"] * 3


def test_a_prefetch_of_the_channel_counts_all_its_consumers(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    channel.queue_declare("q", durable=True)
    channel.queue_declare("r", durable=True)
    channel.basic_qos(3, is_global=True)
    channel.basic_qos(2)
    channel.basic_consume("q", "q")
    channel.basic_consume("r", "r")
    publish(bench, "q", b"1", b"2", b"3")
    publish(bench, "r", b"4", b"5", b"6")
    bench.run()
    assert len(sink.deliveries) == 3
    channel.basic_ack(1)
    bench.run()
    assert len(sink.deliveries) == 4


def test_a_changed_prefetch_of_the_channel_holds_at_once(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    channel.queue_declare("q", durable=True)
    channel.basic_qos(1, is_global=True)
    channel.basic_consume("q")
    publish(bench, "q", b"1", b"2", b"3")
    bench.run()
    assert sink.bodies == [b"1"]
    channel.basic_qos(0, is_global=True)
    bench.run()
    assert sink.bodies == [b"1", b"2", b"3"]


def test_the_higher_priority_consumer_gets_all_until_it_is_full(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    channel.queue_declare("q", durable=True)
    channel.basic_qos(2)
    channel.basic_consume("q", "low")
    channel.basic_consume("q", "high", arguments={"x-priority": 5})
    publish(bench, "q", b"1", b"2", b"3")
    bench.run()
    assert [delivery.consumer_tag for delivery in sink.deliveries] == ["high", "high", "low"]


def test_a_single_active_consumer_gets_all_and_the_next_one_when_it_goes(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    channel.queue_declare("q", durable=True, arguments={"x-single-active-consumer": True})
    channel.basic_consume("q", "first")
    channel.basic_consume("q", "second")
    publish(bench, "q", b"1", b"2")
    bench.run()
    channel.basic_cancel("first")
    publish(bench, "q", b"3")
    bench.run()
    assert [delivery.consumer_tag for delivery in sink.deliveries] == ["first", "first", "second"]


def test_what_is_given_back_has_its_old_place_and_the_flag(bench: QueueBench) -> None:
    channel, _ = bench.channel()
    channel.queue_declare("q", durable=True)
    publish(bench, "q", b"1", b"2", b"3", b"4")
    fetched = [bench.get(channel, "q") for _ in range(3)]
    tags = [each.delivery_tag for each in fetched if each is not None]
    channel.basic_nack(tags[2])
    channel.basic_reject(tags[0])
    again = [bench.get(channel, "q") for _ in range(3)]
    assert [(each.message.routing_key, each.redelivered) for each in again if each] == [
        ("q", True),
        ("q", True),
        ("q", False),
    ]
    assert bench.get(channel, "q") is None
    channel.basic_recover()
    bodies = []
    for _ in range(4):
        channel.basic_get("q", lambda f: bodies.append(f and f.message.body), no_ack=True)
        bench.run()
    assert bodies == [b"1", b"2", b"3", b"4"]


def test_a_closed_channel_gives_everything_back_in_order(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    other, there = bench.channel()
    channel.queue_declare("q", durable=True)
    channel.basic_consume("q")
    publish(bench, "q", b"1", b"2", b"3")
    bench.run()
    channel.basic_ack(2)
    other.basic_consume("q")
    channel.close()
    bench.run()
    assert sink.bodies == [b"1", b"2", b"3"]
    assert [(each.body, each.redelivered) for each in there.deliveries] == [(b"1", True), (b"3", True)]


def test_a_paused_connection_and_a_halted_channel_get_nothing(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    channel.queue_declare("q", durable=True)
    channel.basic_consume("q", no_ack=True)
    channel.connection.pause()
    publish(bench, "q", b"1")
    bench.run()
    assert sink.bodies == []
    channel.connection.resume()
    bench.run()
    channel.flow(active=False)
    publish(bench, "q", b"2")
    bench.run()
    assert sink.bodies == [b"1"]
    channel.flow(active=True)
    bench.run()
    assert sink.bodies == [b"1", b"2"]


def test_a_client_that_pauses_within_a_delivery_gets_no_more(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    channel.queue_declare("q", durable=True)
    publish(bench, "q", *[b"x"] * 600)
    told = sink.deliver

    def deliver(consumer_tag: str, delivery_tag: int, redelivered: bool, message: Message) -> None:
        told(consumer_tag, delivery_tag, redelivered, message)
        if len(sink.deliveries) == 300:
            channel.connection.pause()

    sink.deliver = deliver  # type: ignore[method-assign]
    channel.basic_consume("q", no_ack=True)
    bench.run()
    assert len(sink.deliveries) == 300
    channel.connection.resume()
    bench.run()
    assert len(sink.deliveries) == 600


def test_higher_priorities_go_first(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    channel.queue_declare("q", durable=True, arguments={"x-max-priority": 3})
    for priority in (0, 3, 1, 3, 9, None):
        channel.basic_publish(
            "", "q", write_properties(is_persistent=True, priority=priority), str(priority).encode()
        )
    channel.basic_consume("q", no_ack=True)
    bench.run()
    assert sink.bodies == [b"3", b"3", b"9", b"1", b"0", b"None"]


def test_a_commit_does_all_and_a_rollback_nothing(bench: QueueBench) -> None:
    channel, _ = bench.channel()
    channel.queue_declare("q", durable=True)
    publish(bench, "q", b"old")
    channel.tx_select()
    old = bench.get(channel, "q")
    assert old is not None
    channel.basic_publish("", "q", LASTING, b"new")
    channel.basic_ack(old.delivery_tag)
    channel.tx_rollback()
    bench.run()
    info = bench.broker.queue_infos()[0]
    assert (info.ready_count, info.unacked_count) == (0, 1)
    channel.basic_publish("", "q", LASTING, b"new")
    channel.basic_ack(old.delivery_tag)
    assert bench.broker.queue_infos()[0].ready_count == 0
    done: list[bool] = []
    channel.tx_commit()
    bench.broker.when_durable(lambda: done.append(True))
    bench.run()
    assert done
    info = bench.broker.queue_infos()[0]
    assert (info.ready_count, info.unacked_count) == (1, 0)


def test_confirms_cover_what_was_published_and_leave_out_what_was_refused(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    channel.confirm_select()
    channel.queue_declare("q", durable=True, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    for _ in range(4):
        channel.basic_publish("", "q", LASTING, b"")
    channel.basic_publish("", "nowhere", LASTING, b"")
    assert sink.refusals == [(3, False), (4, False)]
    bench.run()
    assert sink.confirms == [(1, False), (2, False), (5, False)]


def test_the_oldest_are_pushed_out_of_a_full_queue(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    channel.queue_declare("dead", durable=True)
    channel.queue_declare(
        "q",
        durable=True,
        arguments={"x-max-length": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    )
    publish(bench, "q", b"1", b"2", b"3", b"4")
    channel.basic_consume("dead", no_ack=True)
    bench.run()
    assert sink.bodies == [b"1", b"2"]
    (death,) = deaths_of(sink.deliveries[0].properties)
    assert (death["reason"], death["queue"], death["count"]) == ("maxlen", "q", 1)


def test_bytes_are_limited_as_well(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    channel.queue_declare("q", durable=True, arguments={"x-max-length-bytes": 5})
    publish(bench, "q", b"12", b"34", b"56")
    channel.basic_consume("q", no_ack=True)
    bench.run()
    assert sink.bodies == [b"34", b"56"]


def test_messages_expire_at_their_time(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    channel.queue_declare("dead", durable=True)
    channel.queue_declare(
        "q",
        durable=True,
        arguments={
            "x-message-ttl": 1000,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        },
    )
    channel.basic_publish("", "q", write_properties(is_persistent=True, expiration="500"), b"own")
    publish(bench, "q", b"queue's")
    channel.basic_consume("dead", no_ack=True)
    bench.run(0.4)
    assert sink.bodies == []
    bench.run(0.2)
    assert sink.bodies == [b"own"]
    bench.run(1.0)
    assert sink.bodies == [b"own", b"queue's"]
    first, second = (deaths_of(each.properties) for each in sink.deliveries)
    assert first[0]["original-expiration"] == "500"
    assert "original-expiration" not in second[0]


def test_a_message_that_lives_no_time_is_for_those_who_wait(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    channel.queue_declare("q", arguments={"x-message-ttl": 0})
    publish(bench, "q", b"nobody")
    assert bench.broker.queue_infos()[0].ready_count == 0
    channel.basic_consume("q", no_ack=True)
    bench.run()
    publish(bench, "q", b"somebody")
    assert sink.bodies == [b"somebody"]


def test_a_queue_that_nobody_uses_goes(bench: QueueBench) -> None:
    channel, _ = bench.channel()
    channel.queue_declare("q", durable=True, arguments={"x-expires": 1000})
    bench.run(0.8)
    channel.queue_declare("q", passive=True)
    tag = channel.basic_consume("q")
    bench.run(5)
    assert len(bench.broker.queue_infos()) == 1
    channel.basic_cancel(tag)
    bench.run(0.8)
    assert len(bench.broker.queue_infos()) == 1
    bench.run(0.4)
    assert bench.broker.queue_infos() == []


def test_a_poison_message_comes_back_so_often_and_then_dies(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    channel.queue_declare("dead", durable=True)
    channel.queue_declare(
        "q",
        durable=True,
        arguments={
            "x-delivery-limit": 2,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        },
    )
    publish(bench, "q", b"poison")
    channel.basic_consume("q", "q")
    for tag in (1, 2, 3):
        bench.run()
        channel.basic_nack(tag)
    channel.basic_consume("dead", "dead")
    bench.run()
    counts = [headers_of(each.properties).get("x-delivery-count") for each in sink.deliveries]
    assert counts == [None, 1, 2, None]
    assert sink.deliveries[-1].consumer_tag == "dead"
    (death,) = deaths_of(sink.deliveries[-1].properties)
    assert death["reason"] == "delivery_limit"


def test_retries_wait_longer_each_time(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    channel.queue_declare(
        "q",
        durable=True,
        arguments={
            "x-headrace-retry-delay-ms": 1000,
            "x-headrace-retry-backoff": 3,
            "x-headrace-retry-delay-max-ms": 5000,
        },
    )
    publish(bench, "q", b"body")
    channel.basic_consume("q")
    bench.run(0.1)
    for tag, delay_s in ((1, 1), (2, 3), (3, 5), (4, 5)):
        assert len(sink.deliveries) == tag
        channel.basic_nack(tag)
        bench.run(delay_s - 0.1)
        assert len(sink.deliveries) == tag
        assert bench.broker.queue_infos()[0].delayed_count == 1
        bench.run(0.2)
        assert len(sink.deliveries) == tag + 1


def test_publishers_are_blocked_while_memory_is_short() -> None:
    bench = QueueBench(limits=QueueLimits(memory_bytes_max=1000))
    told, quiet = RecordingSink(), RecordingSink()
    publisher = bench.connection(sink=told).open_channel(RecordingSink())
    bench.connection(sink=quiet)
    publisher.queue_declare("q")
    for _ in range(11):
        publisher.basic_publish("", "q", LASTING, b"x" * 100)
    assert told.blocks == ["low on memory"]
    late = RecordingSink()
    bench.connection(sink=late).open_channel(RecordingSink()).basic_publish("", "q", LASTING, b"")
    assert late.blocks == ["low on memory"]
    publisher.queue_purge("q")
    assert told.blocks == ["low on memory", None]
    assert quiet.blocks == []


def test_metrics_count_what_happened(bench: QueueBench) -> None:
    channel, _ = bench.channel()
    channel.queue_declare("q", durable=True)
    publish(bench, "q", b"1", b"22", b"333")
    bench.run(2)
    channel.basic_qos(1)
    channel.basic_consume("q")
    bench.run(0.1)
    channel.basic_nack(1)
    bench.run(0.1)
    channel.basic_ack(2)
    bench.run(0.1)
    info = bench.broker.queue_infos()[0]
    assert (info.published_count, info.delivered_count, info.redelivered_count) == (3, 3, 1)
    assert (info.acked_count, info.ready_count, info.unacked_count, info.ready_bytes) == (1, 1, 1, 3)
    assert info.oldest_age_ms is not None
    assert info.oldest_age_ms >= 2000


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_what_a_full_queue_refuses_is_dead_lettered_where_that_was_asked_for(
    bench: QueueBench, overflow: str
) -> None:
    channel, _ = bench.channel()
    channel.queue_declare("dead", durable=True)
    arguments = {
        "x-max-length": 1,
        "x-overflow": overflow,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
    }
    channel.queue_declare("q", durable=True, arguments=arguments)
    publish(bench, "q", b"1", b"2")
    counts = {info.name: info.ready_count for info in bench.broker.queue_infos()}
    assert counts == {"q": 1, "dead": int(overflow == "reject-publish-dlx")}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "not_configured"),
        ({"x-dead-letter-exchange": "nowhere"}, "no_exchange"),
        ({"x-dead-letter-exchange": "amq.direct", "x-dead-letter-routing-key": "unbound"}, "no_route"),
        ({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "full"}, "full"),
    ],
)
def test_a_dead_letter_that_no_queue_takes_is_counted_with_the_reason(
    bench: QueueBench, arguments: dict[str, object], reason: str
) -> None:
    channel, _ = bench.channel()
    channel.queue_declare("q", durable=True, arguments=arguments)
    full: dict[str, object] = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare("full", durable=True, arguments=full)
    publish(bench, "full", b"there already")
    publish(bench, "q", b"body")
    fetched = bench.get(channel, "q")
    assert fetched is not None
    channel.basic_reject(fetched.delivery_tag, requeue=False)
    bench.run()
    info = next(each for each in bench.broker.queue_infos() if each.name == "q")
    assert (info.dead_lettered_count, info.dead_letters_dropped) == (0, {reason: 1})
    listed = bench.get(channel, LISTING)
    assert listed is not None
    rows = {row["queue"]: row["dead_letters_dropped"] for row in json.loads(listed.message.body or b"")}
    assert rows == {"q": {reason: 1}, "full": {}}


def test_a_message_that_would_go_round_for_ever_is_counted_where_it_is_dropped(bench: QueueBench) -> None:
    channel, _ = bench.channel()
    loop: dict[str, object] = {"x-message-ttl": 100, "x-dead-letter-exchange": ""}
    channel.queue_declare("q", durable=True, arguments=loop)
    publish(bench, "q", b"body")
    bench.run(5)
    (info,) = bench.broker.queue_infos()
    assert (info.dead_lettered_count, info.dead_letters_dropped) == (0, {"cycle": 1})


def test_a_dead_letter_that_one_of_two_queues_takes_is_not_dropped(bench: QueueBench) -> None:
    channel, _ = bench.channel()
    channel.queue_declare("q", durable=True, arguments={"x-dead-letter-exchange": "amq.fanout"})
    full: dict[str, object] = {"x-max-length": 1, "x-overflow": "reject-publish"}
    for name, arguments in (("full", full), ("dead", {})):
        channel.queue_declare(name, durable=True, arguments=arguments)
        channel.queue_bind(name, "amq.fanout", "")
    publish(bench, "full", b"there already")
    publish(bench, "q", b"body")
    fetched = bench.get(channel, "q")
    assert fetched is not None
    channel.basic_reject(fetched.delivery_tag, requeue=False)
    bench.run()
    infos = {each.name: each for each in bench.broker.queue_infos()}
    assert (infos["q"].dead_lettered_count, infos["q"].dead_letters_dropped) == (1, {})
    assert (infos["full"].ready_count, infos["dead"].ready_count) == (1, 1)


def test_headers_of_a_message_stay_as_they_were_when_it_dies(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    channel.queue_declare("dead", durable=True)
    channel.queue_declare("q", durable=True, arguments={"x-dead-letter-exchange": "amq.fanout"})
    channel.queue_bind("dead", "amq.fanout", "")
    headers = write_table({"mine": [1, {"a": None}], "CC": ["elsewhere"]})
    channel.basic_publish("", "q", write_properties(headers=headers, is_persistent=True), b"body")
    fetched = bench.get(channel, "q")
    assert fetched is not None
    channel.basic_reject(fetched.delivery_tag, requeue=False)
    channel.basic_consume("dead", no_ack=True)
    bench.run()
    (dead,) = sink.deliveries
    found = headers_of(dead.properties)
    assert (dead.exchange, dead.routing_key, dead.body) == ("amq.fanout", "q", b"body")
    assert found["mine"] == [1, {"a": None}]
    assert found["x-first-death-reason"] == "rejected"
    assert found["x-first-death-queue"] == "q"
    assert found["x-first-death-exchange"] == ""
    (death,) = deaths_of(dead.properties)
    assert death["routing-keys"] == ["q", "elsewhere"]


def test_deaths_are_counted_and_a_cycle_without_a_rejection_ends(bench: QueueBench) -> None:
    channel, sink = bench.channel()
    retry = {"x-message-ttl": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"}
    work = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "retry"}
    channel.queue_declare("retry", durable=True, arguments=retry)
    channel.queue_declare("work", durable=True, arguments=work)
    channel.basic_consume("work")
    publish(bench, "work", b"body")
    for tag in (1, 2, 3):
        bench.run()
        channel.basic_reject(tag, requeue=False)
    bench.run()
    deaths = deaths_of(sink.deliveries[3].properties)
    assert [(each["queue"], each["reason"], each["count"]) for each in deaths] == [
        ("retry", "expired", 3),
        ("work", "rejected", 3),
    ]
    loop = {"x-message-ttl": 100, "x-dead-letter-exchange": ""}
    channel.queue_declare("loop", durable=True, arguments=loop)
    publish(bench, "loop", b"round")
    bench.run()
    assert next(info for info in bench.broker.queue_infos() if info.name == "loop").ready_count == 0


def test_timers_do_not_pile_up() -> None:
    bench = QueueBench()
    channel, _ = bench.channel()
    arguments = {"x-expires": 86_400_000, "x-message-ttl": 5}
    channel.queue_declare("busy", arguments=arguments)
    for number in range(300):
        publish(bench, "busy", b"")
        bench.run(0.02)
        channel.queue_declare(f"short {number}", arguments=arguments)
        channel.queue_delete(f"short {number}")
    assert len(bench.broker.services._timers) < 100
