"""What each method does on the broker, and what is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pamqp import commands

from headrace.queue.audit import audit
from headrace.queue.refusals import command_invalid, not_implemented

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.queue.amqp.methods import Method
    from headrace.queue.amqp.session import Session
    from headrace.queue.interface import ChannelMethods

    Operation = Callable[[Session, int, ChannelMethods, Any], None]


def operate(session: Session, number: int, channel: ChannelMethods, method: Method) -> None:
    """Do what a method asks for. Raises QueueRefused."""
    operation = _OPERATIONS.get(type(method))
    if operation is None:
        raise command_invalid(f"{method.name} can't come from a client")
    operation(session, number, channel, method)


def _exchange_declare(
    session: Session, number: int, channel: ChannelMethods, method: commands.Exchange.Declare
) -> None:
    channel.exchange_declare(
        method.exchange,
        method.exchange_type,
        passive=method.passive,
        durable=method.durable,
        auto_delete=method.auto_delete,
        internal=method.internal,
        arguments=method.arguments,
    )
    if not method.nowait:
        answer = session.reply if method.passive else session.reply_when_durable
        answer(number, commands.Exchange.DeclareOk)


def _exchange_delete(
    session: Session, number: int, channel: ChannelMethods, method: commands.Exchange.Delete
) -> None:
    channel.exchange_delete(method.exchange, if_unused=method.if_unused)
    audit(session, "exchange.delete", exchange=method.exchange)
    if not method.nowait:
        session.reply_when_durable(number, commands.Exchange.DeleteOk)


def _exchange_bind(
    session: Session, number: int, channel: ChannelMethods, method: commands.Exchange.Bind
) -> None:
    channel.exchange_bind(method.destination, method.source, method.routing_key, method.arguments)
    if not method.nowait:
        session.reply_when_durable(number, commands.Exchange.BindOk)


def _exchange_unbind(
    session: Session, number: int, channel: ChannelMethods, method: commands.Exchange.Unbind
) -> None:
    channel.exchange_unbind(method.destination, method.source, method.routing_key, method.arguments)
    if not method.nowait:
        session.reply_when_durable(number, commands.Exchange.UnbindOk)


def _queue_declare(
    session: Session, number: int, channel: ChannelMethods, method: commands.Queue.Declare
) -> None:
    declared = channel.queue_declare(
        method.queue,
        passive=method.passive,
        durable=method.durable,
        exclusive=method.exclusive,
        auto_delete=method.auto_delete,
        arguments=method.arguments,
    )
    if not method.nowait:
        answer = session.reply if method.passive else session.reply_when_durable
        answer(
            number,
            commands.Queue.DeclareOk,
            declared.name,
            declared.message_count,
            declared.consumer_count,
        )


def _queue_bind(session: Session, number: int, channel: ChannelMethods, method: commands.Queue.Bind) -> None:
    channel.queue_bind(method.queue, method.exchange, method.routing_key, method.arguments)
    if not method.nowait:
        session.reply_when_durable(number, commands.Queue.BindOk)


def _queue_unbind(
    session: Session, number: int, channel: ChannelMethods, method: commands.Queue.Unbind
) -> None:
    channel.queue_unbind(method.queue, method.exchange, method.routing_key, method.arguments)
    session.reply_when_durable(number, commands.Queue.UnbindOk)


def _queue_purge(
    session: Session, number: int, channel: ChannelMethods, method: commands.Queue.Purge
) -> None:
    message_count = channel.queue_purge(method.queue)
    audit(session, "queue.purge", queue=method.queue, messages=message_count)
    if not method.nowait:
        session.reply_when_durable(number, commands.Queue.PurgeOk, message_count)


def _queue_delete(
    session: Session, number: int, channel: ChannelMethods, method: commands.Queue.Delete
) -> None:
    message_count = channel.queue_delete(method.queue, if_unused=method.if_unused, if_empty=method.if_empty)
    audit(session, "queue.delete", queue=method.queue, messages=message_count)
    if not method.nowait:
        session.reply_when_durable(number, commands.Queue.DeleteOk, message_count)


def _basic_qos(session: Session, number: int, channel: ChannelMethods, method: commands.Basic.Qos) -> None:
    channel.basic_qos(
        method.prefetch_count, prefetch_size=method.prefetch_size, is_global=bool(method.global_)
    )
    session.reply(number, commands.Basic.QosOk)


def _basic_consume(
    session: Session, number: int, channel: ChannelMethods, method: commands.Basic.Consume
) -> None:
    consumer_tag = channel.basic_consume(
        method.queue,
        method.consumer_tag,
        no_ack=method.no_ack,
        exclusive=method.exclusive,
        arguments=method.arguments,
    )
    if not method.nowait:
        session.reply(number, commands.Basic.ConsumeOk, consumer_tag)


def _basic_cancel(
    session: Session, number: int, channel: ChannelMethods, method: commands.Basic.Cancel
) -> None:
    consumer_tag = method.consumer_tag or ""
    channel.basic_cancel(consumer_tag)
    if not method.nowait:
        session.reply(number, commands.Basic.CancelOk, consumer_tag)


def _basic_get(session: Session, number: int, channel: ChannelMethods, method: commands.Basic.Get) -> None:
    session.get(number, channel, method.queue, no_ack=method.no_ack)


def _basic_ack(_session: Session, _number: int, channel: ChannelMethods, method: commands.Basic.Ack) -> None:
    channel.basic_ack(method.delivery_tag, multiple=method.multiple)


def _basic_nack(
    _session: Session, _number: int, channel: ChannelMethods, method: commands.Basic.Nack
) -> None:
    channel.basic_nack(method.delivery_tag, multiple=method.multiple, requeue=method.requeue)


def _basic_reject(
    _session: Session, _number: int, channel: ChannelMethods, method: commands.Basic.Reject
) -> None:
    channel.basic_reject(method.delivery_tag or 0, requeue=method.requeue)


def _basic_recover(
    session: Session,
    number: int,
    channel: ChannelMethods,
    method: commands.Basic.Recover | commands.Basic.RecoverAsync,
) -> None:
    if not method.requeue:
        # RabbitMQ does not have it either: a message would have to go back to a consumer that may be gone.
        raise not_implemented("requeue=false")
    channel.basic_recover(requeue=True)
    if isinstance(method, commands.Basic.Recover):
        session.reply(number, commands.Basic.RecoverOk)


def _confirm_select(
    session: Session, number: int, channel: ChannelMethods, method: commands.Confirm.Select
) -> None:
    channel.confirm_select()
    if not method.nowait:
        session.reply(number, commands.Confirm.SelectOk)


def _tx_select(session: Session, number: int, channel: ChannelMethods, _method: commands.Tx.Select) -> None:
    channel.tx_select()
    session.reply(number, commands.Tx.SelectOk)


def _tx_commit(session: Session, number: int, channel: ChannelMethods, _method: commands.Tx.Commit) -> None:
    channel.tx_commit()
    session.reply_when_durable(number, commands.Tx.CommitOk)


def _tx_rollback(
    session: Session, number: int, channel: ChannelMethods, _method: commands.Tx.Rollback
) -> None:
    channel.tx_rollback()
    session.reply(number, commands.Tx.RollbackOk)


_OPERATIONS: Final[dict[type[Method], Operation]] = {
    commands.Exchange.Declare: _exchange_declare,
    commands.Exchange.Delete: _exchange_delete,
    commands.Exchange.Bind: _exchange_bind,
    commands.Exchange.Unbind: _exchange_unbind,
    commands.Queue.Declare: _queue_declare,
    commands.Queue.Bind: _queue_bind,
    commands.Queue.Unbind: _queue_unbind,
    commands.Queue.Purge: _queue_purge,
    commands.Queue.Delete: _queue_delete,
    commands.Basic.Qos: _basic_qos,
    commands.Basic.Consume: _basic_consume,
    commands.Basic.Cancel: _basic_cancel,
    commands.Basic.Get: _basic_get,
    commands.Basic.Ack: _basic_ack,
    commands.Basic.Nack: _basic_nack,
    commands.Basic.Reject: _basic_reject,
    commands.Basic.Recover: _basic_recover,
    commands.Basic.RecoverAsync: _basic_recover,
    commands.Confirm.Select: _confirm_select,
    commands.Tx.Select: _tx_select,
    commands.Tx.Commit: _tx_commit,
    commands.Tx.Rollback: _tx_rollback,
}
