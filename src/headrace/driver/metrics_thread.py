"""Serves the metrics of pipelines from a thread of its own, beside a driver or its supervisor."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.config import Address
from headrace.driver.metrics import PipelineMetrics
from headrace.errors import ConfigError
from headrace.metrics.server import MetricsServer


@contextmanager
def served(metrics: PipelineMetrics, listen: Address, *, is_public: bool) -> Iterator[Address]:
    """Serve them for as long as the context is open; yields the address with the port that was taken."""
    listener = _listener(listen)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="pipeline metrics", daemon=True)
    thread.start()
    server = MetricsServer(metrics.render, metrics.unready, is_public=is_public)
    try:
        yield asyncio.run_coroutine_threadsafe(server.start(listener), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _listener(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"can't serve metrics on {address}: {error.strerror or error}. Stop the program that has the "
            "port, or choose another one (port 0 picks a free one)"
        ) from error
    return listener
