"""What `headrace views verify --source` needs of the database: a snapshot of the tables, at a known position.

A capture of its own takes the snapshot, with the settings of the one that publishes the changes, to topics
that are deleted afterwards. Its slot is a temporary one: should all this be killed, the database drops it by
itself, and keeps no log for nobody. Then the changes up to its position must have been published.
"""

from __future__ import annotations

import glob
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.markup import escape

from headrace.cli.client import client_options
from headrace.cli.foreground import stop_on_signals
from headrace.cli.output import say
from headrace.config import StreamsConfig
from headrace.errors import ConfigError, FaultError, HeadraceError

if TYPE_CHECKING:
    from headrace.cdc.state import CaptureState
    from headrace.config import CaptureConfig

PUBLISHED_S_MAX: Final = 120.0
"""How long the capture may take to get to the snapshot's position; its heartbeats let it move on."""
PAUSE_S: Final = 0.5

OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenSnapshot:
    """The rows of some tables, at one position of the database's log."""

    topics: Mapping[str, str]
    """Where the rows of each change topic's table are."""
    lsn: int


@contextmanager
def snapshot_of(
    config: CaptureConfig, change_topics: Sequence[str], on_step: OnStep
) -> Iterator[TakenSnapshot]:
    """Take a snapshot of the tables of these topics; wait until the changes before it are published."""
    # What a capture needs is an extra: only who runs one may import it.
    from headrace.cdc.capture import Capture  # noqa: PLC0415
    from headrace.cdc.last_state import read_state  # noqa: PLC0415

    tables = tables_of(config, change_topics)
    directory = Path(tempfile.mkdtemp(prefix="headrace-verify-"))
    taking = scratch_of(config, list(tables.values()), directory)
    with _interrupted_by_signals():
        try:
            on_step(f"taking a snapshot of {', '.join(tables.values())}")
            Capture(taking, has_temporary_slot=True).run()
            state = read_state(taking)
            if state is None:
                raise FaultError(f"the snapshot of {', '.join(tables.values())} was not taken: try again")
            on_step("waiting until the changes before it are published")
            await_published(config, state.lsn)
            names = {topic: f"{taking.prefix}.{topic.removeprefix(f'{config.prefix}.')}" for topic in tables}
            # A table without rows has made none.
            ensure_topics(taking, names.values())
            yield TakenSnapshot(topics=names, lsn=state.lsn)
        finally:
            _clear(taking)
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Have SIGTERM and a closed terminal end what runs as Ctrl-C does, so that it is cleared away."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    stop_on_signals()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def tables_of(config: CaptureConfig, change_topics: Sequence[str]) -> dict[str, str]:
    """The table of each of these topics, which may not be called like it: see `EventSettings.topic_of`."""
    from headrace.cdc.connection import connect  # noqa: PLC0415  # see above
    from headrace.cdc.database_catalog import DatabaseCatalog  # noqa: PLC0415  # see above
    from headrace.cdc.events import is_captured, settings_of  # noqa: PLC0415  # see above

    with closing(connect(config.dsn, within_s=0)) as connection:
        names = DatabaseCatalog(connection, config.dsn).all_tables()
        settings = settings_of(config, connection.info.dbname)
    known = {settings.topic_of(*each): ".".join(each) for each in names if is_captured(config, *each)}
    if missing := [topic for topic in change_topics if topic not in known]:
        raise ConfigError(
            f"capture {config.name} has no table for {', '.join(missing)}: it was dropped or renamed, or is "
            "not captured any more, so there is nothing to compare with"
        )
    return {topic: known[topic] for topic in change_topics}


def ensure_topics(config: CaptureConfig, topics: Iterable[str]) -> None:
    """Have these topics."""
    from headrace.streams.admin import ensure_topics as ensure  # noqa: PLC0415  # see above

    streams = StreamsConfig(bootstrap=config.bootstrap, client_options=config.client_options)
    ensure(streams, dict.fromkeys(topics, 1))


def _clear(config: CaptureConfig) -> None:
    """Remove what the snapshot has made. What can't be removed must not hide why it was not taken."""
    from headrace.cdc.removal import delete_topics, remove  # noqa: PLC0415  # see above

    for clear in (remove, delete_topics):
        try:
            clear(config)
        except HeadraceError as error:
            say(f"what the snapshot has made could not be removed: {escape(str(error))}")


def scratch_of(config: CaptureConfig, tables: Sequence[str], directory: Path) -> CaptureConfig:
    """A capture that takes one snapshot of tables as the other would."""
    number = secrets.token_hex(4)
    return replace(
        config,
        name=f"verify-{number}",
        prefix=f"{config.prefix}.verify-{number}",
        slot=f"headrace_verify_{number}",
        publication=config.publication,
        data_dir=directory,
        snapshot="only",
        include_tables=tuple(map(glob.escape, tables)),
        exclude_tables=(),
        outbox_table=None,
        heartbeat_s=0,
        client_options=client_options(),
        keeps_last_only=False,
        retention_ms=-1,
        topic_settings={},
    )


def await_published(config: CaptureConfig, lsn: int) -> None:
    """Wait until the capture has published everything before the position, and all rows that it reads."""
    from headrace.cdc.last_state import read_state  # noqa: PLC0415  # see above

    deadline_s = time.monotonic() + PUBLISHED_S_MAX
    while (state := read_state(config)) is None or state.lsn < lsn or state.tables:
        if time.monotonic() > deadline_s:
            raise ConfigError(_unpublished(config.name, state, lsn))
        time.sleep(PAUSE_S)


def _unpublished(name: str, state: CaptureState | None, lsn: int) -> str:
    if state is not None and state.lsn >= lsn:
        tables = ", ".join(each.name for each in state.tables)
        return (
            f"capture {name} has not published all rows of {tables}, whose snapshot goes on: try again when "
            "`headrace capture status` shows none any more"
        )
    return (
        f"capture {name} has not published what was written before the snapshot within "
        f"{PUBLISHED_S_MAX:.0f} s: is it running? `headrace capture status` tells"
    )
