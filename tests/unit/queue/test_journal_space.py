"""What the journal keeps when its beginning goes, and what it knows after restarts."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from headrace.queue.limits import QueueLimits
from headrace.queue.properties import write_properties
from headrace.queue.reclaiming import STEP_COUNT
from headrace.testing.disk import SimulatedDisk
from headrace.testing.queues import QueueBench

if TYPE_CHECKING:
    from headrace.queue.channel import Channel
    from headrace.queue.engine import QueueEngine

LASTING = write_properties(is_persistent=True)
SMALL = QueueLimits(journal_segment_bytes=20_000, resident_count_max=8, resident_count_all_max=1)


def new_bench(limits: QueueLimits = SMALL) -> tuple[QueueBench, QueueEngine]:
    """A bench with a journal."""
    bench = QueueBench(disk=SimulatedDisk(), limits=limits)
    assert bench.engine is not None
    return bench, bench.engine


def fill(bench: QueueBench, channel: Channel, queue: str, *, count: int, body: bytes = b"x" * 900) -> None:
    """Publish messages, a few to a batch."""
    for number in range(count):
        channel.basic_publish("", queue, LASTING, body)
        if number % 5 == 4:
            bench.run(0.05)
    bench.run()


def flags(bench: QueueBench, queue: str) -> list[bool]:
    """Whether each message of a queue is flagged as redelivered; they are taken out."""
    channel, sink = bench.channel()
    channel.basic_consume(queue, no_ack=True)
    bench.run()
    channel.close()
    return [each.redelivered for each in sink.deliveries]


def test_what_was_delivered_before_a_crash_stays_flagged_through_orderly_restarts() -> None:
    bench, _ = new_bench(QueueLimits())
    channel, sink = bench.channel()
    channel.queue_declare("q", durable=True)
    for number in range(1300):
        channel.basic_publish("", "q", LASTING, b"%d" % number)
    channel.basic_qos(1200)
    channel.basic_consume("q")
    bench.run(5)
    assert len(sink.deliveries) == 1200
    bench.lose_power()
    bench.open()
    bench.restart()
    bench.restart()
    found = flags(bench, "q")
    assert len(found) == 1300
    assert found[:1200] == [True] * 1200


def test_a_binding_goes_with_its_queue_though_the_journal_has_forgotten_the_queue() -> None:
    bench, engine = new_bench()
    channel, _ = bench.channel()
    channel.queue_declare("q", durable=True)
    channel.exchange_declare("to", "fanout", durable=True)
    channel.queue_declare("other", durable=True)
    bench.run()
    fill(bench, channel, "other", count=25)
    channel.exchange_declare("x", "fanout", durable=True)
    channel.queue_bind("q", "x", "")
    channel.exchange_bind("to", "x", "")
    channel.queue_delete("q")
    channel.exchange_delete("to")
    bench.run()
    reclaiming = engine._reclaiming
    look = reclaiming.look
    reclaiming.look = lambda: look() if not reclaiming.reclaimed_count else None  # type: ignore[method-assign]
    fill(bench, channel, "other", count=25)
    channel.queue_purge("other")
    bench.run()
    assert reclaiming.reclaimed_count == 1
    bench.kill()
    bench.open()
    vhost = bench.broker.vhosts["/"]
    assert vhost.exchanges["x"].bindings == {}
    assert vhost.binding_count == 0


def test_small_messages_that_wait_do_not_keep_the_space_of_large_ones_that_are_gone() -> None:
    bench, engine = new_bench()
    channel, _ = bench.channel()
    channel.queue_declare("small", durable=True)
    channel.queue_declare("large", durable=True)
    for number in range(300):
        channel.basic_publish("", "small", LASTING, b"s")
        if number % 5 == 0:
            channel.basic_publish("", "large", LASTING, b"x" * 3000)
            bench.run(0.05)
    channel.queue_purge("large")
    bench.run()
    assert engine.log.size_bytes < 80_000
    bench.kill()
    bench.open()
    assert len(flags(bench, "small")) == 300


def test_what_counts_as_needed_is_what_is_needed_now_and_after_restarts() -> None:
    bench, engine = new_bench()
    channel, _ = bench.channel()
    for name in ("a", "b"):
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, "amq.fanout", "")
    for number in range(600):
        channel.basic_publish("amq.fanout", "", LASTING, b"x" * (number % 90))
        channel.basic_publish("", "a", LASTING, b"y" * number)
        if number % 5 == 0:
            bench.run(0.05)
    bench.run()
    before_bytes = engine.journal.needed.live_bytes
    assert engine.journal.written_bytes * 0.8 < before_bytes < engine.journal.written_bytes
    bench.restart()
    assert bench.engine is not None
    assert bench.engine.journal.needed.live_bytes == before_bytes
    flags(bench, "a")
    flags(bench, "b")
    assert bench.engine.journal.needed.live_bytes == 0


def test_the_journal_does_not_write_itself_again_and_again_whatever_it_takes_for_needed() -> None:
    bench, engine = new_bench()
    channel, _ = bench.channel()
    channel.queue_declare("q", durable=True)
    fill(bench, channel, "q", count=100)
    engine.journal.needed.live_bytes -= 10**9
    fill(bench, channel, "q", count=5)
    bench.run(60)
    before = engine._reclaiming.reclaimed_count
    assert before > 0
    bench.run(60)
    assert engine._reclaiming.reclaimed_count == before
    assert len(flags(bench, "q")) == 105


def test_space_is_given_back_in_steps_though_all_of_it_was_written_at_once() -> None:
    bench, engine = new_bench()
    channel, _ = bench.channel()
    channel.queue_declare("small", durable=True)
    channel.queue_declare("large", durable=True)
    for number in range(2000):
        channel.basic_publish("", "small", LASTING, b"%d" % number)
    bench.run()
    moved_at_once = []
    flush = engine.journal.flush

    def counting_flush() -> None:
        moved_at_once.append(len(engine.journal._after_flush))
        flush()

    engine.broker.services.flush = engine.journal.flush = counting_flush  # type: ignore[method-assign]
    fill(bench, channel, "large", count=400)
    channel.queue_purge("large")
    fill(bench, channel, "large", count=5)
    assert sum(moved_at_once) >= 2000
    assert max(moved_at_once) <= STEP_COUNT
    bench.kill()
    bench.open()
    consumer, sink = bench.channel()
    consumer.basic_consume("small")
    bench.run()
    assert sink.bodies == [b"%d" % number for number in range(2000)]


def test_a_large_queue_is_purged_at_once_and_its_space_counted_in_pieces() -> None:
    bench, engine = new_bench(QueueLimits(journal_segment_bytes=400_000))
    channel, _ = bench.channel()
    for name in ("a", "b"):
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, "amq.fanout", "")
    for _ in range(9_000):
        channel.basic_publish("amq.fanout", "", LASTING, b"")
    bench.run()
    needed = engine.journal.needed
    before_bytes = needed.live_bytes
    assert channel.queue_purge("a") == 9_000
    assert needed.live_bytes > before_bytes / 2
    assert bench.get(channel, "a") is None
    bench.run()
    assert needed.live_bytes == before_bytes / 2
    channel.queue_delete("b")
    bench.run()
    assert needed.live_bytes == 0
    bench.kill()
    bench.open()
    assert {info.name: info.ready_count for info in bench.broker.queue_infos()} == {"a": 0}


def test_space_is_given_back_later_while_a_large_queue_is_still_being_purged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, engine = new_bench(QueueLimits(journal_segment_bytes=400_000))
    channel, _ = bench.channel()
    channel.queue_declare("q", durable=True)
    for number in range(20_000):
        channel.basic_publish("", "q", LASTING, b"")
        if number % 100 == 0:
            bench.run(0.05)
    bench.run()
    size_bytes = engine.journal.log.size_bytes
    channel.queue_purge("q")
    # Whatever was written again of the journal's beginning before the purge, this comes next.
    engine._reclaiming._is_running = True
    engine._reclaiming._move_start(engine.journal.log.segments[1].base_offset)
    assert engine.journal.log.size_bytes >= size_bytes

    bench.run(5)
    assert engine.journal.log.size_bytes < size_bytes / 2
    assert not caplog.records


def test_the_age_of_the_oldest_message_is_known_when_it_lies_on_disk_only() -> None:
    bench, _ = new_bench()
    channel, _ = bench.channel()
    channel.queue_declare("q", durable=True)
    for _ in range(20):
        channel.basic_publish("", "q", LASTING, b"x")
        bench.run(1)
    bench.restart()
    bench.run(10)
    (info,) = bench.broker.queue_infos()
    assert info.oldest_age_ms is not None
    assert 30_000 <= info.oldest_age_ms < 40_000
    channel, _ = bench.channel()
    for _ in range(10):
        assert bench.get(channel, "q", no_ack=True) is not None
    (info,) = bench.broker.queue_infos()
    assert info.oldest_age_ms is not None
    assert 20_000 <= info.oldest_age_ms < 30_000


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("operation", ["open", "sync_directory"])
def test_queues_go_on_when_for_a_while_no_file_could_be_opened(operation: str, after: int) -> None:
    bench, engine = new_bench()
    assert bench.disk is not None
    channel, sink = bench.channel()
    channel.queue_declare("q", durable=True)
    channel.queue_declare("kept", durable=True)
    channel.confirm_select()
    fill(bench, channel, "kept", count=20, body=b"kept")
    channel.basic_consume("q", no_ack=True)
    met_count = 0
    bench.disk.fail(operation, errno.EMFILE, after=after)
    for _ in range(100):
        channel.basic_publish("", "q", LASTING, b"x" * 900)
        bench.run(0.05)
        if bench.disk.has_failed and met_count < 5:
            met_count += 1
            bench.disk.fail(operation, errno.EMFILE)
    bench.disk.heal()
    bench.run(10)
    assert met_count
    assert engine.journal.failed is None
    assert sink.confirms[-1][0] == 120
    fill(bench, channel, "q", count=200)
    assert engine.log.size_bytes < 80_000
    bench.lose_power()
    bench.open()
    assert len(flags(bench, "kept")) == 20


def test_space_that_became_free_after_the_last_write_is_given_back() -> None:
    bench, engine = new_bench()
    channel, _ = bench.channel()
    channel.queue_declare("q", durable=True)
    fill(bench, channel, "q", count=100)
    look = engine._reclaiming.look
    engine._reclaiming.look = lambda: None  # type: ignore[method-assign]
    channel.queue_purge("q")
    bench.run()
    assert engine.log.size_bytes > 80_000
    engine._reclaiming.look = look  # type: ignore[method-assign]
    engine.start()
    bench.run(3)
    assert engine.log.size_bytes < 40_000
