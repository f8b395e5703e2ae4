"""The tables of a bucket's state, as they are kept."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from headrace.errors import PipelineError
from headrace.streams.buckets.tables import (
    SMALL_BYTES_MAX,
    KeptTables,
    Owner,
    read_table,
    write_kept,
    write_table,
)


class Store:
    """What Spark's state store is to a bucket."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.read: list[str] = []

    def tables(self, bucket_count: int = 8) -> KeptTables:
        def read(name: str) -> bytes | None:
            self.read.append(name)
            return self.blobs.get(name)

        owner = Owner(operator="seen", by=("n",), bucket_count=bucket_count)
        return KeptTables(read, lambda: self.blobs, owner)

    def apply(self, changes: dict[str, bytes | None]) -> None:
        for name, blob in changes.items():
            if blob is None:
                del self.blobs[name]
            else:
                self.blobs[name] = blob


@pytest.fixture
def store() -> Store:
    made = Store()
    made.apply(made.tables().changes({"a": pa.table({"n": [1]}), "b": pa.table({"n": [2]})}))
    return made


def test_a_table_is_read_once_and_only_when_it_is_asked_for(store: Store) -> None:
    tables = store.tables()

    assert tables["a"] is tables["a"]
    assert tables.get("c") is None
    assert tables.get("c") is None
    assert store.read == ["a", "c"]
    assert list(tables) == ["a", "b"]


def test_only_what_is_another_object_is_written(store: Store) -> None:
    tables = store.tables()
    grown = pa.table({"n": [2, 3]})

    changes = tables.changes({"a": tables["a"], "b": grown})

    assert set(changes) == {"b"}
    written = changes["b"]
    assert written is not None
    assert read_table(written).column("n").to_pylist() == [2, 3]


def test_what_was_read_and_is_not_returned_is_removed_and_all_else_stays(store: Store) -> None:
    tables = store.tables()
    _ = tables["a"]

    store.apply(tables.changes({"c": pa.table({"n": [5]})}))

    assert list(store.tables()) == ["b", "c"]


def test_a_table_that_grows_by_a_piece_in_each_step_is_kept_in_one(store: Store) -> None:
    for number in range(3):
        tables = store.tables()
        store.apply(tables.changes({"a": pa.concat_tables([tables["a"], pa.table({"n": [number]})])}))

    kept = store.tables()["a"].column("n")
    assert kept.num_chunks == 1
    assert kept.to_pylist() == [1, 0, 1, 2]


def test_another_number_of_buckets_is_refused(store: Store) -> None:
    with pytest.raises(PipelineError, match="made with 8 buckets, not 9: set buckets=8"):
        store.tables(bucket_count=9).get("a")


LARGE = pa.table(
    {
        "n": pa.array(range(-SMALL_BYTES_MAX, SMALL_BYTES_MAX), pa.int64()),
        "text": [None if n % 7 == 0 else f"card-{n}" for n in range(2 * SMALL_BYTES_MAX)],
        "list": [[n] * (n % 3) for n in range(2 * SMALL_BYTES_MAX)],
    }
)
LARGE_KEPT = write_kept(LARGE, {})


def test_a_large_table_is_kept_as_less_bytes_that_are_all_ascii_and_read_as_it_was(store: Store) -> None:
    store.apply(store.tables().changes({"a": LARGE}))

    assert store.blobs["a"].isascii()
    assert len(store.blobs["a"]) < LARGE.nbytes
    assert store.tables()["a"].equals(LARGE)
    assert read_table(bytearray(store.blobs["a"])).equals(LARGE)
    assert read_table(memoryview(store.blobs["a"])).equals(LARGE)


def test_a_large_table_that_was_kept_as_it_is_by_an_older_version_is_read_and_written_anew(
    store: Store,
) -> None:
    owner = Owner(operator="seen", by=("n",), bucket_count=8)
    store.blobs["a"] = write_table(LARGE, owner.metadata)
    tables = store.tables()

    changes = tables.changes({"a": tables["a"].slice(1)})
    store.apply(changes)

    assert store.blobs["a"].isascii()
    assert store.tables()["a"].equals(LARGE.slice(1))
    assert store.tables()["a"].schema.metadata == tables["a"].schema.metadata


def test_what_keeps_no_bytes_that_compress_is_read_as_it_was(store: Store) -> None:
    noise = pa.table({"n": [random.Random(7).randbytes(100 * SMALL_BYTES_MAX)]})

    store.apply(store.tables().changes({"a": noise}))

    assert store.tables()["a"].equals(noise)


@pytest.mark.parametrize("blob", [b"//////////////", b"/not base64", b"!", LARGE_KEPT[:5000]])
def test_what_can_t_be_read_says_whose_state_it_is_and_what_to_do(store: Store, blob: bytes) -> None:
    store.blobs["a"] = blob

    with pytest.raises(PipelineError, match=r"the state of seen can't be read: .* name to start anew"):
        store.tables()["a"]
