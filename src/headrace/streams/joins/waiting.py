"""Events that wait, as a join keeps them: in runs, in which those that are done are marked."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.streams.joins.runs import Pages, RunRows, Runs
from headrace.streams.time.bounds import END_US
from headrace.streams.windows.runs import Flags, Indices


class WaitingEvents:
    """The events of one name that wait, for one step."""

    def __init__(self, pages: Pages, name: str, schema: pa.Schema) -> None:
        self._runs = Runs(pages, name, schema)

    @property
    def oldest_us(self) -> int:
        """No event that waits is older; END_US where none does."""
        return min((run.oldest_us for run in self._runs), default=END_US)

    def add(self, events: RunRows) -> None:
        """Let events wait."""
        self._runs.append(events.ordered())

    def take_before(self, before_us: int) -> list[RunRows]:
        """The events that are older wait no longer."""
        taken = []
        for number, places, events in self.peek(np.zeros(0, np.int64), before_us):
            self.done(number, places)
            taken.append(events)
        return taken

    def peek(self, hashes: Indices, before_us: int) -> Iterator[tuple[int, Indices, RunRows]]:
        """The events that have one of these hashes, or are older: the number of a run, places, and events.

        They wait on, unless `done` says that they don't.
        """
        for run in self._runs:
            if not len(hashes) and run.oldest_us >= before_us:
                continue
            index = self._runs.index(run)
            is_asked = np.isin(index.hashes, hashes) | (index.times_us < before_us)
            places = np.flatnonzero(is_asked & ~self._runs.marks(run))
            if len(places):
                yield run.number, places, self._events(run.number, places)

    def done(self, number: int, places: Indices) -> None:
        """Events at these places of a run wait no longer."""
        run = next(each for each in self._runs if each.number == number)
        self._runs.mark(run, places)

    def finish(self) -> None:
        """Forget those that are done."""
        for run in self._runs:
            if self._runs.marks(run).all():
                self._runs.remove(run)
        self._runs.tidy(_waits)
        self._runs.finish()

    def _events(self, number: int, places: Indices) -> RunRows:
        run = next(each for each in self._runs if each.number == number)
        index = self._runs.index(run)
        return RunRows(
            rows=self._runs.rows(run, places),
            hashes=index.hashes[places],
            times_us=index.times_us[places],
            marks=np.zeros(len(places), dtype=bool),
        )


def _waits(events: RunRows, _is_first: bool) -> Flags:
    return ~events.marks
