"""Let an index that a replay has built take the place of the one that an alias stands for (see
sinks/swaps.py).

    products-swap-<id>    the alias that the replay writes, of a generation of its own

The ledger comes first: it gets what the replay's says, and a number that no run has, so that all who still
write are shut out. Then one request moves the alias, and removes the old index and the replay's alias.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql.types import StructType

from headrace.errors import PipelineError, StoreUnavailable
from headrace.failpoints import hit
from headrace.search.fields import Columns
from headrace.search.server import Server, connected
from headrace.streams.sinks.index_rows import index_columns
from headrace.streams.sinks.opensearch import mapping, place
from headrace.streams.sinks.opensearch.ledger import Kept, ServedLedger
from headrace.streams.sinks.opensearch.place import Generation
from headrace.streams.sinks.records import DELETE_COLUMN
from headrace.streams.sinks.run_ledger import swapped
from headrace.streams.stores import ServedIndex
from headrace.streams.topic import METADATA_COLUMN

ATTEMPTS_MAX: Final = 5
"""How often to begin again where others change the ledger at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSwap:
    """One swap of one index."""

    table: ServedIndex
    pipeline: str
    swap_id: str

    @property
    def staging(self) -> ServedIndex:
        """An index of its own on the same server."""
        return replace(self.table, index=f"{self.table.index}-swap-{self.swap_id[:16]}")

    def check(self, schema: StructType) -> None:
        """Raise where an index can't have these columns. Those of the live one may be others."""
        columns = self._columns(schema)
        mapping.check_names(columns, pipeline=self.pipeline)
        with self._server() as server:
            place.ensure(server, self.table.index, columns)
            place.ensure(server, self.staging.index, columns)

    def make(self) -> None:
        """The staging index is there since its columns were checked."""
        if not self.is_made():
            raise self._gone()

    def is_made(self) -> bool:
        """Whether the staging index is there."""
        with self._server() as server:
            return place.find(server, self.staging.index) is not None

    def commit(self, query_id: str) -> None:
        """Swap, and remove the old index."""
        with self._server() as server:
            live = place.find(server, self.table.index)
            if live is None or live.name != mapping.generation_name(self.staging.index):
                self._commit(server, live, query_id)
            ServedLedger(pipeline=self.pipeline, index=self.staging.index).remove(server)

    def _commit(self, server: Server, live: Generation | None, query_id: str) -> None:
        staged = place.find(server, self.staging.index)
        if staged is None:
            raise self._gone()
        self._take_over(server, staged, query_id)
        hit("replay.swap")
        server.ask("POST", "/_aliases", self._actions(live, staged), what=f"swapping {self.table.index}")
        hit("replay.swapped")

    def _actions(self, live: Generation | None, staged: Generation) -> dict[str, Any]:
        actions: list[dict[str, Any]] = [
            {"add": {"index": staged.name, "alias": self.table.index}},
            {"remove": {"index": staged.name, "alias": self.staging.index}},
        ]
        if live is not None:
            actions.append({"remove_index": {"index": live.name}})
        return {"actions": actions}

    def _take_over(self, server: Server, staged: Generation, query_id: str) -> None:
        """Let the ledger speak of the staged index, unless it does so since an earlier attempt."""
        live_ledger = ServedLedger(pipeline=self.pipeline, index=self.table.index)
        staged_ledger = ServedLedger(pipeline=self.pipeline, index=self.staging.index)
        live_ledger.make(server)
        for _ in range(ATTEMPTS_MAX):
            live, replayed = live_ledger.read(server), staged_ledger.read(server)
            if live is not None and live.kept.writer == self._writer:
                return
            ledger = swapped(
                live.kept.ledger if live else None, replayed.kept.ledger if replayed else None, query_id
            )
            ledger = replace(ledger, run=live_ledger.next_run(server, above=ledger.run - 1))
            kept = Kept(ledger=ledger, generation=staged.name, uuid=staged.uuid, writer=self._writer)
            if live_ledger.write(server, kept, live):
                return
        raise StoreUnavailable(
            f"the search index {self.table.index} could not be swapped in {ATTEMPTS_MAX} attempts, because "
            "others change its ledger"
        )

    @property
    def _writer(self) -> str:
        return f"swap {self.swap_id}"

    def _columns(self, schema: StructType) -> Columns:
        fields = [field for field in schema.fields if field.name not in {DELETE_COLUMN, METADATA_COLUMN}]
        return index_columns(
            StructType(fields), key=self.table.key, text=self.table.text, pipeline=self.pipeline
        )

    def _gone(self) -> PipelineError:
        return PipelineError(
            f"the staged rows in {self.staging.index} are gone, so the search index {self.table.index} can't "
            "be swapped: begin the replay anew"
        )

    @contextmanager
    def _server(self) -> Iterator[Server]:
        with connected(self.table.url) as server:
            yield server
