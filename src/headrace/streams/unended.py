"""Whether a batch is taken for all that there will ever be, or for what a stream has come to so far.

A batch ends, and everything in it is complete. To compare it with what a stream has written, it must be
computed as far as the stream has come: a window that has not ended by the watermark is not to be had yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_is_unended: Final[ContextVar[bool]] = ContextVar("is_unended", default=False)


@contextmanager
def unended() -> Iterator[None]:
    """Build batches that give what a stream would have given so far."""
    token = _is_unended.set(True)
    try:
        yield
    finally:
        _is_unended.reset(token)


def is_unended() -> bool:
    """Whether batches are being built in that way."""
    return _is_unended.get()
