from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from headrace.clock import SystemClock
from headrace.queue.limits import QueueLimits
from headrace.queue.properties import write_properties
from headrace.queue.threads import ThreadedQueues
from headrace.testing.queues import RecordingSink

LASTING = write_properties(is_persistent=True)
COUNT = 3000
LIMITS = QueueLimits(journal_segment_bytes=200_000, resident_count_max=100, resident_count_all_max=1)


async def until(condition: Callable[[], bool], *, deadline_s: float = 120) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110  # Sinks are called; there is nothing to await.
            await asyncio.sleep(0.001)


def open_queues(data_dir: Path) -> ThreadedQueues:
    queues = ThreadedQueues(data_dir, LIMITS, SystemClock(), asyncio.get_running_loop())
    queues.start()
    return queues


def test_what_is_confirmed_is_there_after_a_stop_in_its_order_and_space_is_given_back(tmp_path: Path) -> None:
    async def publish() -> None:
        queues = open_queues(tmp_path)
        sink = RecordingSink()
        channel = queues.broker.open_connection("/", "guest", sink).open_channel(sink)
        channel.queue_declare("q", durable=True)
        channel.confirm_select()
        for number in range(COUNT):
            channel.basic_publish("", "q", LASTING, b"%d" % number + b"x" * 200)
            if number % 100 == 0:
                await asyncio.sleep(0)
        await until(lambda: bool(sink.confirms) and sink.confirms[-1][0] == COUNT)
        queues.stop()

    async def consume() -> None:
        queues = open_queues(tmp_path)
        sink = RecordingSink()
        channel = queues.broker.open_connection("/", "guest", sink).open_channel(sink)
        channel.basic_qos(500)
        channel.basic_consume("q")

        def has_come() -> bool:
            channel.basic_ack(0, multiple=True)
            return len(sink.deliveries) == COUNT

        await until(has_come)
        assert [each.body for each in sink.deliveries] == [b"%d" % n + b"x" * 200 for n in range(COUNT)]
        assert not any(each.redelivered for each in sink.deliveries)
        channel.basic_ack(0, multiple=True)
        await until(lambda: queues.engine.log.size_bytes < 2 * LIMITS.journal_segment_bytes)
        queues.stop()

    asyncio.run(publish())
    asyncio.run(consume())
    journal = tmp_path / "queues" / "journal-0"
    assert sum(path.stat().st_size for path in journal.glob("*.log")) < 3 * LIMITS.journal_segment_bytes
