"""What streams are like: partitions of different speed, a silent one, a phone in a tunnel, a wrong clock.

Rows go the way that they go on Spark, as far as it is pure: packed by task, spread over buckets, stepped.
In each story every row ends in a result or among the late ones, and none in both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np
import pyarrow as pa

from headrace.streams.buckets.logic import LATE, RESULTS, Tables
from headrace.streams.buckets.packing import arrivals, pack
from headrace.streams.time.policies import Policy, bounded
from headrace.streams.windows.aligned import AlignedWindows
from headrace.streams.windows.exact import Count
from headrace.streams.windows.kinds import tumbling
from headrace.streams.windows.late import side_output

BUCKETS = 4
MINUTE, HOUR, DAY = 60, 3_600, 86_400
SECOND_US = 1_000_000
PLACE = pa.struct(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
)
SCHEMA = pa.schema({"card": pa.string(), "at": pa.timestamp("us", "UTC"), "_kafka": PLACE})

Event = tuple[str, int]
"""A card, and when it was used, in seconds."""


@dataclass
class Stream:
    """A topic whose records are counted by card and minute."""

    watermark: Policy
    now: int = 0
    """The time of the log, in seconds."""
    offsets: Counter[int] = field(default_factory=Counter)
    states: list[Tables] = field(default_factory=lambda: [{} for _ in range(BUCKETS)])
    counted: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By card, and when the minute began."""
    late: list[Event] = field(default_factory=list)

    def batch(self, **partitions: Iterable[Event]) -> None:
        """A micro-batch: what each partition has, `p0`, `p1`, ...; a task reads each."""
        blobs: list[list[bytes]] = [[] for _ in range(BUCKETS)]
        for task, (name, events) in enumerate(partitions.items()):
            rows = self._rows(int(name[1:]), list(events))
            buckets = np.array(
                [crc32(card.encode()) % BUCKETS for card in rows["card"].to_pylist()], np.int32
            )
            for bucket, blob in pack(rows, buckets, bucket_count=BUCKETS, task=task, event_time="at"):
                blobs[bucket].append(blob)
        for bucket in range(BUCKETS):
            self._step(bucket, blobs[bucket])

    def end(self) -> None:
        """Let so much time pass that all windows end."""
        self.batch(**{f"p{partition}": [("end", 10 * DAY)] for partition in sorted(self.offsets)})

    def _rows(self, partition: int, events: list[Event]) -> pa.Table:
        rows = []
        for card, at in events:
            place = {"topic": "payments", "partition": partition, "timestamp": self.now * SECOND_US}
            rows.append(
                {"card": card, "at": at * SECOND_US, "_kafka": {**place, "offset": self.offsets[partition]}}
            )
            self.offsets[partition] += 1
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def _step(self, bucket: int, blobs: list[bytes]) -> None:
        step = logic(self.watermark).step(self.states[bucket], arrivals(reversed(blobs)))
        self.states[bucket] = step.state
        for row in step.outputs[RESULTS].to_pylist():
            place = (row["card"], int(row["window"]["start"].timestamp()))
            assert place not in self.counted, "each window fires once"
            self.counted[place] = row["count"]
        for row in step.outputs[LATE].to_pylist() if LATE in step.outputs else ():
            self.late.append((row["card"], int(row["at"].timestamp())))


def logic(watermark: Policy) -> AlignedWindows:
    return AlignedWindows(
        by=("card",),
        time="at",
        kind=tumbling("1 minute"),
        aggregates=(Count(name="count"),),
        watermark=watermark,
        late=side_output("late"),
    )


def by_minute(events: Iterable[Event]) -> Counter[tuple[str, int]]:
    return Counter((card, at // MINUTE * MINUTE) for card, at in events)


def test_partitions_that_are_read_at_different_speeds_make_nothing_late() -> None:
    fast = [(f"card-{n % 7}", n * 10) for n in range(600)]
    slow = [(f"card-{n % 5}", n * 10) for n in range(600)]
    stream = Stream(watermark=bounded("10 seconds", idle_after="1 minute"), now=2 * HOUR)
    for n in range(10):
        stream.batch(p0=fast[n * 60 : (n + 1) * 60], p1=slow[n * 6 : (n + 1) * 6])
    stream.batch(p1=slow[60:])
    stream.end()
    assert stream.late == []
    assert stream.counted == by_minute(fast + slow)


def test_a_partition_that_falls_silent_holds_time_back_until_it_is_idle() -> None:
    stream = Stream(watermark=bounded("0 seconds", idle_after="5 minutes"))
    stream.batch(p0=[("ann", 0)], p1=[("bob", 0)])
    stream.now = 5 * MINUTE
    stream.batch(p0=[("ann", 5 * MINUTE)])
    assert stream.counted == {}
    stream.now = 5 * MINUTE + 1
    stream.batch(p0=[("ann", 5 * MINUTE + 1)])
    assert stream.counted == {("ann", 0): 1, ("bob", 0): 1}


def test_a_phone_that_was_offline_for_hours_is_late_and_nothing_else_is() -> None:
    others = [(f"card-{n % 7}", n * 30) for n in range(480)]
    offline = [("phone", 10), ("phone", 70), ("phone", 3 * HOUR + 50 * MINUTE)]
    stream = Stream(watermark=bounded("20 minutes", idle_after="5 minutes"))
    for n in range(8):
        stream.now = (n + 1) * 30 * MINUTE
        stream.batch(p0=others[n * 60 : (n + 1) * 60 : 2], p1=others[n * 60 + 1 : (n + 1) * 60 : 2])
    stream.now += 1
    stream.batch(p1=offline)
    stream.end()
    assert stream.late == offline[:2]
    assert stream.counted == by_minute([*others, offline[2]])


def test_a_clock_that_is_a_day_ahead_is_held_by_the_other_partitions() -> None:
    events = [(f"card-{n % 7}", n * 30) for n in range(240)]
    stream = Stream(watermark=bounded("1 minute"))
    stream.batch(p0=[("wrong", DAY)], p1=events[:1])
    for n in range(8):
        stream.now = (n + 1) * 15 * MINUTE
        stream.batch(p0=events[n * 30 + 1 : (n + 1) * 30 : 2], p1=events[n * 30 + 2 : (n + 1) * 30 + 1 : 2])
    stream.end()
    assert stream.late == []
    assert stream.counted == by_minute([*events, ("wrong", DAY)])


def test_where_nothing_holds_a_clock_that_is_a_day_ahead_the_rows_that_it_makes_late_are_kept() -> None:
    events = [("ann", n * 30) for n in range(20)]
    stream = Stream(watermark=bounded("1 minute"))
    stream.batch(p0=[*events[:10], ("wrong", DAY)])
    stream.batch(p0=events[10:])
    stream.end()
    assert stream.late == events[10:]
    assert stream.counted == by_minute([*events[:10], ("wrong", DAY)])
