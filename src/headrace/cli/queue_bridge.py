"""`headrace queues bridge`: from a queue to a topic, or from a topic to a queue, until Ctrl-C."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.client import client_options
from headrace.cli.options import Bootstrap, LogFormatOption, LogLevelOption
from headrace.cli.output import announce
from headrace.cli.queue_connection import QueuesUrl
from headrace.cli.queue_running import Worker, run_until_signal
from headrace.clock import SystemClock
from headrace.config import BridgeKey, BridgeStart, ToQueueConfig, ToTopicConfig
from headrace.errors import ConfigError
from headrace.logs import configure_logging
from headrace.queue_clients.bridge.progress import BridgeProgress
from headrace.queue_clients.bridge.to_queue import ToQueue
from headrace.queue_clients.bridge.to_topic import ToTopic


def bridge(
    name: Annotated[str, typer.Argument(help="The bridge's name: what it has done is known by it.")],
    url: QueuesUrl,
    bootstrap: Bootstrap,
    from_queue: Annotated[str | None, typer.Option(help="Take the messages of this queue.")] = None,
    from_exchange: Annotated[
        str | None, typer.Option(help="Take what this exchange gives to a queue of the bridge's own.")
    ] = None,
    binding_key: Annotated[
        list[str] | None,
        typer.Option(help="What of the exchange; repeatable.", show_default="#: all of a topic exchange"),
    ] = None,
    to_topic: Annotated[str | None, typer.Option(help="Write them to this topic.")] = None,
    key: Annotated[BridgeKey, typer.Option(help="What becomes the record's key.")] = "routing-key",
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of a new topic.")] = 1,
    from_topic: Annotated[str | None, typer.Option(help="Take the records of this topic.")] = None,
    to_queue: Annotated[str | None, typer.Option(help="Publish them to this queue.")] = None,
    to_exchange: Annotated[str | None, typer.Option(help="Publish them to this exchange.")] = None,
    routing_key: Annotated[
        str | None, typer.Option(help="With this key.", show_default="each with its record's key")
    ] = None,
    start: Annotated[BridgeStart, typer.Option(help="Where its first start begins.")] = "earliest",
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "info",
) -> None:
    """Hand messages of a queue over to a topic, or records of a topic to a queue.

    Each message that has an id becomes one record, whatever crashes. On the embedded server, each record
    becomes one message; on RabbitMQ at least one, always with the same id.
    """
    has_topic, has_queue = from_topic is not None, from_queue is not None or from_exchange is not None
    if has_topic == has_queue:
        raise ConfigError(
            "a bridge leads from a queue to a topic (--from-queue or --from-exchange, --to-topic), or from a "
            "topic to a queue (--from-topic, --to-queue or --to-exchange)"
        )
    options = client_options()
    configure_logging(log_format, log_level)
    if from_topic is not None:
        to_queue_config = ToQueueConfig(
            name=name,
            topic=from_topic,
            queue=to_queue or "",
            exchange=to_exchange,
            routing_key=routing_key,
            start=start,
            url=url,
            bootstrap=bootstrap,
            client_options=options,
        )
        run_until_signal(lambda: ToQueue(to_queue_config, _Shown(name)))
    else:
        if to_topic is None:
            raise ConfigError("which topic do the messages go to? Name it with --to-topic")
        to_topic_config = ToTopicConfig(
            name=name,
            topic=to_topic,
            queue=from_queue or "",
            exchange=from_exchange,
            binding_keys=tuple(binding_key or ("#",)),
            key=key,
            partition_count=partitions,
            url=url,
            bootstrap=bootstrap,
            client_options=options,
        )
        run_until_signal(lambda: _to_topic(to_topic_config))


def _to_topic(config: ToTopicConfig) -> Worker:
    return ToTopic(config, SystemClock(), _Shown(config.name))


class _Shown(BridgeProgress):
    """Says when it begins; a supervisor waits for that line."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def ready(self, source: str, target: str) -> None:
        """Say so."""
        super().ready(source, target)
        announce(f"bridge {self._name}: from {source} to {target}")
