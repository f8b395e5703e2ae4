from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from headrace.errors import CorruptBatch, QueueRefused
from headrace.queue.fields import FarTimestamp, write_table
from headrace.queue.journal_format import split_values
from headrace.queue.limits import QueueLimits
from headrace.queue.properties import write_properties
from headrace.testing.disk import SimulatedDisk
from headrace.testing.queues import DIRECTORY, QueueBench, RecordingSink

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.queue.channel import Channel

LASTING = write_properties(is_persistent=True)
PASSING = write_properties()
PAGING = QueueLimits(resident_count_max=2, resident_count_all_max=1, resident_bytes_max=1)
TO_DEAD: dict[str, object] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


def contents(bench: QueueBench, queue: str) -> list[bytes]:
    """What is in a queue; it is taken out."""
    channel, sink = bench.channel()
    channel.basic_consume(queue, no_ack=True)
    bench.run()
    channel.close()
    return sink.bodies


def filled(limits: QueueLimits = PAGING, *, arguments: dict[str, object] | None = None) -> QueueBench:
    """Ten messages in a queue, most of them on disk only, each in a batch of its own."""
    bench = QueueBench(disk=SimulatedDisk(), limits=limits)
    channel, _ = bench.channel()
    channel.queue_declare("q", durable=True, arguments=arguments)
    channel.queue_declare("dead", durable=True)
    for number in range(10):
        channel.basic_publish("", "q", LASTING, b"body-%d" % number)
        bench.run(0.05)
    bench.run()
    return bench


def damage(bench: QueueBench, body: bytes) -> None:
    """Flip a bit of a body, as a failing disk does it."""
    assert bench.disk is not None
    (path,) = [
        path
        for name in bench.disk.names(DIRECTORY / "queues" / "journal-0")
        if name.endswith(".log")
        and body in bench.disk.content(path := DIRECTORY / "queues" / "journal-0" / name)
    ]
    bench.disk.overwrite(path, bench.disk.content(path).replace(body, bytes((body[0] ^ 1,)) + body[1:]))


def consume(bench: QueueBench) -> RecordingSink:
    """Take what comes, without acknowledging it."""
    channel, sink = bench.channel()
    channel.basic_consume("q")
    bench.run()
    return sink


def fetch(bench: QueueBench) -> RecordingSink:
    """Fetch as many as there are."""
    channel, sink = bench.channel()
    for _ in range(10):
        channel.basic_get(
            "q", lambda fetched: sink.deliver("", 0, False, fetched.message) if fetched else None
        )
        bench.run()
    return sink


def expire(bench: QueueBench) -> RecordingSink:
    """Wait until all are too old."""
    bench.run(20)
    return RecordingSink()


@pytest.mark.parametrize("take", [consume, fetch, expire])
def test_a_message_that_could_not_be_read_stops_the_queues_and_is_not_lost(
    take: Callable[[QueueBench], RecordingSink],
) -> None:
    bench = filled(arguments={"x-message-ttl": 10_000, **TO_DEAD} if take is expire else None)
    assert bench.disk is not None
    bench.disk.fail("read", errno.EIO, after=3)
    take(bench)
    assert bench.disk.has_failed
    assert len(bench.failures) == 1
    assert bench.broker.is_failed
    bench.kill()
    bench.open()
    queue = "dead" if take is expire else "q"
    bench.run(20)
    assert contents(bench, queue) == [b"body-%d" % number for number in range(10)]


def test_a_message_that_could_not_be_read_when_it_was_rejected_is_not_lost() -> None:
    bench = filled(arguments=TO_DEAD)
    channel, sink = bench.channel()
    channel.basic_consume("q")
    bench.run()
    assert bench.disk is not None
    bench.disk.fail("read", errno.EIO)
    with pytest.raises(QueueRefused, match="INTERNAL_ERROR"):
        reject_all(channel, sink)
    assert len(bench.failures) == 1
    bench.kill()
    bench.open()
    assert contents(bench, "q") == [b"body-%d" % number for number in range(10)]


def reject_all(channel: Channel, sink: RecordingSink) -> None:
    """Reject everything that came."""
    for delivery in sink.deliveries:
        channel.basic_reject(delivery.delivery_tag, requeue=False)


@pytest.mark.parametrize("take", [consume, fetch])
def test_a_body_that_has_changed_on_disk_is_not_delivered(
    take: Callable[[QueueBench], RecordingSink],
) -> None:
    bench = filled()
    damage(bench, b"body-7")
    sink = take(bench)
    assert all(body.startswith(b"body-") for body in sink.bodies)
    (failure,) = bench.failures
    assert isinstance(failure, CorruptBatch)
    assert "journal is damaged at offset" in str(failure)


