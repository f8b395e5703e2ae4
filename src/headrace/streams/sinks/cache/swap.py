"""Swap a hash of Redis for a staged one, at once (see sinks/swaps.py).

    <cache>.swap.<id>    what the replay writes, with a ledger of its own

One transaction renames it, and gives the cache its ledger. That names the swap, by which it is known to be
done. Redis has no empty hashes: whether there is a staged one, its ledger says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import StructType
from redis import exceptions

from headrace.errors import PipelineError, StoreUnavailable
from headrace.failpoints import hit
from headrace.streams.sinks.cache.connection import Client, connected, fields_of, set_fields
from headrace.streams.sinks.cache.ledger import ATTEMPTS_MAX, CacheLedger
from headrace.streams.sinks.cache.state import State, made, note_key, read_state, swapped
from headrace.streams.sinks.cache.values import check_types
from headrace.streams.sinks.records import DELETE_COLUMN
from headrace.streams.stores import Cache
from headrace.streams.topic import METADATA_COLUMN

_SWAP_ID_LENGTH: Final = 16
_RENAME: Final = """
if redis.call('EXISTS', KEYS[1]) == 1 then
    redis.call('RENAME', KEYS[1], KEYS[3])
end
if redis.call('EXISTS', KEYS[2]) == 1 then
    redis.call('RENAME', KEYS[2], KEYS[1])
end
redis.call('UNLINK', KEYS[3])
"""
"""KEYS: cache, staged one, a name for what was there. Memory is given back after the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSwap:
    """One swap of one cache."""

    cache: Cache
    pipeline: str
    swap_id: str

    @property
    def staging(self) -> Cache:
        """Another hash of the same server."""
        return self.cache.elsewhere(f"{self.cache.hash_name}.swap.{self.swap_id[:_SWAP_ID_LENGTH]}")

    def check(self, schema: StructType) -> None:
        """Raise where values would not come back, or where the name is that of something else."""
        columns = [field for field in schema.fields if field.name not in {DELETE_COLUMN, METADATA_COLUMN}]
        check_types(StructType(columns), pipeline=self.pipeline)
        with connected(self.cache.url, f"preparing to swap the cache {self.cache.name}") as client:
            client.hlen(self.cache.hash_name)

    def make(self) -> None:
        """Give the staged hash a ledger."""
        key = self._ledger(self.staging).key
        with connected(self.cache.url, f"preparing to swap the cache {self.cache.name}") as client:
            if not client.exists(key):
                set_fields(client, key, made().fields())

    def is_made(self) -> bool:
        """Whether the staged hash is there, rows or not."""
        with connected(
            self.cache.url, f"looking for the staged rows of the cache {self.cache.name}"
        ) as client:
            return bool(client.exists(self._ledger(self.staging).key))

    def commit(self, query_id: str) -> None:
        """Swap, unless that is done."""
        with connected(self.cache.url, f"swapping the cache {self.cache.name}") as client:
            for _ in range(ATTEMPTS_MAX):
                try:
                    self._commit(client, query_id)
                except exceptions.WatchError as error:
                    failure = error
                else:
                    return
        raise StoreUnavailable(
            f"the cache {self.cache.name} could not be swapped in {ATTEMPTS_MAX} attempts, because others "
            f"write it: {failure}"
        )

    def _commit(self, client: Client, query_id: str) -> None:
        live_key, staged_key = self._ledger(self.cache).key, self._ledger(self.staging).key
        with client.pipeline() as transaction:
            transaction.watch(live_key, staged_key)
            live = read_state(live_key, fields_of(transaction, live_key))
            staged = read_state(staged_key, fields_of(transaction, staged_key))
            if live is not None and live.swap == self.swap_id:
                return
            row_count = transaction.hlen(self.staging.hash_name)
            after = self._after(live, staged, query_id, row_count)
            transaction.multi()
            names = (self.cache.hash_name, self.staging.hash_name, f"{self.staging.hash_name}.old")
            transaction.eval(_RENAME, len(names), *names)
            set_fields(transaction, live_key, after.fields())
            transaction.delete(staged_key, *map(note_key, (self.cache.hash_name, self.staging.hash_name)))
            hit("replay.swap")
            transaction.execute()
            hit("replay.swapped")

    def _after(self, live: State | None, staged: State | None, query_id: str, row_count: int) -> State:
        if staged is None or (staged.row_count and not row_count):
            raise PipelineError(
                f"the staged rows in {self._ledger(self.staging).place} are gone, so that the cache "
                f"{self.cache.name} can't be swapped: begin the replay anew"
            )
        return swapped(live, staged, query_id, self.swap_id, row_count)

    def _ledger(self, cache: Cache) -> CacheLedger:
        return CacheLedger(cache=cache, pipeline=self.pipeline)
