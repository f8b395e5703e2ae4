"""The driver's own writers of shares, kept from batch to batch.

A writer is made in a tenth of a second or more, most of which clients spend waiting; one that is there
commits in a few milliseconds. A kept writer is as good as a new one: whoever has written its share since has
fenced it, so that it can commit nothing any more.

Once the run is stopped, no writer is opened: it would fence those of the next run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from headrace.errors import FaultError, InvalidProducerEpoch
from headrace.streams.sinks.connection import ShareWriter
from headrace.streams.sinks.gate import Gate

T = TypeVar("T")


class KeptWriters:
    """Writers by the number of their share. Threads may use it at once, each another share."""

    def __init__(self, open_writer: Callable[[int], ShareWriter], gate: Gate) -> None:
        self._open_writer = open_writer
        self._gate = gate
        self._writers: dict[int, ShareWriter] = {}

    def use(self, share: int, work: Callable[[ShareWriter], T]) -> T:
        """Do work with the share's writer, and keep it unless the work fails.

        The work asks the ledger first, so that it may be begun anew: what a kept writer could not do, but for
        being fenced, a new one does, or says why not.
        """
        self._gate.check()
        kept = self._writers.pop(share, None)
        if kept is not None:
            try:
                return self._use(share, kept, work)
            except InvalidProducerEpoch:
                raise
            except FaultError:
                pass
        self._gate.check()
        return self._use(share, self._opened(share), work)

    def _opened(self, share: int) -> ShareWriter:
        writer = self._open_writer(share)
        try:
            self._gate.check()
        except BaseException:
            writer.close()
            raise
        return writer

    def _use(self, share: int, writer: ShareWriter, work: Callable[[ShareWriter], T]) -> T:
        try:
            done = work(writer)
        except BaseException:
            writer.close()
            raise
        self._writers[share] = writer
        return done

    def forget(self, shares: Iterable[int]) -> None:
        """Let go of writers whose shares others have written."""
        for share in shares:
            writer = self._writers.pop(share, None)
            if writer is not None:
                writer.close()

    def forget_all(self) -> None:
        """Let go of all. Whoever is at work goes on with what he has."""
        self._writers = {}
