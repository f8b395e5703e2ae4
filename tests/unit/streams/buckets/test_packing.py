"""Rows on their way to their buckets."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.streams.buckets import packing
from headrace.streams.buckets.logic import SourceProgress
from headrace.streams.buckets.packing import arrivals, labels, pack, pack_progress
from headrace.streams.buckets.sources import FLAT_PLACES, progress_of, sources_of, with_places
from headrace.streams.time.lateness import LatenessRun
from headrace.streams.time.policies import Policy, bounded, declared, declared_column
from headrace.streams.time.watermarks import track

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000
STAMP = pa.timestamp("us", "UTC")
PLACED = pa.schema(
    {
        "n": pa.int64(),
        "at": STAMP,
        "_kafka": pa.struct(
            {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "timestamp": STAMP}
        ),
    }
)


def row(n: int, partition: int, offset: int, *, second: float | None = 0, topic: str = "t") -> dict[str, Any]:
    at = None if second is None else NOON + timedelta(seconds=second)
    place = {"topic": topic, "partition": partition, "offset": offset, "timestamp": NOON}
    return {"n": n, "at": at, "_kafka": place}


def packed(rows: list[dict[str, Any]], buckets: list[int], task: int = 0) -> list[list[bytes]]:
    """The blobs of each bucket."""
    table = pa.Table.from_pylist(rows, PLACED)
    blobs: list[list[bytes]] = [[] for _ in range(4)]
    for bucket, blob in pack(table, np.array(buckets, np.int32), bucket_count=4, task=task, event_time="at"):
        blobs[bucket].append(blob)
    return blobs


@given(st.data())
def test_a_bucket_is_given_its_rows_by_source_and_offset_however_tasks_were_cut(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 30))
    partitions = data.draw(st.lists(st.integers(0, 11), min_size=count, max_size=count))
    rows = [row(n, partition, offset=n) for n, partition in enumerate(partitions)]
    buckets = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    tasks = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    shuffled = data.draw(st.permutations(range(count)))
    with patch.object(packing, "PIECE_BYTES", data.draw(st.sampled_from([1, 150, 2**18]))):
        made = [
            packed([rows[n] for n in own], [buckets[n] for n in own], task)
            for task in range(3)
            if (own := [n for n in shuffled if tasks[n] == task])
        ]

    for bucket in range(4):
        blobs = [blob for task in made for blob in task[bucket]]
        random.Random(count).shuffle(blobs)
        found = arrivals(blobs)
        expected = sorted(
            (f"t-{partition}", n) for n, partition in enumerate(partitions) if buckets[n] == bucket
        )
        assert found.rows.column("n").to_pylist() == [n for _source, n in expected]
        assert found.rows.schema == PLACED
        counts = {each.source: each.row_count for each in found.progress}
        assert counts == {f"t-{each}": partitions.count(each) for each in sorted(set(partitions), key=str)}


def test_where_rows_came_from_is_put_together_again_of_its_fields() -> None:
    (rows,) = pa.Table.from_pylist([row(1, 0, 7), row(2, 1, 8)], PLACED).to_batches()
    fields = rows.column("_kafka").flatten()
    flat = pa.RecordBatch.from_arrays([rows.column("n"), *fields], names=["n", *FLAT_PLACES.values()])

    assert with_places(flat).column("_kafka").equals(rows.column("_kafka"))
    assert with_places(rows) is rows, "nothing is to be put together"


def test_a_bucket_without_rows_is_told_how_far_every_source_came() -> None:
    blobs = packed([row(1, 0, 0, second=5), row(2, 1, 0, second=None)], [0, 0])

    found = arrivals(blobs[3])

    assert len(found.rows) == 0
    assert [(each.source, each.event_time_us_max) for each in found.progress] == [
        ("t-0", NOON_US + 5_000_000),
        ("t-1", None),
    ]
    assert {each.record_time_us_max for each in found.progress} == {NOON_US}


def test_lateness_travels_with_the_progress_of_a_source() -> None:
    blobs = packed([row(n, 0, n, second=5 - n) for n in range(3)], [0, 0, 0])

    (progress,) = arrivals(blobs[3]).progress

    newest_us = NOON_US + 5_000_000
    entry_of_a_second = (0,) * 10 + (1,)
    entry_of_two = (0,) * 11 + (1,)
    assert progress.lateness == (
        LatenessRun(newest_us, (1,)),
        LatenessRun(newest_us, entry_of_a_second),
        LatenessRun(newest_us, entry_of_two),
    )


def test_rows_that_don_t_say_where_they_came_from_are_of_their_task() -> None:
    table = pa.table({"n": [3, 1, 2]})
    blobs = [
        blob
        for task in (10, 9)
        for _bucket, blob in pack(table, np.zeros(3, np.int32), bucket_count=1, task=task)
    ]

    found = arrivals(blobs)

    assert found.rows.column("n").to_pylist() == [3, 1, 2, 3, 1, 2]
    assert found.progress == (
        SourceProgress(source="task-00009", row_count=3),
        SourceProgress(source="task-00010", row_count=3),
    )


def test_what_a_source_declares_is_the_newest_that_it_has_said() -> None:
    rows = pa.table({"told": pa.array([NOON, None, NOON - timedelta(1)], STAMP)})

    (progress,) = progress_of(rows, sources_of(rows, 0), event_time=None, declared="told")

    assert progress.declared_us == NOON_US


def test_a_row_that_only_says_how_far_its_source_is_goes_to_no_bucket() -> None:
    schema = PLACED.append(pa.field("told", STAMP))
    events = [row(1, 0, 0), row(2, 0, 1, second=None), row(3, 0, 2), row(4, 0, 3, second=None)]
    told = [None, None, NOON, NOON + timedelta(hours=1)]
    rows = [{**event, "told": word} for event, word in zip(events, told, strict=True)]
    table, buckets = pa.Table.from_pylist(rows, schema), np.array([1, 0, 1, 0], np.int32)

    blobs = pack(table, buckets, bucket_count=2, task=0, event_time="at", declared="told")

    found = [arrivals([blob]) for _bucket, blob in blobs]
    # The one without a word is an event without a time, of which its bucket must know.
    assert [each.rows.column("n").to_pylist() for each in found] == [[2], [1, 3]]
    assert {each.progress[0].declared_us for each in found} == {NOON_US + 3_600_000_000}


def test_a_task_can_have_nothing_but_words() -> None:
    schema = PLACED.append(pa.field("told", STAMP))
    table = pa.Table.from_pylist([{**row(1, 0, 0, second=None), "told": NOON}], schema)

    blobs = pack(table, np.array([1], np.int32), bucket_count=2, task=0, event_time="at", declared="told")

    found = [arrivals([blob]) for _bucket, blob in blobs]
    assert [(len(each.rows), each.progress[0].declared_us) for each in found] == [(0, NOON_US)] * 2


@pytest.mark.parametrize("declares", [False, True])
def test_rows_that_only_tell_the_time_give_every_bucket_progress_and_no_rows(declares: bool) -> None:
    beside = pa.Table.from_pylist([row(1, 0, 7, second=9), row(2, 1, 3, second=4)], PLACED)
    told = [
        blob
        for _bucket, blob in pack_progress(
            beside, PLACED, bucket_count=4, task=5, event_time="at", declares=declares
        )
    ]
    blobs = packed([row(3, 0, 8, second=2)], [2])

    found = [arrivals([one, *other]) for one, other in zip(told, blobs, strict=True)]

    assert [len(each.rows) for each in found] == [0, 0, 1, 0]
    newest_us = [NOON_US + 9_000_000, NOON_US + 4_000_000]
    for each in found:
        assert [source.event_time_us_max for source in each.progress] == newest_us
        assert [source.declared_us for source in each.progress] == (newest_us if declares else [None, None])


@pytest.mark.parametrize("policy", [bounded("10 seconds"), declared("told")])
def test_what_tells_the_time_of_rows_that_have_dropped_their_places_moves_the_watermark_and_is_not_kept(
    policy: Policy,
) -> None:
    column = declared_column(policy)
    delay_s = 0 if column else 10
    bare = pa.schema({"n": pa.int64(), "at": STAMP, "told": STAMP})

    def events(task: int, second: int) -> list[bytes]:
        at = NOON + timedelta(seconds=second)
        rows = pa.Table.from_pylist([{"n": 1, "at": at, "told": at}], bare)
        zero = np.zeros(1, np.int32)
        made = pack(rows, zero, bucket_count=1, task=task, event_time="at", declared=column)
        return [blob for _bucket, blob in made]

    def advances(**seconds: int) -> list[bytes]:
        rows = [row(0, 0, 0, second=second, topic=topic) for topic, second in seconds.items()]
        beside = pa.Table.from_pylist(rows, PLACED)
        made = pack_progress(
            beside, bare, bucket_count=1, task=9, event_time="at", declares=column is not None
        )
        return [blob for _bucket, blob in made]

    steps = [
        (events(0, 20), 20),
        # In one micro-batch with rows, whose tasks are not as far; and alone.
        ([*events(0, 30), *events(1, 100), *advances(t=60)], 60),
        (advances(t=90), 90),
        (events(4, 200), 200),
        # Of two topics, the one that is not as far counts.
        ([*events(0, 210), *advances(t=400, u=300)], 300),
        ([*events(0, 350), *events(1, 360)], 350),
    ]
    table: pa.Table | None = None
    for blobs, second in steps:
        now = track(policy, table, arrivals(blobs))
        assert now.after_us == NOON_US + (second - delay_s) * 1_000_000
        assert now.report.source_count == 0
        table = now.table


@pytest.mark.parametrize("count", [1, 2, 7, 16, 64])
def test_every_bucket_has_a_label_of_its_own(count: int) -> None:
    assert len(set(labels(count))) == count


def test_labels_stay_what_they_are_because_checkpoints_hold_them() -> None:
    assert labels(4) == (12, 6, 2, 0)
