"""Exchanges, queues and bindings as records: what was decided, to be applied now and again after a restart.

In the journal a record is a field table with its name in `record`. Only what is durable is written; the
rest is applied the same way and forgotten with the process.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

from headrace.errors import CorruptBatch, QueueRefused
from headrace.queue.exchange import Binding, Destination
from headrace.queue.fields import read_table, write_table

if TYPE_CHECKING:
    from headrace.queue.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeMade:
    """An exchange is there."""

    vhost: str
    name: str
    kind: str
    durable: bool
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeGone:
    """An exchange is there no more, nor are its bindings."""

    vhost: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMade:
    """A queue is there."""

    vhost: str
    name: str
    queue_id: int
    """Never given twice, so that messages of a queue that was deleted are not taken for those of another."""
    durable: bool
    auto_delete: bool = False
    arguments: dict[str, object] = field(default_factory=dict)
    owner: Connection | None = None
    """The connection that it is exclusive to; such a queue is never written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGone:
    """A queue is there no more, nor are its messages and bindings."""

    vhost: str
    name: str
    queue_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A binding is there."""

    vhost: str
    binding: Binding


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbound:
    """A binding is there no more."""

    vhost: str
    binding: Binding


TopologyRecord = ExchangeMade | ExchangeGone | QueueMade | QueueGone | Bound | Unbound
KINDS: Final = {kind.__name__: kind for kind in (ExchangeMade, ExchangeGone, QueueMade, QueueGone)}
BINDING_KINDS: Final = {kind.__name__: kind for kind in (Bound, Unbound)}


def write_topology(record: TopologyRecord) -> bytes:
    """A record as bytes."""
    table: dict[str, object] = {"record": type(record).__name__, "vhost": record.vhost}
    if isinstance(record, Bound | Unbound):
        binding = record.binding
        table |= {
            "source": binding.source,
            "destination_kind": binding.destination.kind,
            "destination": binding.destination.name,
            "routing_key": binding.routing_key,
            "arguments": binding.arguments,
        }
    else:
        table |= {each.name: getattr(record, each.name) for each in fields(record) if each.name != "owner"}
    return write_table(table)


def read_topology(data: bytes) -> TopologyRecord:
    """The opposite. Raises CorruptBatch."""
    try:
        table = read_table(data)
        name = table.pop("record")
        if name in BINDING_KINDS:
            return BINDING_KINDS[str(name)](vhost=str(table["vhost"]), binding=_binding(table))
        return KINDS[str(name)](**table)  # type: ignore[arg-type]  # A table of ours has what the record has.
    except (QueueRefused, KeyError, TypeError) as error:
        raise CorruptBatch(f"a record of the queues' journal can't be read: {error}") from error


def _binding(table: dict[str, object]) -> Binding:
    arguments = table["arguments"]
    return Binding(
        source=str(table["source"]),
        destination=Destination(str(table["destination_kind"]), str(table["destination"])),
        routing_key=str(table["routing_key"]),
        arguments=arguments if isinstance(arguments, dict) else {},
    )
