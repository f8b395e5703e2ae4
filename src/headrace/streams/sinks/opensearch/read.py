"""An index of a server as a DataFrame, read by one task on an executor, as of one moment.

Rows travel as the JSON that the server keeps of them, to the letter: numbers are not read in between. Spark
reads it by the types of the columns that are asked for (see sinks/index_rows.py).
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.errors import StoreUnavailable
from headrace.search.server import Server, connected
from headrace.streams.sinks.index_rows import from_documents
from headrace.streams.stores import ServedIndex

ROWS_MAX: Final = 1_000
"""How many rows are asked for at once, at most."""
PAGE_BYTES: Final = 8 * 2**20
"""How much a page is to hold, as the server has it on disk."""
KEEP: Final = "2m"
"""How long the server is to keep the moment between two requests."""


def read(session: SparkSession, table: ServedIndex, schema: StructType) -> DataFrame:
    """These columns of all rows, as they are when they are read."""
    task = ReadTask(table=table)
    return from_documents(session.range(0, 1, 1, 1).mapInArrow(task.run, "row string"), schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """Reads an index. Travels to an executor."""

    table: ServedIndex

    def run(self, shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows of the index, for the one row that it is given."""
        if sum(share.num_rows for share in shares) == 0:
            return
        with connected(self.table.url) as server:
            for texts in pages(server, self.table.index):
                yield pa.RecordBatch.from_pydict({"row": pa.array(texts, pa.string())})


def pages(server: Server, index: str, *, rows_max: int | None = None) -> Generator[list[str], None, None]:
    """All rows as JSON, page by page, as they are now; as many at a time as they are large, if not told."""
    what = f"reading the index {index}"
    refresh(server, index)
    size = rows_max or _rows_at_once(server, index, what)
    body = {"size": size, "sort": ["_doc"], "query": {"match_all": {}}, "track_total_hits": True}
    answer = server.ask("POST", f"/{quote(index, safe='')}/_search", body, what=what, scroll=KEEP)
    numbers = Numbers()
    row_count, read_count = answer.body["hits"]["total"]["value"], 0
    scroll_id = answer.body["_scroll_id"]
    try:
        while True:
            found = numbers.read(answer.text)
            hits = found["hits"]["hits"]
            if not hits or found.get("_shards", {}).get("failed"):
                break
            read_count += len(hits)
            yield [numbers.write(hit["_source"]) for hit in hits]
            scroll_id = found["_scroll_id"]
            next_page = {"scroll": KEEP, "scroll_id": scroll_id}
            answer = server.ask("POST", "/_search/scroll", next_page, what=what)
    finally:
        # Also where somebody reads no further: a server keeps few such moments at a time.
        server.ask("DELETE", "/_search/scroll", {"scroll_id": scroll_id}, what=what, accepted={404})
    if read_count != row_count:
        # A page whose answer is lost is not given again, and a shard that fails leaves its rows out.
        raise StoreUnavailable(
            f"{what} failed on {server.told}: it has given {read_count:,} of {row_count:,} rows; try again"
        )


def rows_at_once(size_bytes: int, row_count: int) -> int:
    """How many rows a page has, of an index of this size."""
    row_bytes = max(1, size_bytes // max(1, row_count))
    return max(1, min(ROWS_MAX, PAGE_BYTES // row_bytes))


def _rows_at_once(server: Server, index: str, what: str) -> int:
    found = server.ask("GET", f"/{quote(index, safe='')}/_stats/docs,store", what=what).body
    sizes = found["_all"]["primaries"]
    return rows_at_once(int(sizes["store"]["size_in_bytes"]), int(sizes["docs"]["count"]))


def refresh(server: Server, index: str) -> None:
    """Let all that is written be found."""
    server.ask("POST", f"/{quote(index, safe='')}/_refresh", what=f"refreshing the index {index}")


@dataclass(frozen=True, slots=True)
class Numbers:
    """Reads JSON and writes parts of it, with numbers that have a point or an exponent as they stood there.

    Python would make floats of them, and a decimal has more digits. They are marked as texts meanwhile, by a
    mark that nobody can have written.
    """

    mark: str = field(default_factory=lambda: secrets.token_hex(8))

    def read(self, text: str) -> dict[str, Any]:
        """Python's values."""
        found: dict[str, Any] = json.loads(text, parse_float=lambda number: f"{self.mark}{number}")
        return found

    def write(self, value: object) -> str:
        """JSON again."""
        return re.sub(rf'"{self.mark}([^"]*)"', r"\1", json.dumps(value, ensure_ascii=False))
