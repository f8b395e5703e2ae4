"""What a PostgreSQL server says of itself in `postmaster.pid`, and whether that server is still there.

    line 1   process id
    line 2   data directory
    line 3   when it started, in seconds
    line 4   port
    line 5   directory of its socket, or empty
    line 6   address it listens on, or empty
    line 7   shared memory
    line 8   `starting`, `ready`, `stopping`

A crash leaves the file behind, and the process id may be another's by now. PostgreSQL then refuses to start
when that other process is of the same user. So a process only counts as the server when its command line
names the data directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.embedded import is_named

FILE_NAME: Final = "postmaster.pid"
_STATUS_LINE: Final = 7


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A server process, as it was when it wrote the file."""

    pid: int
    is_ready: bool


def parse(text: str) -> Postmaster | None:
    """Read the file's text; None where it is not whole, as while it is written."""
    lines = text.splitlines()
    if not lines or not lines[0].strip().lstrip("-").isdecimal():
        return None
    status = lines[_STATUS_LINE].strip() if len(lines) > _STATUS_LINE else ""
    # A server that runs alone, for a single user, writes its process id with a minus.
    return Postmaster(pid=abs(int(lines[0])), is_ready=status == "ready")


def read(cluster_dir: Path) -> Postmaster | None:
    """What the file says, if it is there."""
    try:
        return parse((cluster_dir / FILE_NAME).read_text())
    except FileNotFoundError:
        return None


def is_running(pid: int, cluster_dir: Path) -> bool:
    """Whether a process is the server of this directory."""
    return is_named(pid, cluster_dir)
