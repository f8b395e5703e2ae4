"""A transaction of any size is published in one piece, in memory that does not grow with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

from headrace.testing.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.cdc.conftest import Follower, World

ORDERS = "shop.public.orders"
ROW_COUNT = 200_000
FACTOR_MAX = 2
"""How much more memory ten times the rows may take: all buffers are full then, which are not with fewer. All
rows in memory would be another 250 MB."""
WITHIN_S = 300.0


def peak_kb(world: World, topics: Follower, first: int, row_count: int) -> int:
    """The most that a process had in memory at once that has published a transaction of so many rows."""
    process = world.process(snapshot="never")
    try:
        world.await_streaming()
        world.database.execute(
            "INSERT INTO orders SELECT n, repeat('x', 300) FROM generate_series(%s::int, %s::int) n",
            first,
            first + row_count - 1,
        )
        eventually(lambda: row_count in counted(topics), "the end of the transaction", within_s=WITHIN_S)
        status = Path(f"/proc/{process.pid}/status").read_text()
    finally:
        process.terminate()
        code = process.wait(WITHIN_S)
    assert code == 0
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def counted(topics: Follower) -> list[int]:
    """How many events each transaction had that has ended."""
    return [each.value["event_count"] for each in topics.read() if each.value["status"] == "END"]


def record_count(world: World) -> int:
    """Of the table's topic, with the marks by which transactions end."""
    consumer = Consumer({"bootstrap.servers": world.bootstrap, "group.id": "counting", "log_level": 0})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(ORDERS, 0), timeout=30)
        return int(high - low)
    finally:
        consumer.close()


def test_a_transaction_of_many_rows_takes_no_more_memory_than_one_of_a_tenth(world: World) -> None:
    world.database.execute("CREATE TABLE orders (id int PRIMARY KEY, v text)")
    name = world.database.execute("SELECT current_database()")[0][0]
    # So that the server sends both while they are open, and they are kept until they commit.
    world.database.execute(f"ALTER DATABASE {name} SET logical_decoding_work_mem = '1MB'")
    topics = world.follow("shop.transaction")
    small_kb = peak_kb(world, topics, 1, ROW_COUNT // 10)
    large_kb = peak_kb(world, topics, ROW_COUNT, ROW_COUNT)
    assert large_kb < FACTOR_MAX * small_kb, f"{small_kb} kB, and {large_kb} kB for ten times the rows"
    assert counted(topics) == [ROW_COUNT // 10, ROW_COUNT]
    assert record_count(world) == ROW_COUNT // 10 + ROW_COUNT + 2
