"""Batches that lie in a segment and have not been read yet.

An answer with megabytes of batches is handed to the system as far as the client's socket takes it, and not
copied. Where that can't be (with TLS, for example), it is sent piece by piece, each read when its turn comes:
the client has the first ones while the next are read, and each piece goes to the socket while it is in the
processor's cache.

They must be sent or read before anything else happens on the event loop's thread: later the segment may be
gone, or its file be another one. Who needs longer holds them: that is a handle of their file, which stays as
it is, whatever becomes of the segment.

The bytes are there, and are what was written, when they are given out (see segment_reading.py). Should the
disk fail in between, what has been sent of the answer can't be taken back: the connection has to be closed,
and the segment lends no more, so that the next who reads hears what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.config import KIB
from headrace.errors import CorruptBatch
from headrace.log.failure import storage_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.log.disk import Disk
    from headrace.log.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Lending:
    """Which batches are given out unread, and how those are read."""

    size_bytes_min: int = 256 * KIB
    """Less is read at once: it is cheaper."""
    piece_bytes: int = 256 * KIB
    """Large enough for few calls, small enough for the cache."""


class StoredBatches:
    """A stretch of a segment's file. Belongs to the event loop's thread."""

    __slots__ = ("_disk", "_held_file", "_piece_bytes", "_position", "_segment", "_size_bytes")

    def __init__(
        self,
        segment: Segment,
        disk: Disk,
        position: int,
        size_bytes: int,
        *,
        piece_bytes: int,
        held_file: int | None = None,
    ) -> None:
        self._segment = segment
        self._disk = disk
        self._position = position
        self._size_bytes = size_bytes
        self._piece_bytes = piece_bytes
        self._held_file = held_file

    def __len__(self) -> int:
        return self._size_bytes

    def pieces(self) -> Iterator[bytes]:
        """The bytes, piece by piece; raises StorageError where they can't be read any more."""
        position, end = self._position, self._position + self._size_bytes
        while position < end:
            piece = self._read(position, min(self._piece_bytes, end - position))
            position += len(piece)
            yield piece

    def send(self, socket: int, size_bytes_max: int) -> int:
        """Send what the socket takes at once, and no more than that; returns how many bytes that was.

        Fewer may also mean that they can't be read, or that nobody takes them any more: whoever goes on with
        the rest is told.
        """
        try:
            file = self._open()
        except OSError:
            return 0
        return self._disk.send(file, self._position, min(self._size_bytes, size_bytes_max), socket)

    def after(self, size_bytes: int) -> StoredBatches:
        """The bytes behind the first ones, in the same file."""
        return self._stretch(size_bytes, self._held_file)

    def hold(self) -> StoredBatches:
        """The same bytes, whatever becomes of the segment, until `let_go`; raises OSError if it can't be."""
        return self._stretch(0, self._disk.duplicate(self._segment.open()))

    def let_go(self) -> None:
        """Close the file that is held. These batches, and those after them, can't be read any more."""
        assert self._held_file is not None
        self._disk.close(self._held_file)

    def read(self) -> bytes:
        """All of the bytes."""
        return b"".join(self.pieces())

    def _stretch(self, skipped_bytes: int, held_file: int | None) -> StoredBatches:
        return StoredBatches(
            self._segment,
            self._disk,
            self._position + skipped_bytes,
            self._size_bytes - skipped_bytes,
            piece_bytes=self._piece_bytes,
            held_file=held_file,
        )

    def _open(self) -> int:
        # Whoever has opened many files since may have had the segment's closed.
        return self._segment.open() if self._held_file is None else self._held_file

    def _read(self, position: int, size_bytes: int) -> bytes:
        segment = self._segment
        try:
            piece = self._disk.read(self._open(), position, size_bytes)
        except OSError as error:
            segment.may_lend = False
            raise storage_error(f"reading {segment.path} at byte {position}", error) from error
        if len(piece) < size_bytes:
            segment.may_lend = False
            raise CorruptBatch(f"{segment.path}: byte {position + len(piece)}: the file ends")
        return piece
