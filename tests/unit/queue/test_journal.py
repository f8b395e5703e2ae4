from __future__ import annotations

import errno

import pytest

from headrace.errors import CorruptBatch, QueueRefused
from headrace.queue.channel import TX_BYTES_MAX
from headrace.queue.fields import write_table
from headrace.queue.journal_format import value_of, write_record
from headrace.queue.limits import QueueLimits
from headrace.queue.properties import headers_of, write_properties
from headrace.testing.disk import SimulatedDisk
from headrace.testing.queues import QueueBench

LASTING = write_properties(is_persistent=True)
PASSING = write_properties()
SMALL = QueueLimits(journal_segment_bytes=20_000, resident_count_max=8, resident_count_all_max=1)


def contents(bench: QueueBench, queue: str) -> list[tuple[bytes, bool]]:
    """What is in a queue, and whether it is flagged; it is taken out."""
    channel, sink = bench.channel()
    channel.basic_consume(queue, no_ack=True)
    bench.run()
    channel.close()
    return [(each.body, each.redelivered) for each in sink.deliveries]


def test_a_publish_is_confirmed_when_it_is_on_disk_and_not_before(stored: QueueBench) -> None:
    channel, sink = stored.channel()
    channel.queue_declare("q", durable=True)
    stored.run()
    channel.confirm_select()
    channel.basic_publish("", "q", LASTING, b"kept")
    stored.broker.flush()
    assert stored.engine is not None
    assert stored.engine.log.durable_offset < stored.engine.log.end_offset
    assert sink.confirms == []
    stored.run()
    assert sink.confirms == [(1, False)]
    stored.lose_power()
    stored.open()
    assert contents(stored, "q") == [(b"kept", False)]


def test_messages_that_are_not_persistent_or_in_queues_that_are_not_durable_go_with_the_process(
    stored: QueueBench,
) -> None:
    channel, _ = stored.channel()
    channel.queue_declare("q", durable=True)
    channel.queue_declare("passing")
    channel.queue_declare("mine", durable=True, exclusive=True)
    for queue in ("q", "passing", "mine"):
        channel.basic_publish("", queue, PASSING, b"passing")
        channel.basic_publish("", queue, LASTING, b"lasting")
    stored.run()
    stored.restart()
    assert [info.name for info in stored.broker.queue_infos()] == ["q"]
    assert contents(stored, "q") == [(b"lasting", False)]


def test_what_is_declared_survives_and_what_was_deleted_does_not(stored: QueueBench) -> None:
    channel, _ = stored.channel()
    channel.exchange_declare("x", "topic", durable=True, arguments={"alternate-exchange": "amq.fanout"})
    channel.exchange_declare("gone", "topic", durable=True)
    channel.queue_declare("q", durable=True, arguments={"x-message-ttl": 60_000, "x-max-priority": 3})
    channel.queue_declare("gone", durable=True)
    channel.queue_bind("q", "x", "a.#", {"note": [1, "two"]})
    channel.queue_bind("q", "gone", "a")
    channel.queue_bind("q", "x", "b")
    channel.exchange_bind("amq.topic", "x", "c")
    channel.queue_unbind("q", "x", "b")
    channel.exchange_delete("gone")
    channel.queue_delete("gone")
    stored.run()
    stored.restart()
    vhost = stored.broker.vhosts["/"]
    assert set(vhost.exchanges) == {
        "", "amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match", "x"
    }  # fmt: skip
    bindings = {(b.destination.name, b.routing_key) for b in vhost.exchanges["x"].bindings.values()}
    assert bindings == {("q", "a.#"), ("amq.topic", "c")}
    again, _ = stored.channel()
    again.queue_declare("q", durable=True, arguments={"x-message-ttl": 60_000, "x-max-priority": 3})
    again.exchange_declare("x", "topic", durable=True, arguments={"alternate-exchange": "amq.fanout"})


