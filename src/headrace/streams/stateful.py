"""Put an operator with keyed state into a pipeline: what `hr.window`, `hr.keyed` and the like have in common.

On a stream, the operator gets a name of its own in the pipeline, by which its reports and the files of its
side rows go; it describes itself, so that a checkpoint is not gone on from by something else; and rows
that are not among its results get a topic. In batch there is none of that, and no row is late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import LATE, Logic
from headrace.streams.buckets.operator import run_logic
from headrace.streams.building import current_building, find_building
from headrace.streams.event_time import find_event_time, keep_event_time
from headrace.streams.plans import Operator, Part
from headrace.streams.recent import is_realtime
from headrace.streams.recognise import ARGUMENT_PREFIX
from headrace.streams.side_files import SideFiles
from headrace.streams.table_ends import BatchEnds
from headrace.streams.time.durations import Duration, duration_text, duration_us
from headrace.streams.time.policies import Policy, perfect
from headrace.streams.topic import Topic
from headrace.streams.windows.late import LatePolicy, SideOutput, Update, drop

LATE_COLUMNS: Final = ("window", "late_by_ms", "watermark", "reason")
"""What late rows are told with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stateful:
    """An operator, apart from what it computes."""

    title: str
    """As it is called in a pipeline: `hr.window`, or by the name of a user's function."""
    rows: DataFrame
    by: tuple[str, ...]
    event_time: str | None
    buckets: int
    declared: str | None = None
    """The column by which sources say how far they are, if they do."""
    everywhere: str | None = None
    """The column that is true in rows which are for all buckets, if there is one."""

    def __post_init__(self) -> None:
        for column in self.by:
            if column not in self.rows.columns:
                raise PipelineError(
                    f"{self.title}: there is no column {column!r} among {', '.join(self.rows.columns)}"
                )
        if self.rows.isStreaming and is_realtime(self.rows):
            raise PipelineError(
                f"{self.title} keeps its state in Python, which real-time mode can't run: use hr.recent, or "
                "run without --realtime, in micro-batches"
            )

    def late_policy(self, late: LatePolicy | None) -> LatePolicy:
        """What becomes of late rows; an operator that says nothing has a topic for them. Ask once."""
        if self.rows.isStreaming:
            return late or SideOutput(topic=current_building(self.title).late_topic())
        # Nothing is late in a batch, but the columns must be those of the stream.
        return Update(within_us=late.within_us, retract=late.retract) if isinstance(late, Update) else drop

    def run(
        self,
        rows: DataFrame,
        logic: Logic,
        described: Operator,
        beside: Mapping[str, LatePolicy] = MappingProxyType({}),
        *,
        table_ends: bool = False,
    ) -> DataFrame:
        """The results for these rows. `beside` says what becomes of the logic's other outputs; with
        `table_ends`, it is told up to where each micro-batch reads.
        """
        name = self.title.removeprefix("hr.")
        side, ends = None, None
        # Without rows that need a place, it may also be part of a query that is built by hand.
        building = current_building(self.title) if beside and self.rows.isStreaming else find_building()
        if building is not None:
            name = building.name_operator(name)
            building.operators[name] = described
        if building is not None and self.rows.isStreaming:
            files = {}
            for output, policy in beside.items():
                if isinstance(policy, SideOutput):
                    self._refuse_clash(output)
                    place = f"{name}.{output}"
                    building.side_topics[place] = self._topic(policy)
                    files[output] = SideFiles.of(building.checkpoint, place)
            side = SideRows(files=files) if files else None
            ends = BatchEnds(checkpoint=str(building.checkpoint)) if table_ends else None
        result = run_logic(
            rows,
            logic,
            by=self.by,
            event_time=self.event_time,
            name=name,
            buckets=self.buckets,
            declared=self.declared,
            side=side,
            everywhere=self.everywhere,
            ends=ends,
        )
        return keep_event_time(rows, result)

    def _refuse_clash(self, output: str) -> None:
        clash = set(self.rows.columns).intersection(LATE_COLUMNS) if output == LATE else ()
        if clash:
            raise PipelineError(
                f"{self.title}: late rows get a column {min(clash)}, which these have already: rename it, or "
                "say late=hr.drop"
            )

    def _topic(self, policy: SideOutput) -> Topic:
        has_key = len(self.by) == 1 and not self.by[0].startswith(ARGUMENT_PREFIX)
        return Topic(name=policy.topic, key=self.by if has_key else ())

    def described(self, kind: str, kept: Mapping[str, str], settings: Mapping[str, str]) -> Operator:
        """For the check whether a changed pipeline can go on.

        `kept` says by name what is in the state, and `settings` what else it was made for.
        """
        schema = self.rows.schema
        keys = [f"{name}: {schema[name].dataType.simpleString()}" for name in self.by]
        return Operator(
            kind=kind,
            keys=tuple(
                Part(text=name, typed=typed, definition=typed)
                for name, typed in zip(self.by, keys, strict=True)
            ),
            state=tuple(Part(text=name, typed=typed, definition=typed) for name, typed in kept.items()),
            settings={"number of buckets": str(self.buckets), **settings},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRows:
    """Takes rows that are no results to files, from where they are written. Travels to the executors."""

    files: Mapping[str, SideFiles]
    """By output."""

    def __call__(self, output: str, batch_id: int, bucket: int, rows: pa.Table) -> None:
        """Keep a bucket's rows of a batch."""
        made = [name for name in rows.column_names if name.startswith(ARGUMENT_PREFIX)]
        self.files[output].write(batch_id, str(bucket), rows.drop_columns(made))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """How long an operator keeps rows, by their event time; for ever where no ttl is given."""

    column: str | None
    ttl_us: int | None
    watermark: Policy
    declared: str | None = None
    """The column by which sources say how far they are, if they do."""

    @classmethod
    def of(
        cls,
        rows: DataFrame,
        title: str,
        ttl: Duration | None,
        event_time: str | None,
        watermark: str | Policy | None,
    ) -> Lifetime:
        """What was asked for; raise where a ttl is given and nothing says what it is measured by."""
        if ttl is None:
            return cls(column=None, ttl_us=None, watermark=perfect())
        time = find_event_time(rows, title, event_time, watermark)
        return cls(
            column=time.column,
            ttl_us=duration_us(ttl, f"{title}: ttl"),
            watermark=time.policy(rows),
            declared=time.declared,
        )

    @property
    def settings(self) -> dict[str, str]:
        """In words, for the check whether a changed pipeline can go on."""
        kept = "for ever" if self.ttl_us is None else duration_text(self.ttl_us)
        return {"ttl": kept, "event time": self.column or "none"}
