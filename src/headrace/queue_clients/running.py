"""Runs something until it is stopped, again and again where a server was gone for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from headrace.errors import HeadraceError, QueueServerRefused
from headrace.logs import fields

PAUSE_S_FIRST: Final = 0.5
PAUSE_S_MAX: Final = 30.0
_FOR_GOOD: Final = frozenset({312, 402, 404, 406, 501, 502, 503, 504, 505, 530, 540})
"""Codes of AMQP for what is wrong the next time, too: a queue that is not there, or is declared otherwise."""

_logger: Final = logging.getLogger(__name__)


async def keep_running(
    name: str, run: Callable[[], Awaitable[None]], stopping: asyncio.Event, ready_count: Callable[[], int]
) -> None:
    """Run until stopped. Raises what can't be made good by trying again.

    `ready_count` tells how often a run has got ready to work. After one that did, pauses begin anew.
    """
    pause_s = PAUSE_S_FIRST
    while not stopping.is_set():
        count = ready_count()
        try:
            await run()
        except HeadraceError as error:
            if not may_pass(error):
                raise
            if stopping.is_set():
                return
            if ready_count() > count:
                pause_s = PAUSE_S_FIRST
            _logger.warning("%s goes on in %.1f s: %s", name, pause_s, error, extra=fields(name=name))
            await waited(stopping, pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)


def may_pass(error: HeadraceError) -> bool:
    """Whether it may work later: a server is gone, or another process has what only one may have."""
    if isinstance(error, QueueServerRefused):
        return error.reply_code not in _FOR_GOOD
    return error.retriable


async def waited(stopping: asyncio.Event, pause_s: float) -> None:
    """Wait so long, or until stopped."""
    try:
        await asyncio.wait_for(stopping.wait(), pause_s)
    except TimeoutError:
        return
