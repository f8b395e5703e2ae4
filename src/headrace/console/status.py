"""Whether anything stands still, in words.

People leave a streaming product over silent stalls, so the page always says which of these holds, the first
one that applies:

    failed        the console itself has stopped reading
    connecting    the broker has not answered yet, and the console has only just started
    unreachable   the broker does not answer
    waiting       a topic does not exist yet, or nothing has ever been written to the input
    stalled       the input has not grown for STALL_AFTER_S
    live          the input grows
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

StatusKind = Literal["failed", "connecting", "unreachable", "waiting", "stalled", "live"]

STALL_AFTER_S: Final = 5.0
CONNECT_PATIENCE_S: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The state of the way from the broker to the page."""

    kind: StatusKind
    words: str
    since_ms: int | None = None
    """Since when it has been so, where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """What is known of the broker at a moment; all ages are in seconds at that moment."""

    bootstrap: str
    input_topic: str
    alerts_topic: str
    failure: str | None = None
    reached: bool = False
    """Whether the broker has ever answered."""
    lost_for_s: float | None = None
    """How long ago it last answered (or the console started), where it does not answer now."""
    lost_reason: str = ""
    input_end: int | None = None
    alerts_end: int | None = None
    input_idle_s: float = 0.0


def status_of(contact: Contact, now_ms: int) -> Status:
    """The first state in the list above that applies."""
    if contact.failure is not None:
        return Status(
            kind="failed", words=f"the console has stopped reading ({contact.failure}); restart it to go on"
        )
    if contact.lost_for_s is not None and (contact.reached or contact.lost_for_s >= CONNECT_PATIENCE_S):
        return Status(
            kind="unreachable",
            words=f"broker {contact.bootstrap} not reachable for {duration(contact.lost_for_s)}"
            + (f" ({contact.lost_reason})" if contact.lost_reason else ""),
            since_ms=_since(now_ms, contact.lost_for_s),
        )
    if not contact.reached:
        return Status(kind="connecting", words=f"connecting to {contact.bootstrap}")
    return _status_of_topics(contact, now_ms)


def _status_of_topics(contact: Contact, now_ms: int) -> Status:
    ends = {contact.input_topic: contact.input_end, contact.alerts_topic: contact.alerts_end}
    missing = [topic for topic, end in ends.items() if end is None]
    if missing:
        noun = "topic" if len(missing) == 1 else "topics"
        return Status(kind="waiting", words=f"waiting for {noun} {' and '.join(missing)} to be created")
    if contact.input_end == 0:
        return Status(kind="waiting", words=f"waiting for the first record on {contact.input_topic}")
    if contact.input_idle_s >= STALL_AFTER_S:
        return Status(
            kind="stalled",
            words=f"no {contact.input_topic} for {duration(contact.input_idle_s)}",
            since_ms=_since(now_ms, contact.input_idle_s),
        )
    return Status(kind="live", words="live")


def duration(seconds: float) -> str:
    """`12 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _since(now_ms: int, age_s: float) -> int:
    return now_ms - int(age_s * 1000)
