"""A query of Spark in a process of its own: whoever sends to it, and reads from it, takes none of its time.

with QueryApart(start) as query:      # start runs there: a context manager that gives what answers
    query.ask()                       # whatever that answers; exits if it has failed
"""

from __future__ import annotations

import multiprocessing
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Final, Self

STOP_S_MAX: Final = 60

Start = Callable[[], AbstractContextManager[Callable[[], Any]]]
"""Starts the query; what it gives is called whenever somebody asks, and raises if the query has failed."""


class QueryApart:
    """Belongs to one thread."""

    def __init__(self, start: Start) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(start, theirs))

    def __enter__(self) -> Self:
        self._process.start()
        try:
            self._answer()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def ask(self) -> Any:
        """What the query answers now."""
        self._ours.send("ask")
        return self._answer()

    def _answer(self) -> Any:
        try:
            failure, answer = self._ours.recv()
        except EOFError:
            sys.exit("the process of the query has ended")
        if failure is not None:
            sys.exit(failure)
        return answer

    def _end(self) -> None:
        self._ours.close()
        self._process.join(STOP_S_MAX)
        if self._process.is_alive():
            self._process.kill()


def _run(start: Start, asked: Connection) -> None:
    """In the other process: answer until nobody asks any more."""
    try:
        with start() as answer:
            asked.send((None, None))
            while asked.recv():
                asked.send((None, answer()))
    except EOFError:
        return
    except Exception:  # noqa: BLE001 - whatever it is, it is told
        asked.send((traceback.format_exc(), None))