def test_what_was_delivered_comes_back_flagged_after_a_crash(stored: QueueBench) -> None:
    channel, sink = stored.channel()
    channel.queue_declare("q", durable=True)
    for number in range(20):
        channel.basic_publish("", "q", LASTING, b"%d" % number)
    channel.basic_qos(3)
    channel.basic_consume("q")
    stored.run()
    channel.basic_ack(2)
    stored.run()
    assert sink.bodies == [b"0", b"1", b"2", b"3"]
    stored.lose_power()
    stored.open()
    found = contents(stored, "q")
    assert [body for body, _ in found] == [b"0", *(b"%d" % number for number in range(2, 20))]
    assert [flag for body, flag in found if body in {b"0", b"2", b"3"}] == [True] * 3
    assert found[-1] == (b"19", False)


def test_nothing_stored_is_delivered_before_a_crash_would_flag_it(stored: QueueBench) -> None:
    channel, sink = stored.channel()
    channel.queue_declare("q", durable=True)
    stored.run()
    channel.basic_consume("q")
    channel.basic_publish("", "q", LASTING, b"first")
    stored.broker.flush()
    assert sink.deliveries == []
    stored.run()
    assert sink.bodies == [b"first"]


def test_after_an_orderly_stop_only_what_was_delivered_is_flagged(stored: QueueBench) -> None:
    channel, _ = stored.channel()
    channel.queue_declare("q", durable=True)
    for number in range(6):
        channel.basic_publish("", "q", LASTING, b"%d" % number)
    channel.basic_qos(3)
    channel.basic_consume("q")
    stored.run()
    stored.restart()
    assert [flag for _, flag in contents(stored, "q")] == [True] * 3 + [False] * 3


def test_how_often_a_message_came_back_survives(stored: QueueBench) -> None:
    channel, _ = stored.channel()
    channel.queue_declare("q", durable=True, arguments={"x-delivery-limit": 2})
    channel.basic_publish("", "q", LASTING, b"poison")
    for _ in range(2):
        fetched = stored.get(channel, "q")
        assert fetched is not None
        channel.basic_nack(fetched.delivery_tag)
    stored.run()
    stored.lose_power()
    stored.open()
    channel, _ = stored.channel()
    fetched = stored.get(channel, "q")
    assert fetched is not None
    assert headers_of(fetched.message.properties)["x-delivery-count"] == 2
    channel.basic_nack(fetched.delivery_tag)
    assert stored.get(channel, "q") is None


def test_a_message_of_several_queues_is_written_once(stored: QueueBench) -> None:
    channel, _ = stored.channel()
    for name in ("a", "b", "c"):
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, "amq.fanout", "")
    stored.run()
    assert stored.engine is not None
    before = stored.engine.log.size_bytes
    channel.basic_publish("amq.fanout", "", LASTING, b"x" * 10_000)
    stored.run()
    assert stored.engine.log.size_bytes - before < 11_000
    stored.kill()
    stored.open()
    assert contents(stored, "a") == [(b"x" * 10_000, False)]
    stored.run()
    stored.kill()
    stored.open()
    assert [info.ready_count for info in stored.broker.queue_infos()] == [0, 1, 1]


def test_a_purge_leaves_what_is_held(stored: QueueBench) -> None:
    channel, _ = stored.channel()
    channel.queue_declare("q", durable=True)
    for number in range(5):
        channel.basic_publish("", "q", LASTING, b"%d" % number)
    assert stored.get(channel, "q") is not None
    assert channel.queue_purge("q") == 4
    channel.basic_publish("", "q", LASTING, b"new")
    stored.run()
    stored.lose_power()
    stored.open()
    assert [body for body, _ in contents(stored, "q")] == [b"0", b"new"]


def test_a_commit_is_there_whole_or_not_at_all() -> None:
    whole = 0
    for seed in range(40):
        bench = QueueBench(disk=SimulatedDisk(), seed=seed)
        channel, _ = bench.channel()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", LASTING, b"old")
        bench.run()
        channel.tx_select()
        old = bench.get(channel, "q")
        assert old is not None
        for number in range(5):
            channel.basic_publish("", "q", LASTING, b"%d" % number * 300)
        channel.basic_ack(old.delivery_tag)
        channel.tx_commit()
        bench.broker.flush()
        bench.lose_power()
        bench.open()
        found = [body for body, _ in contents(bench, "q")]
        assert found in ([b"old"], [b"%d" % number * 300 for number in range(5)])
        whole += found != [b"old"]
    assert 0 < whole < 40


