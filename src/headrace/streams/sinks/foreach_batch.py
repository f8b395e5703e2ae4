"""What Spark calls for each batch of a query: it opens the writer at the first, and remembers how it went.

PySpark's own `foreachBatch` makes a session of Python's for each batch, which asks Java a dozen questions
while nothing else happens. All batches of a run have the same session, so here it is made once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import java_import
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession

from headrace.streams.plan_mode import PlanMode
from headrace.streams.sinks.gate import Gate

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Write = Callable[["DataFrame", int], int | None]
"""Write a batch by its id; return how many rows were written, where that is known."""

WRITTEN_COUNT_KEPT: Final = 100
"""As many batches as Spark keeps reports of."""


class ForeachBatch:
    """The function of one query. Spark calls it from one thread at a time; others may look on."""

    def __init__(
        self,
        open_writer: Callable[[], tuple[Write, Callable[[], None]]],
        plan_mode: PlanMode | None = None,
    ) -> None:
        """The writer can be opened only once Spark has made the checkpoint: it gives the query its id."""
        self._open_writer = open_writer
        self._plan_mode = plan_mode
        self._gate = Gate()
        self._write: Write | None = None
        self._close: Callable[[], None] | None = None
        self.error: BaseException | None = None
        """Why the last batch failed. Spark tells it with a stack trace of Java's around it."""
        self.written: dict[int, int | None] = {}
        """The last batches that were written, and how many rows each had."""

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write a batch."""
        try:
            self._gate.check()
            if self._write is None:
                self._write, self._close = self._open_writer()
                # `close` has not seen this writer if it came meanwhile.
                self._gate.check()
            if self._plan_mode is not None:
                self._plan_mode.settle(batch_id, frame.sparkSession, self.written.get(batch_id - 1) or 0)
            self.written[batch_id] = self._write(frame, batch_id)
            self.written.pop(batch_id - WRITTEN_COUNT_KEPT, None)
        except BaseException as error:
            self.error = error
            raise

    def close(self) -> None:
        """Let go of what an interrupted batch has left open. No batch is begun any more."""
        self._gate.close()
        if self._close is not None:
            self._close()


class _CalledByJava:
    """What Java knows of such a function."""

    def __init__(self, function: ForeachBatch, context: Any) -> None:
        self._function = function
        self._context = context
        self._session: SparkSession | None = None

    def call(self, java_frame: Any, batch_id: int) -> None:
        """A batch is there: what Java calls."""
        if self._session is None:
            self._session = SparkSession(self._context, java_frame.sparkSession())
        self._function(DataFrame(java_frame, self._session), batch_id)

    class Java:
        """What Java takes it for."""

        implements = ("org.apache.spark.sql.execution.streaming.sources.PythonForeachBatchFunction",)


def call_for_each_batch(writer: DataStreamWriter, function: ForeachBatch) -> DataStreamWriter:
    """Have a query call the function, as `writer.foreachBatch` does."""
    context = writer._spark.sparkContext  # noqa: SLF001 - there is no public way to it
    gateway = context._gateway  # noqa: SLF001 - see above
    assert gateway is not None, "there is a writer, so there is Java"
    java_import(gateway.jvm, "org.apache.spark.sql.execution.streaming.sources.*")
    called = _CalledByJava(function, context)
    gateway.jvm.PythonForeachBatchHelper.callForeachBatch(writer._jwrite, called)  # noqa: SLF001 - see above
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call] # it has no types
    return writer
