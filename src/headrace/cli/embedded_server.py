"""What `headrace postgres` and `headrace redis` have in common: a server alone, in the foreground."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Annotated, Final, Protocol, TypeVar

import typer

from headrace.cli.foreground import stop_on_signals
from headrace.cli.output import announce

LOOP_PAUSE_S: Final = 0.2

LoopbackListen = Annotated[
    str, typer.Option(help="Where to listen, on this machine only; port 0 picks a free one.")
]


class EmbeddedServer(Protocol):
    """A server that is a child of this process."""

    def check(self) -> None:
        """Raise if it has ended."""


S = TypeVar("S", bound=EmbeddedServer)


def serve(server: AbstractContextManager[S], greeting: Callable[[S], str]) -> None:
    """Run it until Ctrl-C; the greeting is said when it answers."""
    stop_on_signals()
    try:
        with server as running:
            announce(greeting(running))
            while True:
                running.check()
                time.sleep(LOOP_PAUSE_S)
    except KeyboardInterrupt:
        pass
