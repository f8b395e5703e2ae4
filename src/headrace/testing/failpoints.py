"""Let the broker die, fail or wait at a named place: failpoints, for tests.

Within this process, as a context manager:

    with failpoint("log.sync", error=errno.EIO, after=2):   # the third sync fails
        ...

In a broker of its own, which is killed in the middle of its work:

    environment = kill_at("kafka.transaction.prepared")
    subprocess.Popen(["headrace", "broker"], env={**os.environ, **environment})

`FAILPOINTS` lists all places with what has happened there and what has not.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.config import FAILPOINTS_VARIABLE
from headrace.errors import UsageError
from headrace.failpoints import FAILPOINTS, Failpoint, arm, disarm

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FAILPOINTS", "failpoint", "kill_at"]


@contextmanager
def failpoint(
    name: str, *, error: int | None = None, delay_ms: int | None = None, after: int = 0
) -> Iterator[None]:
    """Fail with an error, or wait, at a place of this process, after so many times of passing it well.

    An error happens once; a delay each time from then on. All brokers of this process are meant.
    """
    if (error is None) == (delay_ms is None):
        raise UsageError(f"failpoint {name} needs either an error, such as errno.EIO, or delay_ms")
    if error is not None:
        armed = Failpoint(name, "error", hits_left=after + 1, error=error)
    else:
        armed = Failpoint(name, "delay", hits_left=after + 1, delay_ms=delay_ms or 0)
    arm([armed])
    try:
        yield
    finally:
        disarm(name)


def kill_at(name: str, *, after: int = 0) -> dict[str, str]:
    """The environment of a broker that kills itself at a place, after so many times of passing it well."""
    Failpoint(name, "kill")
    return {FAILPOINTS_VARIABLE: f"{name}=kill@{after + 1}"}
