"""What tasks hand to the driver: all of it, share by share, in its order, in memory or in files."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.streams.sinks.handed import SHARE, Handed, HandOver, is_small, read_pieces

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), (SHARE, pa.int32())])
Row = tuple[bytes | None, bytes, int]
ROWS = st.lists(
    st.tuples(st.none() | st.binary(max_size=3), st.binary(max_size=9), st.integers(0, 3)), max_size=9
)


def record_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


@given(batches=st.lists(ROWS, max_size=5), bytes_max=st.sampled_from([0, 50, 10_000]))
def test_each_share_is_handed_over_whole_and_in_order(batches: list[list[Row]], bytes_max: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        task = HandOver(bytes_max=bytes_max, directory=directory)
        answers = [row for answer in task.run(map(record_batch, batches)) for row in answer.to_pylist()]
        handed = [Handed(**answer) for answer in answers]

        found = {
            each.share: [
                (row["key"], row["value"]) for batch in read_pieces([each.piece]) for row in batch.to_pylist()
            ]
            for each in handed
        }

        expected: dict[int, list[tuple[bytes | None, bytes]]] = {}
        for key, value, share in (row for batch in batches for row in batch):
            expected.setdefault(share, []).append((key, value))
        assert found == expected
        assert [each.row_count for each in handed] == [len(expected[each.share]) for each in handed]
        size_bytes = sum(record_batch(rows).nbytes for rows in batches)
        assert len(list(Path(directory).iterdir())) == (len(handed) if size_bytes > bytes_max else 0)


def test_pieces_of_several_tasks_are_read_one_after_the_other(tmp_path: Path) -> None:
    pieces = []
    for number, bytes_max in enumerate((10_000, 0)):
        task = HandOver(bytes_max=bytes_max, directory=str(tmp_path))
        (handed,) = task.hand_over(iter([record_batch([(b"k", b"%d" % number, 2)])]))
        pieces.append(handed.piece)
    values = [value for batch in read_pieces(pieces) for value in batch.column("value").to_pylist()]
    assert values == [b"0", b"1"]


def test_a_batch_is_small_by_all_that_its_tasks_hand_over_together() -> None:
    of_each_task = [Handed(share, 1, bytes(60), None) for share in range(3)]
    assert is_small(of_each_task, 180)
    assert not is_small(of_each_task, 179)
    assert not is_small([Handed(0, 1, None, "file")], 180)
    assert is_small([], 0)
