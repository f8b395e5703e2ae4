"""Whether an exchange, a queue or a binding may be made or deleted, and the record that says so.

Nothing is changed here: each function checks, and returns the record to apply, or None where there is
nothing to do. The order of the checks is RabbitMQ's, because clients see which one fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.queue.arguments import QueueArguments, check_equivalent, compared
from headrace.queue.exchange import EXCHANGE_KINDS, Binding, Destination, Exchange
from headrace.queue.limits import NAME_BYTES_MAX
from headrace.queue.refusals import (
    access_refused,
    command_invalid,
    precondition_failed,
    resource_error,
    resource_locked,
    syntax_error,
)
from headrace.queue.topology import Bound, ExchangeGone, ExchangeMade, QueueMade, Unbound
from headrace.queue.virtual_host import DEFAULT_EXCHANGE

if TYPE_CHECKING:
    from headrace.queue.connection import Connection
    from headrace.queue.virtual_host import VirtualHost
    from headrace.queue.work_queue import WorkQueue

RESERVED_PREFIX: Final = "amq."


def declare_exchange(vhost: VirtualHost, wanted: ExchangeMade) -> ExchangeMade | None:
    """Make an exchange, or check that the one that is there agrees."""
    _check_name(wanted.name)
    if wanted.name == DEFAULT_EXCHANGE:
        raise access_refused("operation not permitted on the default exchange")
    if wanted.kind not in EXCHANGE_KINDS:
        raise command_invalid(f"unknown exchange type '{wanted.kind}'")
    current = vhost.exchanges.get(wanted.name)
    if current is not None:
        check_equivalent(
            "exchange",
            wanted.name,
            vhost.name,
            current=_exchange_facts(current.kind, current.durable, current.auto_delete, current.internal),
            given=_exchange_facts(wanted.kind, wanted.durable, wanted.auto_delete, wanted.internal),
        )
        check_equivalent(
            "exchange",
            wanted.name,
            vhost.name,
            current=_alternate(current.arguments),
            given=_alternate(wanted.arguments),
        )
        return None
    if wanted.name.startswith(RESERVED_PREFIX):
        raise access_refused(f"exchange name '{wanted.name}' contains reserved prefix 'amq.*'")
    _check_count("exchanges", len(vhost.exchanges), vhost.services.limits.exchange_count_max)
    return wanted


def delete_exchange(vhost: VirtualHost, name: str, *, if_unused: bool) -> ExchangeGone | None:
    """Delete an exchange; nothing where there is none."""
    if name == DEFAULT_EXCHANGE:
        raise access_refused("operation not permitted on the default exchange")
    if name.startswith(RESERVED_PREFIX):
        raise access_refused(f"deletion of system exchange '{name}' in vhost '{vhost.name}' not allowed")
    exchange = vhost.exchanges.get(name)
    if exchange is None:
        return None
    if if_unused and exchange.bindings:
        raise precondition_failed(f"exchange '{name}' in vhost '{vhost.name}' in use")
    return ExchangeGone(vhost=vhost.name, name=name)


def declare_queue(vhost: VirtualHost, wanted: QueueMade, connection: Connection) -> QueueMade | None:
    """Make a queue, or check that the one that is there agrees."""
    _check_name(wanted.name)
    current = vhost.queues.get(wanted.name)
    if current is not None:
        if current.owner is not wanted.owner:
            raise resource_locked(wanted.name, vhost.name)
        check_access(vhost, current, connection)
        check_equivalent(
            "queue",
            wanted.name,
            vhost.name,
            current={"durable": current.durable, "auto_delete": current.auto_delete},
            given={"durable": wanted.durable, "auto_delete": wanted.auto_delete},
        )
        check_equivalent(
            "queue",
            wanted.name,
            vhost.name,
            current=compared(current.given),
            given=compared(wanted.arguments),
        )
        return None
    QueueArguments.parse(wanted.name, vhost.name, wanted.arguments)
    _check_count("queues", len(vhost.queues), vhost.services.limits.queue_count_max)
    return wanted


def check_new_queue_name(name: str) -> None:
    """Raise QueueRefused (403) for a name that only the broker may give."""
    if name.startswith(RESERVED_PREFIX):
        raise access_refused(f"queue name '{name}' contains reserved prefix 'amq.*'")


def check_access(vhost: VirtualHost, queue: WorkQueue, connection: Connection) -> None:
    """Raise QueueRefused (405) where the queue is exclusive to another connection."""
    if queue.owner is not None and queue.owner is not connection:
        raise resource_locked(queue.name, vhost.name)


def check_deletion(vhost: VirtualHost, queue: WorkQueue, *, if_unused: bool, if_empty: bool) -> None:
    """Raise QueueRefused (406) where the queue is used, or has messages, and must not be deleted so."""
    if if_unused and queue.consumers.all:
        raise precondition_failed(f"queue '{queue.name}' in vhost '{vhost.name}' in use")
    if if_empty and queue.count:
        raise precondition_failed(f"queue '{queue.name}' in vhost '{vhost.name}' not empty")


def bind(vhost: VirtualHost, binding: Binding, connection: Connection) -> Bound | None:
    """Bind; nothing where that is so already."""
    source = _check_binding(vhost, binding, connection)
    if binding.key in source.bindings:
        return None
    _check_count("bindings", vhost.binding_count, vhost.services.limits.binding_count_max)
    return Bound(vhost=vhost.name, binding=binding)


def unbind(vhost: VirtualHost, binding: Binding, connection: Connection) -> Unbound | None:
    """Undo a binding; nothing where there is none."""
    if binding.destination.kind == "queue" and binding.destination.name not in vhost.queues:
        return None
    if binding.source not in vhost.exchanges:
        return None
    source = _check_binding(vhost, binding, connection)
    return Unbound(vhost=vhost.name, binding=binding) if binding.key in source.bindings else None


def new_binding(
    kind: str, destination: str, source: str, routing_key: str, arguments: dict[str, object]
) -> Binding:
    """A binding as a client describes it."""
    return Binding(
        source=source,
        destination=Destination(kind, destination),
        routing_key=routing_key,
        arguments=arguments,
    )


def _check_binding(vhost: VirtualHost, binding: Binding, connection: Connection) -> Exchange:
    if binding.destination.kind == "queue":
        check_access(vhost, vhost.queue(binding.destination.name), connection)
    elif binding.destination.name == DEFAULT_EXCHANGE:
        raise access_refused("operation not permitted on the default exchange")
    else:
        vhost.exchange(binding.destination.name)
    if binding.source == DEFAULT_EXCHANGE:
        raise access_refused("operation not permitted on the default exchange")
    _check_name(binding.routing_key)
    return vhost.exchange(binding.source)


def _check_name(name: str) -> None:
    if len(name.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
        raise syntax_error(f"a name has {len(name)} characters; at most {NAME_BYTES_MAX} bytes are allowed")


def _check_count(what: str, count: int, count_max: int) -> None:
    if count >= count_max:
        raise resource_error(f"there are {count} {what} already, and no more are allowed")


def _exchange_facts(kind: str, durable: bool, auto_delete: bool, internal: bool) -> dict[str, object]:
    return {"type": kind, "durable": durable, "auto_delete": auto_delete, "internal": internal}


def _alternate(arguments: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in arguments.items() if name == "alternate-exchange"}