def test_batches_that_lie_one_after_the_other_are_all_checked() -> None:
    bench = filled()
    assert bench.engine is not None
    log = bench.engine.log
    batches = log.read(0, size_bytes_max=10**6)
    assert [offset for offset, _ in split_values(batches, 0)] == list(range(log.end_offset))
    at = batches.index(b"body-7")
    for wrong in (batches[:at] + b"?" + batches[at + 1 :], batches[:-1], b"", batches[len(batches) // 2 :]):
        with pytest.raises(CorruptBatch, match="journal is damaged at offset"):
            list(split_values(wrong, 0))


def test_a_body_that_has_changed_is_not_written_again_as_if_it_were_right() -> None:
    bench = filled(QueueLimits(journal_segment_bytes=60_000))
    damage(bench, b"body-7")
    fill_and_purge(bench)
    assert isinstance(bench.failures[0], CorruptBatch)


def test_nothing_is_removed_while_a_message_is_needed_that_no_queue_has() -> None:
    bench = filled(QueueLimits(journal_segment_bytes=60_000))
    assert bench.engine is not None
    queue = bench.broker.vhosts["/"].queues["q"]
    # Whatever mistake it was that has lost it.
    queue.levels[0].pop_first()
    queue.count -= 1
    fill_and_purge(bench)
    assert bench.engine.log.start_offset == 0
    assert len(bench.engine.log.segments) > 2
    bench.kill()
    bench.open()
    assert contents(bench, "q") == [b"body-%d" % number for number in range(10)]


def test_space_is_given_back_otherwise() -> None:
    bench = filled(QueueLimits(journal_segment_bytes=60_000))
    assert bench.engine is not None
    fill_and_purge(bench)
    assert bench.engine.log.start_offset > 64
    assert bench.failures == []
    assert contents(bench, "q") == [b"body-%d" % number for number in range(10)]


def fill_and_purge(bench: QueueBench) -> None:
    """Let the journal have much that is not needed, behind what was there."""
    channel, _ = bench.channel()
    channel.queue_declare("big", durable=True)
    for _ in range(300):
        channel.basic_publish("", "big", LASTING, b"x" * 500)
        bench.run(0.02)
    channel.queue_purge("big")
    bench.run(3)


def test_a_transient_message_of_two_queues_is_written_for_the_one_that_is_long() -> None:
    bench = QueueBench(
        disk=SimulatedDisk(), limits=QueueLimits(resident_count_max=8, resident_count_all_max=1)
    )
    channel, _ = bench.channel()
    for name in ("slow", "slower", "fast"):
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, "amq.fanout", "")
    taker, sink = bench.channel()
    taker.basic_consume("fast")
    bench.run()
    bodies = [b"%d" % number for number in range(40)]
    for body in bodies:
        channel.basic_publish("amq.fanout", "", PASSING, body)
    bench.run()
    assert sink.bodies == bodies
    taker.basic_ack(0, multiple=True)
    bench.run()
    assert contents(bench, "slow") == bodies
    assert contents(bench, "slower") == bodies
    assert bench.failures == []
    assert bench.engine is not None
    assert bench.engine.journal.needed.live_bytes == 0


def test_once_the_disk_has_failed_nobody_is_let_in_and_nothing_piles_up(stored: QueueBench) -> None:
    channel, sink = stored.channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_select()
    stored.run()
    assert stored.disk is not None
    assert stored.engine is not None
    stored.disk.fail("sync_file", errno.EIO)
    channel.basic_publish("", "q", LASTING, b"1")
    stored.run()
    channel.basic_publish("", "q", LASTING, b"2")
    channel.basic_publish("", "q", PASSING, b"3")
    stored.run()
    assert sink.confirms == []
    assert sink.refusals == [(1, True), (3, True)]
    assert stored.engine.journal.pending_bytes == 0
    with pytest.raises(QueueRefused, match="INTERNAL_ERROR"):
        stored.channel()
    with pytest.raises(QueueRefused, match="INTERNAL_ERROR"):
        stored.broker.when_durable(lambda: None)


def test_headers_that_can_not_be_read_are_refused_when_they_are_published(bench: QueueBench) -> None:
    channel, _ = bench.channel()
    channel.queue_declare("q", arguments={"x-message-ttl": 1000, **TO_DEAD})
    channel.queue_declare("dead")
    for table in (b"\0\0\0\x03\x01a?", b"\0\0\0\x07\x01aS\0\0\0\x09", b"\0\0\0\x07\x01aF\0\0\0\x09"):
        with pytest.raises(QueueRefused, match="SYNTAX_ERROR"):
            channel.basic_publish("", "q", write_properties(headers=table), b"poison")


def test_whatever_headers_are_taken_a_message_can_die_with_them(bench: QueueBench) -> None:
    channel, _ = bench.channel()
    channel.queue_declare("q", arguments={"x-message-ttl": 1000, **TO_DEAD})
    channel.queue_declare("dead")
    death = {"queue": "q", "reason": "expired", "\udcff": FarTimestamp(2**64 - 1), "count": 2**63 - 1}
    many = {f"h{number}": number for number in range(5000)}
    for headers in ({"x-death": [death]}, {"far": FarTimestamp(2**63)}, many, {"x-death": [many]}):
        channel.basic_publish("", "q", write_properties(headers=write_table(headers)), b"fine")
    bench.run(3)
    assert contents(bench, "dead") == [b"fine"] * 4
