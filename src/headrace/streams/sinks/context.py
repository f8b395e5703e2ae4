"""What writes a batch of a pipeline's rows somewhere, and what it is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from headrace.config import Guarantee
from headrace.streams.claim import has_claimed, note_claim
from headrace.streams.given_up import digest_of, given_up_digests
from headrace.streams.sinks.ledger import NO_DIGEST, Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TRANSACTION_S_MAX: Final = 900
"""The longest that Kafka's brokers let a transaction take, unless they are told otherwise."""


class BatchWriter(Protocol):
    """Writes batches of rows. Not safe to share between threads."""

    def write(self, rows: DataFrame, batch_id: int) -> int | None:
        """Write the rows; return how many, or None where that is not known.

        By the guarantee `exactly-once`, a batch that is written again with the same id, after a crash at any
        moment or after an error, changes nothing that was written of it already. The rows are computed as
        they are written, so they may be used once only.
        """

    def close(self) -> None:
        """Let go of what an interrupted write has left open. Nothing is written any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteContext:
    """Who writes, and how."""

    pipeline: str
    """The name of the query: a pipeline's name, or that of a companion for dead letters."""
    query_id: str
    """Spark's, which lives as long as the checkpoint; or any other id of one run of batches."""
    bootstrap: str
    guarantee: Guarantee
    client_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of librdkafka for all clients, such as those for logging in."""
    checkpoint: Path | None = None
    """Where Spark keeps the query's offsets; None where there is no streaming query."""
    refused: Path | None = None
    """Where rows are kept that a store refuses, if not in the checkpoint."""
    operator: str | None = None
    """Whose rows these are, where they are no results: each operator has a ledger of its own."""
    transaction_s_max: int = TRANSACTION_S_MAX
    """How long a transaction may take before the broker gives it up."""

    def batch(self, batch_id: int, target: str, *, is_first: bool) -> Batch:
        """The batch that is about to be written there; `is_first` if none was since the query was started."""
        there = self.checkpoint
        return Batch(
            pipeline=self.pipeline,
            query_id=self.query_id,
            batch_id=batch_id,
            digest=NO_DIGEST if there is None else digest_of(there, batch_id),
            given_up=frozenset() if there is None else given_up_digests(there, batch_id),
            is_first=is_first,
            has_claimed=there is not None and has_claimed(there, self.query_id, self._claimed(target)),
        )

    def note_claim(self, target: str) -> None:
        """Note down that the ledger of what is written is in the hands of this checkpoint."""
        if self.checkpoint is not None:
            note_claim(self.checkpoint, self.query_id, self._claimed(target))

    def _claimed(self, target: str) -> str:
        return target if self.operator is None else f"{self.operator} {target}"


def read_query_id(checkpoint: Path) -> str:
    """The id that Spark gave the query when its checkpoint was made."""
    return str(json.loads((checkpoint / "metadata").read_text())["id"])
