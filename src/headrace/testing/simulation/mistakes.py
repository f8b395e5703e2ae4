"""What the broker's own log calls unexpected: a mistake of ours that it has survived."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def heard_mistakes(
    on_mistake: Callable[[str], None], on_line: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Call back for each line of the log that has a traceback, and, if asked to, for each warning."""
    logger = logging.getLogger("headrace")
    handler = _MistakeHandler(on_mistake, on_line)
    propagates, level = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.ERROR if on_line is None else logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
        logger.setLevel(level)


class _MistakeHandler(logging.Handler):
    def __init__(self, on_mistake: Callable[[str], None], on_line: Callable[[str], None] | None) -> None:
        super().__init__()
        self._on_mistake = on_mistake
        self._on_line = on_line

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line."""
        if self._on_line is not None:
            self._on_line(f"the broker says: {record.getMessage()}")
        if record.exc_info:
            cause = logging.Formatter().formatException(record.exc_info)
            self._on_mistake(f"{record.getMessage()}: {cause}")
