"""The ledger of an index of a server: a document of its own, in the index `headrace-ledger`.

    {"pipeline": "products", "index": "products", "run": 3, "query_id": "...", "next_batch_id": 42,
     "digest": "...", "generation": "products-g000001", "uuid": "...", "writer": "..."}

It is changed only by who has seen what it said before: the server compares the number of the last change. A
batch is entered when all of its rows are written. So a batch that is cut off is written again, to the same
effect: see bulk.py. The uuid is that of the generation: one that was restored from a backup, or made anew,
has another.

    {"index": "products", "run": 3}

Numbers of runs are taken from a document that all pipelines of an index share, because they are versions of
its rows: whoever begins later, another pipeline or a repair too, has the newer ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from headrace.errors import FaultError, StoreUnavailable
from headrace.search.keys import key_text
from headrace.search.server import Server, document_path
from headrace.streams.sinks.run_ledger import Ledger

LEDGER_INDEX: Final = "headrace-ledger"
_THERE: Final = "resource_already_exists_exception"
ATTEMPTS_MAX: Final = 5
"""How often to begin again where others take a number at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the document says."""

    ledger: Ledger
    generation: str
    uuid: str
    writer: str
    """Who has written the document: an id of a writer, or of a swap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What it said, and which change of it that was."""

    kept: Kept
    seq_no: int
    primary_term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedLedger:
    """The document of one pipeline and one index. Travels to the executors."""

    pipeline: str
    index: str

    def make(self, server: Server) -> None:
        """Make the index of ledgers, if it is missing."""
        body = {"mappings": {"dynamic": False}}
        answer = server.ask("PUT", f"/{LEDGER_INDEX}", body, what=self._what, accepted={400})
        if answer.status == 400 and answer.kind != _THERE:
            raise FaultError(f"{self._what} failed on {server.told}: {answer.words}")

    def read(self, server: Server) -> Seen | None:
        """What it says now."""
        answer = server.ask("GET", self._path, what=self._what, accepted={404})
        if answer.status == 404:
            return None
        found = answer.body
        document: dict[str, Any] = found["_source"]
        kept = Kept(
            ledger=Ledger.from_document(document),
            generation=str(document["generation"]),
            uuid=str(document["uuid"]),
            writer=str(document["writer"]),
        )
        return Seen(kept=kept, seq_no=int(found["_seq_no"]), primary_term=int(found["_primary_term"]))

    def write(self, server: Server, kept: Kept, after: Seen | None) -> bool:
        """Let it say something else, unless it has been changed since; say whether it does."""
        document = {
            "pipeline": self.pipeline,
            "index": self.index,
            **kept.ledger.to_document(),
            "generation": kept.generation,
            "uuid": kept.uuid,
            "writer": kept.writer,
        }
        condition = None if after is None else (after.seq_no, after.primary_term)
        if self._put(server, self._path, document, condition):
            return True
        # The change may be our own, of an attempt whose answer was lost.
        now = self.read(server)
        return now is not None and now.kept == kept

    def next_run(self, server: Server, *, above: int) -> int:
        """A number for a run, above this one and above that of any run, of whatever pipeline, before it."""
        for _ in range(ATTEMPTS_MAX):
            answer = server.ask("GET", self._runs_path, what=self._what, accepted={404})
            last, condition = 0, None
            if answer.status != 404:
                last = int(answer.body["_source"]["run"])
                condition = (int(answer.body["_seq_no"]), int(answer.body["_primary_term"]))
            run = max(last, above) + 1
            # One that is taken by an attempt whose answer was lost is nobody's.
            if self._put(server, self._runs_path, {"index": self.index, "run": run}, condition):
                return run
        raise StoreUnavailable(
            f"pipeline {self.pipeline} could not take a number for a run that writes the search index "
            f"{self.index} in {ATTEMPTS_MAX} attempts, because others do so at the same time"
        )

    def remove(self, server: Server) -> None:
        """There is no such index any more."""
        for path in (self._path, self._runs_path):
            server.ask("DELETE", path, what=self._what, accepted={404})

    def _put(
        self, server: Server, path: str, document: dict[str, Any], after: tuple[int, int] | None
    ) -> bool:
        """Write a document, if the last change of it was this one; or if it is not there, for none."""
        condition: dict[str, Any] = {"op_type": "create"}
        if after is not None:
            condition = dict(zip(("if_seq_no", "if_primary_term"), after, strict=True))
        answer = server.ask("PUT", path, document, what=self._what, accepted={409}, **condition)
        return answer.status != 409

    @property
    def _path(self) -> str:
        return document_path(LEDGER_INDEX, key_text([self.pipeline, self.index]))

    @property
    def _runs_path(self) -> str:
        return document_path(LEDGER_INDEX, key_text([self.index]))

    @property
    def _what(self) -> str:
        return f"keeping what pipeline {self.pipeline} has written to {self.index}"
