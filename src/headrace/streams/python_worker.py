"""What our functions do for the Python process in which Spark runs them."""

from __future__ import annotations

import gc
from functools import cache


@cache
def keep_what_is_loaded(part: str) -> None:  # noqa: ARG001 - once for each
    """Let garbage collection pass over what is there by now, when a part first runs in this process.

    After each task, Spark has the process look through all of its objects, and the next task wait for that.
    Nearly all of them are modules, which stay for good: some 200,000 objects, and 30 ms for each task.
    """
    gc.collect()
    gc.freeze()
