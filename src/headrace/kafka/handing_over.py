"""An answer, as far as the system takes it at once: what lies in a file goes to the socket without us.

Only where nothing of an earlier answer waits to be sent, which would else be overtaken. A client that is
gone, or a disk that fails, is no business of ours: whoever sends the rest meets it, and knows what to do.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.kafka.codec.writer import Parts


def hand_over(parts: Parts, socket: int) -> Parts:
    """Send what a socket that never waits takes at once; returns what is left."""
    for index, part in enumerate(parts):
        sent_bytes = _write(socket, part) if isinstance(part, bytes) else part.send(socket)
        if sent_bytes < len(part):
            rest = part[sent_bytes:] if isinstance(part, bytes) else part.after(sent_bytes)
            return [rest, *parts[index + 1 :]]
    return []


def _write(socket: int, part: bytes) -> int:
    with suppress(OSError):
        return os.write(socket, part)
    return 0