def test_a_commit_with_a_large_message_at_its_end_is_there_whole_or_not_at_all() -> None:
    large = bytes(16 * 1024 * 1024)
    whole = 0
    for seed in range(8):
        bench = QueueBench(disk=SimulatedDisk(), seed=seed)
        channel, _ = bench.channel()
        for queue in ("q", "position"):
            channel.queue_declare(queue, durable=True)
        channel.basic_publish("", "position", LASTING, b"before")
        bench.run()
        channel.tx_select()
        old = bench.get(channel, "position")
        assert old is not None
        channel.basic_publish("", "position", LASTING, b"after")
        channel.basic_publish("", "q", LASTING, large)
        channel.basic_ack(old.delivery_tag)
        channel.tx_commit()
        bench.broker.flush()
        bench.lose_power()
        bench.open()
        found = {info.name: info.ready_count for info in bench.broker.queue_infos()}
        [(position, _)] = contents(bench, "position")
        assert (position, found) in (
            (b"before", {"position": 1, "q": 0}),
            (b"after", {"position": 1, "q": 1}),
        )
        whole += position == b"after"
    assert 0 < whole < 8


def test_nothing_is_published_in_a_transaction_after_its_limit(stored: QueueBench) -> None:
    channel, _ = stored.channel()
    channel.queue_declare("q", durable=True)
    channel.tx_select()
    channel.basic_publish("", "q", LASTING, bytes(TX_BYTES_MAX))
    with pytest.raises(QueueRefused, match="none after 4194304 bytes"):
        channel.basic_publish("", "q", LASTING, b"")


