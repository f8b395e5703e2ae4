"""Keep a run that was stopped from beginning anything new.

Spark stops a query, and does not wait for the Python code that writes its batch. So whoever is at work asks
before each thing that another run would notice; and again after a writer was opened, which takes a while.
"""

from __future__ import annotations

from headrace.errors import PipelineFailed


class Gate:
    """Open until it is closed, for good. Threads may ask while another one closes it."""

    def __init__(self) -> None:
        self._is_closed = False

    def close(self) -> None:
        """Let nobody begin anything any more."""
        self._is_closed = True

    def check(self) -> None:
        """Raise if the run was stopped."""
        if self._is_closed:
            raise PipelineFailed("the run was stopped while it wrote a batch: the next run writes it")
