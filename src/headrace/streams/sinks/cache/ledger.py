"""The ledger of a cache in Redis: read and changed at once, or not at all (see state.py for what it says)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from redis import exceptions

from headrace.errors import StoreUnavailable
from headrace.streams.sinks.cache.connection import Client, connected, described, fields_of, set_fields
from headrace.streams.sinks.cache.state import (
    Seen,
    State,
    begin_run,
    close_batch,
    ledger_key,
    note_key,
    open_batch,
    read_state,
)
from headrace.streams.sinks.ledger import Batch
from headrace.streams.stores import Cache

ATTEMPTS_MAX: Final = 5
"""How often to begin again when others change the ledger at the same time."""

_COUNT: Final = "return {redis.call('HLEN', KEYS[1]), redis.call('EXISTS', KEYS[2])}"
"""KEYS: cache, note. Both at once, because other pipelines may write the cache."""

Change = Callable[[State | None, Seen], State | None]
"""What the ledger is to say, by what it says; None to leave it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLedger:
    """The ledger of one pipeline in one cache."""

    cache: Cache
    pipeline: str

    @property
    def key(self) -> str:
        """Where it is."""
        return ledger_key(self.cache.hash_name, self.pipeline)

    @property
    def place(self) -> str:
        """The cache in words."""
        return f"the cache {self.cache.name} on {described(self.cache.url)}"

    def begin_run(self, batch: Batch) -> int:
        """Shut out all earlier runs before the first batch of a new one; return the number of the run."""
        state = self._changed(lambda state, seen: begin_run(state, batch, seen))
        assert state is not None, "a run always begins with an entry"
        return state.run

    def open_batch(self, batch: Batch, run: int) -> bool:
        """Let tasks write the batch; False if it is written already."""
        return self._changed(lambda state, seen: open_batch(state, batch, run, seen)) is not None

    def close_batch(self, batch: Batch, run: int) -> bool:
        """Let the batch count; False if it has to be written again."""
        return self._changed(lambda state, seen: close_batch(state, batch, run, seen)) is not None

    def _changed(self, change: Change) -> State | None:
        """What the ledger says now."""
        with connected(self.cache.url, f"writing to the cache {self.cache.name}") as client:
            for _ in range(ATTEMPTS_MAX):
                try:
                    return self._change(client, change)
                except exceptions.WatchError as error:
                    failure = error
        raise StoreUnavailable(
            f"the ledger of pipeline {self.pipeline} in {self.place} could not be changed in {ATTEMPTS_MAX} "
            f"attempts, because others change it: {failure}"
        )

    def _change(self, client: Client, change: Change) -> State | None:
        with client.pipeline() as transaction:
            transaction.watch(self.key)
            state = read_state(self.key, fields_of(transaction, self.key))
            after = change(state, self._seen(transaction))
            if after is not None and after != state:
                transaction.multi()
                set_fields(transaction, self.key, after.fields())
                transaction.execute()
            return after

    def _seen(self, client: Client) -> Seen:
        # All of this is asked, and the answer written, by one connection: to the same process.
        name = self.cache.hash_name
        row_count, is_emptied = cast("list[int]", client.eval(_COUNT, 2, name, note_key(name)))
        return Seen(
            place=self.place, server=_process(client), row_count=row_count, is_emptied=bool(is_emptied)
        )


def _process(client: Client) -> str:
    """Tells one process of Redis from another; nothing where that may not be asked."""
    try:
        return str(client.info("server").get("run_id", ""))
    except exceptions.ResponseError:
        return ""