def test_a_dead_letter_is_in_one_of_its_queues_after_a_crash_and_never_in_none() -> None:
    moved = 0
    for seed in range(40):
        bench = QueueBench(disk=SimulatedDisk(), seed=seed)
        channel, _ = bench.channel()
        channel.queue_declare("dead", durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("q", durable=True, arguments=arguments)
        channel.basic_publish("", "q", LASTING, b"body" * 400)
        fetched = bench.get(channel, "q")
        assert fetched is not None
        bench.run()
        channel.basic_reject(fetched.delivery_tag, requeue=False)
        bench.broker.flush()
        bench.lose_power()
        bench.open()
        counts = {info.name: info.ready_count for info in bench.broker.queue_infos()}
        assert counts in ({"dead": 0, "q": 1}, {"dead": 1, "q": 0})
        moved += counts["dead"]
    assert 0 < moved < 40


def test_space_is_given_back_and_what_waits_is_kept_in_order() -> None:
    bench = QueueBench(disk=SimulatedDisk(), limits=SMALL)
    assert bench.engine is not None
    channel, _ = bench.channel()
    channel.exchange_declare("x", "fanout", durable=True)
    for name in ("old", "busy"):
        channel.queue_declare(name, durable=True, arguments={"x-delivery-limit": 9})
        channel.queue_bind(name, "x", name)
    for number in range(20):
        channel.basic_publish("", "old", LASTING, b"%d" % number)
    fetched = bench.get(channel, "old")
    assert fetched is not None
    channel.basic_nack(fetched.delivery_tag)
    held = bench.get(channel, "old")
    assert held is not None
    channel.basic_consume("busy", no_ack=True)
    for number in range(300):
        channel.basic_publish("", "busy", LASTING, b"x" * 1000)
        if number % 15 == 0:
            # What is copied to the journal's end lies behind these, and comes before them.
            channel.basic_publish("", "old", LASTING, b"%d" % (20 + number // 15))
        bench.run(0.05)
    assert bench.engine.log.start_offset > 0
    assert bench.engine.log.size_bytes < 120_000
    for end in (bench.kill, bench.lose_power):
        end()
        bench.open()
        bench.run()
    found = contents(bench, "old")
    assert [body for body, _ in found] == [b"%d" % number for number in range(40)]
    assert found[0][1]
    assert len(bench.broker.vhosts["/"].exchanges["x"].bindings) == 2


def test_what_was_held_while_its_place_moved_can_be_given_back() -> None:
    bench = QueueBench(disk=SimulatedDisk(), limits=SMALL)
    channel, sink = bench.channel()
    channel.queue_declare("old", durable=True)
    channel.queue_declare("busy", durable=True)
    for number in range(30):
        channel.basic_publish("", "old", LASTING, b"%d" % number)
    channel.basic_qos(5)
    channel.basic_consume("old", "old")
    channel.basic_qos(0)
    bench.run()
    channel.basic_consume("busy", "busy", no_ack=True)
    for _ in range(200):
        channel.basic_publish("", "busy", LASTING, b"x" * 1000)
        bench.run(0.05)
    assert bench.engine is not None
    assert bench.engine.log.start_offset > 0
    channel.basic_recover()
    channel.basic_cancel("old")
    bench.run()
    channel.basic_recover()
    assert sink.bodies[:5] == [b"%d" % number for number in range(5)]
    assert [body for body, _ in contents(bench, "old")] == [b"%d" % number for number in range(30)]


def test_messages_that_are_all_headers_are_not_copied_again_and_again() -> None:
    bench = QueueBench(disk=SimulatedDisk(), limits=SMALL)
    channel, _ = bench.channel()
    channel.queue_declare("q", durable=True)
    properties = write_properties(headers=write_table({"h": "x" * 2000}), is_persistent=True)
    for _ in range(60):
        channel.basic_publish("", "q", properties, b"")
        bench.run(0.05)
    for _ in range(2):
        assert bench.engine is not None
        before = bench.engine.log.end_offset
        bench.run(60)
        assert bench.engine.log.end_offset == before
        bench.restart()
    assert len(contents(bench, "q")) == 60


def test_many_transient_messages_are_written_to_save_memory_and_still_vanish() -> None:
    bench = QueueBench(disk=SimulatedDisk(), limits=SMALL)
    channel, sink = bench.channel()
    channel.queue_declare("q", durable=True)
    for number in range(50):
        channel.basic_publish("", "q", PASSING, b"%d" % number * 20)
    bench.run()
    assert bench.broker.memory.used_bytes < 50 * 20
    channel.basic_qos(20)
    channel.basic_consume("q")
    bench.run()
    assert sink.bodies == [b"%d" % number * 20 for number in range(20)]
    bench.restart()
    assert contents(bench, "q") == []


def test_when_the_disk_fails_publishers_are_refused_and_nothing_more_is_confirmed(stored: QueueBench) -> None:
    channel, sink = stored.channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_select()
    stored.run()
    assert stored.disk is not None
    stored.disk.fail("sync_file", errno.EIO)
    channel.basic_publish("", "q", LASTING, b"1")
    channel.basic_publish("", "q", LASTING, b"2")
    stored.run()
    assert sink.refusals == [(2, True)]
    channel.basic_publish("", "q", LASTING, b"3")
    stored.run()
    assert sink.confirms == []
    assert len(stored.failures) == 1
    assert stored.broker.is_failed


def test_a_value_is_read_as_it_was_written_and_damage_is_told() -> None:
    record = write_record([b"ab", b"c"], 3)
    assert value_of(bytes(61) + record) == b"abc"
    with pytest.raises(CorruptBatch):
        value_of(bytes(61) + record[:-2])


def test_a_journal_with_an_unknown_operation_is_not_taken_for_an_empty_one(stored: QueueBench) -> None:
    assert stored.engine is not None
    stored.engine.journal._tell(b"?")
    stored.engine.journal.flush()
    stored.run()
    stored.kill()
    with pytest.raises(CorruptBatch, match="unknown operation 63"):
        stored.open()
