"""What a task on an executor does with its share of a batch: write it to the server, in few requests.

A task that was given up may come back late. The server refuses its rows by their version, and knows that also
of rows that were deleted, but forgets those when it is restarted. So before each request, and before one that
got no answer is sent again, the task looks whether the batch is still to be written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import pyarrow as pa

from headrace.errors import FaultError, PipelineError, PipelineFailed, StoreUnavailable
from headrace.failpoints import Failpoint, hit
from headrace.search.fields import ROW
from headrace.search.keys import key_text
from headrace.search.server import TRY_S_MAX, Server, connected, growing_pauses
from headrace.streams.side_files import SideFiles
from headrace.streams.sinks.ledger import taken_over
from headrace.streams.sinks.lost import lost
from headrace.streams.sinks.opensearch import bulk
from headrace.streams.sinks.opensearch.bulk import Action, Outcome
from headrace.streams.sinks.opensearch.ledger import LEDGER_INDEX, ServedLedger
from headrace.streams.sinks.opensearch.mapping import rows_alias
from headrace.streams.sinks.records import DELETE_COLUMN
from headrace.streams.sinks.refused import Refusals
from headrace.streams.sinks.run_ledger import Ledger
from headrace.streams.sinks.staged_files import last_of_each_key
from headrace.streams.sinks.tasks import armed, task_number

RESULT: Final = "task int, row_count bigint"
"""What a task answers with: one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkTask:
    """How each task of a batch writes its share. Travels to the executors."""

    url: str = field(repr=False)
    ledger: ServedLedger
    generation: str
    run: int
    batch_id: int
    key: tuple[str, ...]
    columns: tuple[str, ...]
    """The names of the rows' columns: the key's, the row itself, and perhaps `_delete`."""
    refused: SideFiles | None
    failpoints: tuple[Failpoint, ...] = ()

    def run_share(self, shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the share."""
        task = task_number()
        filled = [share.rename_columns(self.columns) for share in shares if share.num_rows]
        row_count = 0
        if filled:
            rows = last_of_each_key(self._checked(pa.Table.from_batches(filled)), self.key)
            row_count = rows.num_rows
            with armed(self.failpoints), connected(self.url) as server:
                hit("pipeline.task.begun")
                self._write(server, rows, task)
                hit("pipeline.task.committed")
        yield pa.RecordBatch.from_pydict(
            {"task": pa.array([task], pa.int32()), "row_count": pa.array([row_count], pa.int64())}
        )

    def _checked(self, rows: pa.Table) -> pa.Table:
        for key in self.key:
            if rows.column(key).null_count:
                raise PipelineFailed(
                    f"pipeline {self.ledger.pipeline} returns a row whose key column {key} is null, for the "
                    f"search index {self.ledger.index}: leave such rows out, or give them a value"
                )
        return rows

    def _write(self, server: Server, rows: pa.Table, task: int) -> None:
        refusals = Refusals(files=self.refused, batch_id=self.batch_id, part=str(task))
        sender = Sender(server=server, task=self, refusals=refusals)
        is_newer = False
        for actions in bulk.in_requests(self._actions(rows, refusals)):
            is_newer |= sender.send(actions)
        if is_newer:
            self.refuse_newer(server)
        hit("pipeline.task.produced")
        refusals.flush()

    def _actions(self, rows: pa.Table, refusals: Refusals) -> Iterator[Action]:
        for row in (row for part in rows.to_batches() for row in part.to_pylist()):
            action = Action(id=key_text([row[name] for name in self.key]), row=row[ROW])
            assert (action.row is None) == bool(row.get(DELETE_COLUMN)), "a row that stays has its JSON"
            if len(action.id.encode()) <= bulk.ID_BYTES_MAX:
                yield action
            elif action.row is not None:
                cause = f"its key has more than the {bulk.ID_BYTES_MAX} bytes that a search server takes"
                refusals.add(action.id, action.row, cause)

    def refuse_late(self, server: Server) -> None:
        """Raise where the batch is not to be written any more."""
        if self.refuse_replaced(server).entry.next_batch_id > self.batch_id:
            raise PipelineFailed(
                f"a task of pipeline {self.ledger.pipeline} comes late: batch {self.batch_id} is written"
            )

    def refuse_newer(self, server: Server) -> None:
        """Raise where the server has newer rows."""
        self.refuse_late(server)
        pipeline, index = self.ledger.pipeline, self.ledger.index
        raise PipelineError(
            f"the search index {index} has newer rows than those that pipeline {pipeline} is about to write: "
            f"another pipeline writes it, somebody has changed rows, or the index {LEDGER_INDEX} was lost. "
            "Let nobody else write it, and start the pipeline again; should it say so once more, build the "
            f"index anew with `headrace replay FILE:{pipeline} --swap`"
        )

    def refuse_replaced(self, server: Server) -> Ledger:
        """What the ledger says. Raises if another run has the index by now, or the ledger is lost."""
        seen = self.ledger.read(server)
        if seen is None:
            place = f"the search index {self.ledger.index}"
            raise lost(self.ledger.pipeline, place, "its ledger is gone")
        if seen.kept.ledger.run != self.run:
            raise taken_over(self.ledger.pipeline)
        return seen.kept.ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Sends rows until the server has said of each what becomes of it."""

    server: Server
    task: BulkTask
    refusals: Refusals
    try_s_max: float = TRY_S_MAX

    def send(self, actions: list[Action]) -> bool:
        """Send them, those again for which the server has no time; say whether it had newer rows."""
        is_newer, waited_s = False, 0.0
        for pause_s in growing_pauses():
            judged = self._judged(actions)
            is_newer |= any(each.outcome is Outcome.NEWER for each in judged)
            actions = [each.action for each in judged if each.outcome is Outcome.AGAIN]
            if not actions:
                break
            if waited_s + pause_s > self.try_s_max:
                said = next(each.words for each in judged if each.outcome is Outcome.AGAIN)
                raise StoreUnavailable(
                    f"{self._what} failed on {self.server.told}: it has not taken {len(actions)} rows within "
                    f"{self.try_s_max:.0f} s of trying: {said}"
                )
            time.sleep(pause_s)
            waited_s += pause_s
        return is_newer

    @property
    def _what(self) -> str:
        return f"writing to the index {self.task.ledger.index}"

    def _judged(self, actions: list[Action]) -> list[bulk.Judged]:
        alias = quote(rows_alias(self.task.generation), safe="")
        lines = bulk.lines_of(actions, bulk.version_of(self.task.run, self.task.batch_id))
        answer = self.server.ask(
            "POST",
            f"/{alias}/_bulk",
            lines,
            what=self._what,
            accepted={404, 413},
            before_each=lambda: self.task.refuse_late(self.server),
            require_alias="true",
        )
        if answer.status == 413 and len(actions) > 1:
            middle = len(actions) // 2
            return self._judged(actions[:middle]) + self._judged(actions[middle:])
        if answer.status == 413:
            items = [{"index": {"status": 413, "error": {"reason": "it is larger than the server takes"}}}]
            return self._heeded(bulk.judge({"items": items}, actions))
        if answer.status == 404:
            raise self._gone()
        try:
            return self._heeded(bulk.judge(answer.body, actions))
        except ValueError as error:
            raise FaultError(f"{self._what} failed on {self.server.told}: {error}") from error

    def _heeded(self, judged: list[bulk.Judged]) -> list[bulk.Judged]:
        """Put refused rows aside, and raise for what is wrong with all."""
        for each in judged:
            match each.outcome:
                case Outcome.REFUSED:
                    cause = f"the server does not take it: {each.words}"
                    self.refusals.add(each.action.id, each.action.row, cause)
                case Outcome.GONE:
                    raise self._gone()
                case Outcome.FAILED:
                    raise FaultError(f"{self._what} failed on {self.server.told}: {each.words}")
                case Outcome.DONE | Outcome.NEWER | Outcome.AGAIN:
                    pass
        return judged

    def _gone(self) -> Exception:
        """Another generation has taken the place of this one, or it was deleted."""
        self.task.refuse_replaced(self.server)
        place = f"the search index {self.task.ledger.index}"
        return lost(self.task.ledger.pipeline, place, f"{self.task.generation} is gone")
