from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.queue.backlog import Backlog
from headrace.queue.limits import QueueLimits
from headrace.queue.message import Entry, Message
from headrace.queue.needed import SIZE_CLASS_MAX, counted_bytes, size_class
from headrace.queue.properties import write_properties
from headrace.queue.work_queue import WorkQueue
from headrace.testing.disk import SimulatedDisk
from headrace.testing.queues import QueueBench

steps = st.lists(
    st.tuples(st.sampled_from(["append", "pop", "back", "move"]), st.integers(0, 9)), max_size=60
)


def queue_of(bench: QueueBench) -> WorkQueue:
    bench.channel()[0].queue_declare("q")
    return bench.broker.vhosts["/"].queues["q"]


def new_entry(queue: WorkQueue, position: int) -> Entry:
    message = Message("", "", b"", b"x" * (position % 7))
    message.location = position * 1000
    entry = Entry(queue, message, position)
    entry.kept_bytes = counted_bytes(100 + position)
    return entry


@given(steps=steps, head_count_max=st.integers(1, 3), chunk_count_max=st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_a_backlog_is_a_sorted_list(
    steps: list[tuple[str, int]], head_count_max: int, chunk_count_max: int
) -> None:
    queue = queue_of(QueueBench())
    backlog = Backlog(queue, head_count_max=head_count_max, chunk_count_max=chunk_count_max)
    waiting: list[int] = []
    taken: list[Entry] = []
    locations: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for position, (step, which) in enumerate(steps):
        if step == "append":
            entry = new_entry(queue, position)
            locations[position] = entry.message.location
            sizes[position] = entry.kept_bytes
            backlog.append(entry)
            waiting.append(position)
        elif step == "pop" and waiting:
            entry = backlog.pop_first()
            assert entry.position == waiting.pop(0)
            assert entry.message.location == locations[entry.position]
            assert entry.message.body_bytes == entry.position % 7
            assert entry.kept_bytes == sizes[entry.position]
            taken.append(entry)
        elif step == "back" and taken:
            entry = taken.pop(which % len(taken))
            backlog.put_back(entry)
            waiting = sorted([*waiting, entry.position])
        elif step == "move" and waiting:
            moved = waiting[which % len(waiting)]
            locations[moved] += 1
            kept_bytes = sizes[moved]
            sizes[moved] = counted_bytes(which * 1000)
            assert backlog.relocate(moved, locations[moved], sizes[moved]) == kept_bytes
        assert list(backlog.positions()) == waiting
        assert backlog.count == len(waiting)
        assert backlog.body_bytes == sum(each % 7 for each in waiting)
        first = backlog.first()
        assert (None if first is None else first.position) == (waiting[0] if waiting else None)
        assert [backlog.place_of(each) for each in waiting] == [(locations[each], 0) for each in waiting]
        assert {backlog.place_of(each.position) for each in taken} <= {None}


def test_what_is_packed_comes_back_as_it_was() -> None:
    queue = queue_of(QueueBench())
    backlog = Backlog(queue, head_count_max=1)
    backlog.append(new_entry(queue, 0))
    entry = new_entry(queue, 1)
    entry.delivery_count, entry.redelivered, entry.is_stored, entry.expires_ms = 5, True, True, 99
    entry.message.priority = 7
    assert not backlog.append(entry)
    assert backlog.place_of(1) == (1000, 5)
    backlog.pop_first()
    found = backlog.pop_first()
    assert found is not entry
    assert (found.delivery_count, found.redelivered, found.is_stored, found.expires_ms) == (5, True, True, 99)
    assert found.message.priority == 7
    assert found.message.body is None


def test_messages_are_packed_only_once_all_queues_together_keep_many() -> None:
    limits = QueueLimits(resident_count_max=2, resident_count_all_max=5)
    bench = QueueBench(disk=SimulatedDisk(), limits=limits)
    channel, _ = bench.channel()
    for name in ("first", "second"):
        channel.queue_declare(name, durable=True)
    first, second = (bench.broker.vhosts["/"].queues[name] for name in ("first", "second"))

    def publish(name: str, count: int) -> None:
        for _ in range(count):
            channel.basic_publish("", name, write_properties(is_persistent=True), b"body")
        bench.run()

    publish("first", 9)
    assert (len(first.levels[0].head), first.count) == (5, 9)
    publish("second", 4)
    assert (len(second.levels[0].head), second.count) == (2, 4)
    channel.queue_purge("first")
    channel.queue_purge("second")
    bench.run()
    publish("second", 9)
    assert (len(second.levels[0].head), second.count) == (5, 9)


@given(st.integers(0, 2**33))
def test_a_size_is_counted_to_an_eighth_and_always_the_same(size_bytes: int) -> None:
    counted = counted_bytes(size_bytes)
    assert size_bytes * 7 / 8 <= counted <= size_bytes
    assert counted_bytes(counted) == counted
    assert size_class(size_bytes) <= SIZE_CLASS_MAX
