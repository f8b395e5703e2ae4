"""Plain integers, counted where requests are served, and read when somebody asks.

Counting must cost next to nothing, so times go into buckets that double: up to 1 us, 2 us, 4 us, ... The
number of a bucket is then the bit length of the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.kafka.answer import Silence
from headrace.kafka.metrics.errors import error_counter

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode

BUCKET_COUNT: Final = 32
"""The last one ends after 36 minutes, and takes whatever takes longer."""
US_PER_S: Final = 1_000_000


class Times:
    """How long something took, how often. Written by one thread; whoever reads may be a moment behind."""

    __slots__ = ("buckets", "total_s")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKET_COUNT
        self.total_s = 0.0

    def add(self, took_s: float) -> None:
        """Count once more."""
        bucket = int(took_s * US_PER_S).bit_length()
        self.buckets[bucket if bucket < BUCKET_COUNT else -1] += 1
        self.total_s += took_s

    def cumulative(self) -> list[tuple[float, int]]:
        """By upper bound in seconds, how many took no longer."""
        total = 0
        found = []
        for bucket, count in enumerate(tuple(self.buckets)):
            total += count
            found.append(((1 << bucket) / US_PER_S, total))
        return found


class RequestCounters:
    """The requests of one API. Belongs to the event loop's thread."""

    __slots__ = ("_count_errors", "_response_class", "errors", "times")

    def __init__(self) -> None:
        self._response_class: type | None = None
        self.times = Times()
        self.errors: dict[ErrorCode, int] = {}

    def answered(self, response: Any, took_s: float) -> None:
        """Count a request that has its answer."""
        self.times.add(took_s)
        if response is Silence.KEEP_OPEN:
            return
        if response.__class__ is not self._response_class:
            self._response_class = response.__class__
            self._count_errors = error_counter(self._response_class)
        self._count_errors(response, self.errors)


class Counters:
    """What one broker counts where it serves requests. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self.requests: dict[int, RequestCounters] = {}
        """By the number of the API."""
        self.received_bytes = 0
        self.sent_bytes = 0

    def of_api(self, key: int) -> RequestCounters:
        """The counters of one API."""
        found = self.requests.get(key)
        if found is None:
            found = self.requests[key] = RequestCounters()
        return found
