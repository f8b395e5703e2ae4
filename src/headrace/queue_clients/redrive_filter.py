"""Which dead letters go back to work. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.queue_clients.deaths import deaths_of
from headrace.queue_clients.delivery import Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveFilter:
    """Lets dead letters pass; one that asks for nothing lets all pass. All that it asks for must hold."""

    reason: str | None = None
    """Why it died last: rejected, expired, maxlen, delivery_limit, push-failed, ..."""
    origin: str | None = None
    """The queue in which it died last."""
    routing_key: str | None = None
    """A key with which it had been published when it died last."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Callable[[bytes], bool] | None = None

    def passes(self, delivery: Delivery) -> bool:
        """Whether the message is one of them."""
        return self._death_passes(delivery) and self._content_passes(delivery)

    def _death_passes(self, delivery: Delivery) -> bool:
        if self.reason is None and self.origin is None and self.routing_key is None:
            return True
        deaths = deaths_of(delivery.headers)
        if not deaths:
            return False
        last = deaths[0]
        return (
            (self.reason is None or last.reason == self.reason)
            and (self.origin is None or last.queue == self.origin)
            and (self.routing_key is None or self.routing_key in last.routing_keys)
        )

    def _content_passes(self, delivery: Delivery) -> bool:
        for name, wanted in self.headers.items():
            if name not in delivery.headers or _as_text(delivery.headers[name]) != wanted:
                return False
        return self.body is None or self.body(delivery.body)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
