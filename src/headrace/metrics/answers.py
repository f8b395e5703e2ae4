"""What is answered to an HTTP request. No I/O.

    /metrics         all numbers, in Prometheus' formats
    /health/live     200 while the program runs
    /health/ready    200 while it does its work; else 503 with the reason

There is no log-in, and nothing here changes anything. On loopback, a request must name us as a machine's own
client would (Host): any web page that somebody has open could else read the numbers by DNS rebinding. Beyond
loopback, where others have been allowed to read, any name is good.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.config import Address

METHODS: Final = ("GET", "HEAD")
PATHS: Final = ("/metrics", "/health/live", "/health/ready")
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What is sent back."""

    status: int
    content_type: str
    body: bytes


def own_hosts(address: Address) -> frozenset[str]:
    """The Host headers of clients on this machine."""
    names = {"127.0.0.1", "localhost", "[::1]", str(address).rpartition(":")[0]}
    return frozenset(f"{name}:{address.port}" for name in names)


def refusal(method: str, path: str, hosts: list[str], allowed: frozenset[str] | None) -> HttpAnswer | None:
    """Why the request is not answered, if it is not. `allowed` is None where any name is good."""
    if allowed is not None and (len(hosts) != 1 or hosts[0].lower() not in allowed):
        named = ", ".join(repr(host[:100]) for host in hosts) or "(none)"
        return _text(403, f"These metrics don't answer to the host {named}: use {min(allowed)}.")
    if method not in METHODS:
        return _text(405, f"{method[:20]} is not possible here: use GET.")
    if path not in PATHS:
        return _text(404, f"There are {', '.join(PATHS)}.")
    return None


def live() -> HttpAnswer:
    """The program runs: somebody has answered."""
    return _json(200, {"live": True})


def ready(reason: str | None) -> HttpAnswer:
    """Whether the work is done; the reason says why not."""
    if reason is None:
        return _json(200, {"ready": True})
    return _json(503, {"ready": False, "reason": reason})


def failed() -> HttpAnswer:
    """A mistake of ours, which the log tells about."""
    return _text(500, "The metrics could not be collected; the log says why.")


def _text(status: int, line: str) -> HttpAnswer:
    return HttpAnswer(status, TEXT, f"{line}\n".encode())


def _json(status: int, value: object) -> HttpAnswer:
    return HttpAnswer(status, JSON, json.dumps(value).encode() + b"\n")
