"""What a capture's settings mean for its events: the parts of the pure core, made from them."""

from __future__ import annotations

from importlib.metadata import version

from headrace.cdc.announced import Announced
from headrace.cdc.catalog import Catalog
from headrace.cdc.known_keys import KnownKeys
from headrace.cdc.last_values import RecentValues
from headrace.cdc.outbox import Outbox
from headrace.cdc.selection import Selection
from headrace.cdc.settings import EventSettings
from headrace.cdc.state import CaptureState
from headrace.cdc.values.converters import ValueFormat
from headrace.cdc.writer import ChangeWriter
from headrace.config import CaptureConfig


def settings_of(config: CaptureConfig, database: str, money_fraction_digits: int = 2) -> EventSettings:
    """How events are written. How many digits money has behind the point, the database says."""
    return EventSettings(
        prefix=config.prefix,
        database=database,
        version=version("headrace"),
        values=ValueFormat(numerics=config.numerics, money_fraction_digits=money_fraction_digits),
        tombstones=config.tombstones,
        partition_count=config.partition_count,
    )


def selection_of(config: CaptureConfig) -> Selection:
    """What is captured, and how much of it may be read."""
    return Selection(
        include_tables=config.include_tables,
        exclude_tables=config.exclude_tables,
        include_columns=config.include_columns,
        exclude_columns=config.exclude_columns,
        mask_columns=config.mask_columns,
        hash_columns=config.hash_columns,
        hash_secret=config.hash_secret.encode(),
    )


def is_captured(config: CaptureConfig, schema: str, table: str) -> bool:
    """Whether a table's rows have a topic; those of the outbox have others."""
    return selection_of(config).takes_table(schema, table) and f"{schema}.{table}" != config.outbox_table


def writer_of(
    config: CaptureConfig, settings: EventSettings, catalog: Catalog, state: CaptureState | None
) -> ChangeWriter:
    """What writes the events, and goes on from a state."""
    return ChangeWriter(
        settings,
        KnownKeys(catalog, None if state is None else state.keys),
        selection=selection_of(config),
        outbox=Outbox(table=config.outbox_table) if config.outbox_table else None,
        last_values=RecentValues(),
        announced=Announced(None if state is None else state.announced),
    )
