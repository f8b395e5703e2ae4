"""Files of DuckDB that others have open, or that are none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from headrace.errors import PipelineError, PipelineFailed, StorageError, StoreUnavailable
from headrace.streams.sinks.duck.connection import explained, opened

HOLD = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "True")
print("open", flush=True)
sys.stdin.read()
"""


def test_a_file_that_another_process_has_open_can_be_had_later(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.duckdb"
    with opened(path, "making") as connection:
        connection.execute("CREATE TABLE t (n INTEGER)")
    for read_only in (True, False):
        command = [sys.executable, "-c", HOLD, str(path), str(read_only)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "open\n"
            with (
                pytest.raises(StoreUnavailable, match="the file is open elsewhere"),
                opened(path, "writing", within_s=0.1),
            ):
                pass
            holder.communicate()
        with opened(path, "writing") as connection:
            connection.execute("INSERT INTO t VALUES (1)")


def test_what_is_no_file_of_duckdb_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("plain text, and long enough to be more than nothing" * 100)
    with (
        pytest.raises(PipelineError, match="not a valid DuckDB database file"),
        opened(tmp_path / "x", "writing"),
    ):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="writing failed in"), opened(tmp_path / "file" / "x", "writing"):
        pass


def test_a_file_that_is_damaged_is_not_said_to_be_open_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(PipelineFailed, match=r"in block 3$"), explained(tmp_path, "writing"):
        raise duckdb.IOException("Corrupt database file: the checksum does not match in block 3")


def test_errors_say_what_failed_and_where(tmp_path: Path) -> None:
    with (
        pytest.raises(PipelineFailed, match=r"asking failed in .*x: .*nowhere"),
        opened(tmp_path / "x", "asking") as connection,
    ):
        connection.execute("SELECT * FROM nowhere")
