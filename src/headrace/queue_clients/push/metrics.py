"""What pushing counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder


class PushMetrics:
    """Numbers of one queue that is pushed. Safe to use from several threads."""

    def __init__(self, queue: str) -> None:
        registry = self._registry = CollectorRegistry()
        self._is_connected = False
        by = ["queue"]
        self.accepted = Counter(
            "headrace_push_accepted", "Messages that were answered with 2xx.", by, registry=registry
        ).labels(queue)
        self.retried = Counter(
            "headrace_push_failed_attempts", "Attempts that failed for now.", by, registry=registry
        ).labels(queue)
        self.given_up = Counter(
            "headrace_push_given_up", "Messages that became dead letters.", by, registry=registry
        ).labels(queue)
        self.under_way = Gauge(
            "headrace_push_under_way", "Messages that are taken and not done with.", by, registry=registry
        ).labels(queue)
        self.attempt_s = Histogram(
            "headrace_push_attempt_seconds", "How long attempts took.", by, registry=registry
        ).labels(queue)

    def set_connected(self, is_connected: bool) -> None:
        """Say whether messages are taken."""
        self._is_connected = is_connected

    def unready(self) -> str | None:
        """Why nothing is pushed, if nothing is."""
        return None if self._is_connected else "there is no connection to the queue server"

    def render(self, accept: str) -> tuple[str, bytes]:
        """The content type, as the client would have it, and all numbers."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)
