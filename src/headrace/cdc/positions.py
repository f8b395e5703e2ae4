"""Positions in PostgreSQL's log (LSNs), and how far a capture may tell the server that it has come.

What is confirmed is never sent again, and the server may delete the log up to there. So two rules hold:

1. No transaction is confirmed before all its events are durable in topics. Transactions are sent whole and in
   the order of their commits, so the end of the last one that is published covers all before it.
2. While nothing waits, the end of the server's log is confirmed, as keep-alives tell it. Without this, a
   capture of tables that nobody writes to holds back the log of the whole server for ever.

Transactions that are streamed before they commit hold nothing back: they commit behind whatever is confirmed
now, so the server sends them again from their start.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.errors import ProtocolError

LSN_MAX: Final = 2**64 - 1
_LSN: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def parse_lsn(text: str) -> int:
    """The position that PostgreSQL writes as `16/B374D848`."""
    match = _LSN.fullmatch(text)
    if match is None:
        raise ProtocolError(f"{text!r} is no position in PostgreSQL's log: they look like 16/B374D848")
    return int(match[1], 16) << 32 | int(match[2], 16)


def format_lsn(lsn: int) -> str:
    """As PostgreSQL writes it."""
    if not 0 <= lsn <= LSN_MAX:
        raise ValueError(f"{lsn} is no position in PostgreSQL's log: they have 64 bits")
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


class Progress:
    """Which position may be confirmed. Belongs to one thread; those that publish report back to it."""

    def __init__(self, confirmed: int = 0) -> None:
        self._confirmed = confirmed
        self._delivered_to = confirmed
        self._published_to = confirmed
        self._is_receiving = False

    @property
    def confirmable(self) -> int:
        """Everything below is published, or concerns nobody. Never goes back."""
        return self._confirmed

    @property
    def is_pending(self) -> bool:
        """Whether something was received that is not published yet."""
        return self._is_receiving or self._delivered_to > self._published_to

    def begun(self) -> None:
        """The first message of a transaction that has committed was received."""
        self._is_receiving = True

    def delivered(self, end_lsn: int) -> None:
        """All of it was received, or a message outside of any; its events are on their way."""
        self._is_receiving = False
        self._delivered_to = max(self._delivered_to, end_lsn)

    def published(self, end_lsn: int) -> None:
        """All events of what was delivered up to there are durable."""
        self._published_to = max(self._published_to, end_lsn)
        self._confirmed = max(self._confirmed, end_lsn)

    def idle_at(self, wal_end: int) -> None:
        """A keep-alive told that the server's log ends there, and that nothing before it is still to come."""
        if not self.is_pending:
            self._confirmed = max(self._confirmed, wal_end)
