"""The alerts that the page shows: one row per alert id, however often the stream delivers it.

The stream is at-least-once with deterministic ids, so a record whose alert id was seen before is a repeat:
it replaces what the row says (upsert), is counted, and does not count again as an alert or into latency.

A version may withdraw its alert (`holds` is false): the row stays and says so. A withdrawal of an alert that
was not seen, or is forgotten, is counted as such and is nothing else: no row, no alert, no latency. Its id is
not remembered, so a later version that holds is seen for the first time.

A record without a value (a tombstone) says that what had its key is gone. It is counted as that and is no
row: a topic that is kept by key, as a table is, has one for each row that was deleted.

Two numbers order everything, and both start at 1 with each start of the console:

    position   given at the first sighting, never changes; names the row and orders the page
    sequence   given at every change of a row; a page that has seen sequence n asks for all that is larger

Bounds. The newest `recent_alert_count_max` rows by position are retained. The ids of the newest
`remembered_id_count_max` alerts are remembered, as 16-byte digests, in order of first sighting; so a retained
row's id is always remembered. A repeat of an alert that is remembered but no longer retained is counted and
not shown: it is older than every row on the page. A repeat of a forgotten id counts as a new alert.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from headrace.console.decode import DEFAULT_WORDS, Alert, AlertRecord, Undecodable, decode

if TYPE_CHECKING:
    from collections.abc import Mapping

REMEMBERED_ID_COUNT_MAX: Final = 100_000
CLOCK_DIFFERENCE_MS_MAX: Final = 100
"""An alert may seem to arrive this much before its cause, by rounding or by clocks; that counts as 0 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One alert, or one record that could not be decoded, as the page shows it."""

    position: int
    sequence: int
    content: Alert | Undecodable
    partition: int
    offset: int
    timestamp_ms: int | None
    received_ms: int
    """When it was first seen."""
    latency_ms: int | None
    """From the production of the triggering record to the first sighting; None where it can't be known."""
    live: bool
    sighting_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertCounts:
    """What was read since the console started; each record counts in exactly one field."""

    alert_count: int = 0
    """First sightings, those from before the console started included."""
    repeat_count: int = 0
    withdrawn_count: int = 0
    """Withdrawals of alerts that were not seen before."""
    deleted_count: int = 0
    """Tombstones."""
    undecodable_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What taking one record did."""

    row: Row | None
    """The row that is new or has changed; None for a repeat of a row that is no longer retained, for a
    withdrawal of what was not seen, and for a tombstone."""
    is_repeat: bool


class AlertBook:
    """Retained rows, remembered ids and counts. Not safe to share between threads."""

    def __init__(
        self,
        *,
        recent_alert_count_max: int,
        remembered_id_count_max: int = REMEMBERED_ID_COUNT_MAX,
        words: Mapping[str, str] = DEFAULT_WORDS,
    ) -> None:
        self._words = words
        self._recent_alert_count_max = recent_alert_count_max
        self._remembered_id_count_max = max(remembered_id_count_max, recent_alert_count_max)
        self._rows: OrderedDict[int, Row] = OrderedDict()
        self._positions: OrderedDict[bytes, int] = OrderedDict()
        self._last_position = 0
        self._last_sequence = 0
        self.counts = AlertCounts()

    def take(self, record: AlertRecord) -> Sighting:
        """Enter a record into the book."""
        if record.value is None:
            self.counts = replace(self.counts, deleted_count=self.counts.deleted_count + 1)
            return Sighting(row=None, is_repeat=False)
        content, alert_id = decode(record, self._words)
        known = self._positions.get(_digest(alert_id)) if alert_id is not None else None
        if known is not None:
            return self._repeat(known, content)
        if isinstance(content, Alert) and not content.holds:
            self.counts = replace(self.counts, withdrawn_count=self.counts.withdrawn_count + 1)
            return Sighting(row=None, is_repeat=False)
        row = self._new_row(record, content)
        if alert_id is not None:
            self._positions[_digest(alert_id)] = row.position
            _trim(self._positions, self._remembered_id_count_max)
        self._count_first_sighting(content)
        return Sighting(row=row, is_repeat=False)

    def rows_after(self, sequence: int) -> list[Row]:
        """The retained rows that are new or have changed since, oldest change first."""
        changed = [row for row in self._rows.values() if row.sequence > sequence]
        return sorted(changed, key=lambda row: row.sequence)

    def rows(self) -> list[Row]:
        """All retained rows, newest first."""
        return list(reversed(self._rows.values()))

    def _new_row(self, record: AlertRecord, content: Alert | Undecodable) -> Row:
        self._last_position += 1
        row = Row(
            position=self._last_position,
            sequence=self._next_sequence(),
            content=content,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            received_ms=record.received_ms,
            latency_ms=latency_ms(record, content),
            live=record.live,
            sighting_count=1,
        )
        self._rows[row.position] = row
        _trim(self._rows, self._recent_alert_count_max)
        return row

    def _repeat(self, position: int, content: Alert | Undecodable) -> Sighting:
        self.counts = replace(self.counts, repeat_count=self.counts.repeat_count + 1)
        former = self._rows.get(position)
        if former is None:
            return Sighting(row=None, is_repeat=True)
        row = replace(
            former,
            content=content,
            sequence=self._next_sequence(),
            sighting_count=former.sighting_count + 1,
        )
        self._rows[position] = row
        return Sighting(row=row, is_repeat=True)

    def _count_first_sighting(self, content: Alert | Undecodable) -> None:
        if isinstance(content, Undecodable):
            self.counts = replace(self.counts, undecodable_count=self.counts.undecodable_count + 1)
        else:
            self.counts = replace(self.counts, alert_count=self.counts.alert_count + 1)

    def _next_sequence(self) -> int:
        self._last_sequence += 1
        return self._last_sequence


def latency_ms(record: AlertRecord, content: Alert | Undecodable) -> int | None:
    """How long it took from the cause to the console; None where it can't be known.

    Unknown: records from before the console looked, alerts without `sent_at`, and a `sent_at` so far in the
    future that the two clocks can't be compared.
    """
    if not record.live or isinstance(content, Undecodable) or content.sent_at_ms is None:
        return None
    difference_ms = record.received_ms - content.sent_at_ms
    return max(0, difference_ms) if difference_ms >= -CLOCK_DIFFERENCE_MS_MAX else None


def _digest(alert_id: str) -> bytes:
    return blake2b(alert_id.encode("utf-8", errors="surrogatepass"), digest_size=16).digest()


def _trim(entries: OrderedDict[bytes, int] | OrderedDict[int, Row], count_max: int) -> None:
    while len(entries) > count_max:
        entries.popitem(last=False)
