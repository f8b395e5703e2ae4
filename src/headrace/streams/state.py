"""Read what a pipeline keeps of a key, from its checkpoint: what `headrace state` does. Changes nothing.

Spark keeps the state of its last hundred batches or so; that of an older batch can't be read any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.config import StreamsConfig
from headrace.errors import PipelineError
from headrace.streams.buckets.kept_rows import KeptRow, kept_rows
from headrace.streams.buckets.operator import STATE_NAME
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.failure import first_line
from headrace.streams.progress_log import has_batch, read_progress_log
from headrace.streams.session import start_session, stop_session
from headrace.streams.workspace import workspace

ROWS_MAX: Final = 100
"""How many rows of state are read at most."""
_SLOTS: Final = 2
_PLAIN: Final = re.compile(r"[A-Za-z0-9/._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptState:
    """What a pipeline has kept of a key."""

    batch: int
    """The batch after which it was so."""
    rows: tuple[KeptRow, ...]


def read_state(
    pipeline: str, config: StreamsConfig, key: Mapping[str | None, str], *, batch: int | None = None
) -> KeptState:
    """What the pipeline keeps of the key, after a batch, or after the last that is done."""
    checkpoint = checkpoint_path(config, pipeline)
    asked = _batch(pipeline, checkpoint, batch)
    with ExitStack() as held:
        work_dir = held.enter_context(workspace(config.data_dir))
        session = start_session(config, slots=_SLOTS, work_dir=work_dir)
        held.callback(stop_session, session)
        return read_state_in(session, pipeline, checkpoint, key, batch=asked)


def read_state_in(
    session: SparkSession, pipeline: str, checkpoint: Path, key: Mapping[str | None, str], *, batch: int
) -> KeptState:
    """The same in a session that runs already."""
    try:
        rows = kept_rows(state_tables(session, checkpoint, batch), key, limit=ROWS_MAX)
    except PySparkException as error:
        raise PipelineError(
            f"the state of {pipeline} after batch {batch} can't be read: {first_line(error)}; Spark keeps "
            "that of the last hundred batches or so"
        ) from error
    return KeptState(batch=batch, rows=tuple(rows))


def _batch(pipeline: str, checkpoint: Path, asked: int | None) -> int:
    last = read_progress_log(checkpoint).committed if has_batch(checkpoint) else None
    if last is None:
        raise PipelineError(f"{pipeline} has no state: no batch of it is done at {checkpoint}")
    if asked is not None and not 0 <= asked <= last:
        raise PipelineError(f"{pipeline} has not done batch {asked}: the last one is {last}")
    return last if asked is None else asked


def state_tables(session: SparkSession, checkpoint: Path, batch: int) -> Iterator[tuple[str, bytearray]]:
    """The tables of all operators that keep state in buckets, by name, as they were after a batch."""
    with _location(checkpoint) as location:
        operators = session.read.format("state-metadata").load(location)
        bucketed = operators.where(F.col("operatorProperties").contains(f'"{STATE_NAME}"'))
        for operator in bucketed.select("operatorId").distinct().orderBy("operatorId").collect():
            state = (
                session.read.format("statestore")
                .option("operatorId", operator["operatorId"])
                .option("stateVarName", STATE_NAME)
                .option("batchId", batch)
                .load(location)
            )
            name = F.col("user_map_key")["name"].alias("name")
            blob = F.col("user_map_value")["blob"].alias("blob")
            for row in state.select(name, blob).orderBy("name").toLocalIterator():
                yield row["name"], row["blob"]


@contextmanager
def _location(checkpoint: Path) -> Iterator[str]:
    """Where Spark finds the checkpoint.

    It escapes what an address can't have, such as a space, and then looks for a directory that is called so:
    there it is shown a link without such characters.
    """
    if _PLAIN.fullmatch(str(checkpoint)):
        yield f"file://{checkpoint}"
        return
    with TemporaryDirectory(prefix="headrace-state-") as directory:
        link = Path(directory, "checkpoint")
        link.symlink_to(checkpoint, target_is_directory=True)
        yield f"file://{link}"
