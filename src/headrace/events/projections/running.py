"""Keep something going in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headrace.errors import StoreUnavailable
from headrace.events.subscription import IDLE_PAUSE_S, IDLE_PAUSE_S_MAX, UNAVAILABLE_PAUSE_S_MAX


def keep_going(go_on: Callable[[], bool], stop: threading.Event) -> None:
    """Call again and again; rest where there is nothing to do, and longer where a store does not answer."""
    pause_s = IDLE_PAUSE_S
    while not stop.is_set():
        try:
            is_any = go_on()
        except StoreUnavailable:
            pause_s = min(max(10 * IDLE_PAUSE_S, 2 * pause_s), UNAVAILABLE_PAUSE_S_MAX)
        else:
            pause_s = IDLE_PAUSE_S if is_any else min(2 * pause_s, IDLE_PAUSE_S_MAX)
        stop.wait(pause_s)
