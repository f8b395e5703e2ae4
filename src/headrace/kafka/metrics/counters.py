"""Plain integers, counted where requests are served, and read when somebody asks.

Counting must cost next to nothing, so times are whole nanoseconds and go into buckets that double: below
1 us, below 2 us, below 4 us, ... (a microsecond has 1024 nanoseconds here). The number of a bucket is then a
bit length.
"""

from __future__ import annotations

from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Any, Final

from headrace.kafka.answer import Silence
from headrace.kafka.metrics.errors import error_counter

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode

BUCKET_COUNT: Final = 54
"""There is a bucket for every time that fits into 63 bits."""
BUCKETS_SHOWN: Final = range(4, 27)
"""From 16 us to a minute."""
NS_PER_S: Final = 1_000_000_000


class Times:
    """How long something took, how often. Written by one thread; whoever reads may be a moment behind."""

    __slots__ = ("buckets", "total_ns")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKET_COUNT
        self.total_ns = 0

    def add(self, took_ns: int) -> None:
        """Count once more."""
        self.buckets[(took_ns >> 10).bit_length()] += 1
        self.total_ns += took_ns

    @property
    def total_s(self) -> float:
        """How long it took in all."""
        return self.total_ns / NS_PER_S

    def cumulative(self) -> list[tuple[float, int]]:
        """By upper bound in seconds, how many took less; the last bound is infinite."""
        counts = list(accumulate(self.buckets))
        shown = [((1024 << bucket) / NS_PER_S, counts[bucket]) for bucket in BUCKETS_SHOWN]
        return [*shown, (inf, counts[-1])]


class RequestCounters:
    """The requests of one API. Belongs to the event loop's thread."""

    __slots__ = ("_count_errors", "_response_class", "errors", "times")

    def __init__(self) -> None:
        self._response_class: type | None = None
        self.times = Times()
        self.errors: dict[ErrorCode, int] = {}

    def answered(self, response: Any, took_ns: int) -> None:
        """Count a request that has its answer."""
        self.times.add(took_ns)
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
        self.share_given_up = 0
        """Records of share groups that were archived because they had been delivered as often as may be."""

    def of_api(self, key: int) -> RequestCounters:
        """The counters of one API."""
        found = self.requests.get(key)
        if found is None:
            found = self.requests[key] = RequestCounters()
        return found
