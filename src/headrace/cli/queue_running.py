"""What the commands share that work on queues in the foreground until Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Protocol

from headrace.cli.queue_connection import silence_libraries
from headrace.config import failpoints_to_arm
from headrace.failpoints import arm_all


class Worker(Protocol):
    """What runs until it is stopped."""

    def stop(self) -> None:
        """End soon, in good order."""
        ...

    async def keep_running(self) -> None:
        """Run until stopped."""
        ...


def run_until_signal(
    make: Callable[[], Worker], beside: Callable[[], Awaitable[object]] | None = None
) -> None:
    """Run a worker until a signal comes. It is made, and what is beside it is begun, on the event loop."""

    async def run() -> None:
        worker = make()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, worker.stop)
        if beside is not None:
            await beside()
        await worker.keep_running()

    silence_libraries()
    arm_all(failpoints_to_arm())
    asyncio.run(run())
