"""A capture, from its first start on: what runs in one process, on one thread, until it is stopped.

    lock the name in the database → fence others at the broker → begin, or go on (beginning.py)
    → stream (streaming.py), and beside it heartbeats, a look at the slot, and snapshots that were asked for

A connection that is lost, to the database or to the broker, ends a run; `keep_running` starts the next one
from what is published. What can't be made good by going on is raised: see slot.py.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Final

from headrace.cdc.beginning import Parts, begin, left_out
from headrace.cdc.cancelling import cancelled_when
from headrace.cdc.connection import Connection, connect, emit_message, explained
from headrace.cdc.database_catalog import DatabaseCatalog
from headrace.cdc.events import settings_of, writer_of
from headrace.cdc.lock import lock_capture
from headrace.cdc.pause import Pause
from headrace.cdc.progress import Progress
from headrace.cdc.publisher import Publisher
from headrace.cdc.replication import ReplicationStream
from headrace.cdc.requests import Requests
from headrace.cdc.side_snapshots import SideSnapshots
from headrace.cdc.slot import Slot, check_slot, lag_warning
from headrace.cdc.slots import drop_slot, is_standby, read_slot
from headrace.cdc.state import CaptureState, Phase
from headrace.cdc.streaming import HEARTBEAT, Streaming
from headrace.config import CaptureConfig
from headrace.errors import HeadraceError
from headrace.logs import fields

LOOK_S: Final = 5.0
"""How often the slot is looked at."""
WAIT_S_MAX: Final = 0.5
"""How long nothing may come before requests are looked for."""
LOOK_FOR_TABLES_S: Final = 60.0
"""How often tables are looked for that were created since, and are not captured."""
SLOT_FREE_S_MAX: Final = 10.0
SLOT_FREE_PAUSE_S: Final = 0.05
RESTART_PAUSE_S_FIRST: Final = 0.5
RESTART_PAUSE_S_MAX: Final = 30.0

_logger = logging.getLogger(__name__)


class Capture:
    """One capture. `run` and `keep_running` belong to one thread; `stop` may be called from any."""

    def __init__(
        self, config: CaptureConfig, progress: Progress | None = None, *, has_temporary_slot: bool = False
    ) -> None:
        """A temporary slot leaves nothing behind in the database, and is for a snapshot only: what is
        interrupted can't be gone on with."""
        assert config.snapshot == "only" or not has_temporary_slot, "changes are read from a slot that stays"
        self._config = config
        self._progress = progress or Progress()
        self._stopping = threading.Event()
        self._stream: ReplicationStream | None = None
        self._pause = Pause(config.directory)
        self._warned: str | None = None
        self._has_temporary_slot = has_temporary_slot

    @property
    def is_stopping(self) -> bool:
        """Whether somebody has asked it to stop."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """End the run after what is whole was published."""
        self._stopping.set()
        stream = self._stream
        if stream is not None:
            stream.wake()

    def keep_running(self) -> None:
        """Run until stopped, again and again where a server was gone for a while. Raises what can't pass."""
        pause_s = RESTART_PAUSE_S_FIRST
        while not self._stopping.is_set():
            if self._pause.is_set():
                self._progress.paused()
                self._stopping.wait(WAIT_S_MAX)
                continue
            started_s = time.monotonic()
            try:
                self.run()
            except HeadraceError as error:
                if not error.retriable:
                    raise
                if self._stopping.is_set():
                    # What was waited for was cancelled: the next start takes it up.
                    return
                if time.monotonic() - started_s > RESTART_PAUSE_S_MAX:
                    pause_s = RESTART_PAUSE_S_FIRST
                name = self._config.name
                _logger.warning(
                    "capture %s goes on in %.1f s: %s", name, pause_s, error, extra=fields(capture=name)
                )
                self._stopping.wait(pause_s)
                pause_s = min(2 * pause_s, RESTART_PAUSE_S_MAX)
            else:
                if not self._pause.is_set():
                    return

    def run(self) -> None:
        """Run until stopped, until a snapshot only is complete, or until something is lost."""
        config = self._config
        with ExitStack() as stack:
            control = stack.enter_context(closing(connect(config.dsn)))
            lock_capture(control, config, self._stopping)
            stack.callback(self._progress.unlocked)
            self._progress.locked()
            publisher = stack.enter_context(closing(Publisher(config, is_ending=self._stopping.is_set)))
            if _is_complete(publisher):
                self._drop_slot(control)
                return
            catalog = DatabaseCatalog(control, config.dsn)
            settings = settings_of(config, control.info.dbname, catalog.money_fraction_digits())
            parts = Parts(
                config=config,
                control=control,
                catalog=catalog,
                publisher=publisher,
                writer=writer_of(config, settings, catalog, publisher.state),
                progress=self._progress,
                is_ending=self._is_ending,
                has_temporary_slot=self._has_temporary_slot,
            )
            self._tell_of_partitions(parts)
            with cancelled_when(self._is_ending, control):
                state = begin(parts)
                if not self._is_ending() and not self._is_done(parts, state):
                    with closing(SideSnapshots(parts, settings)) as side:
                        self._streamed(parts, side, state)
            if _is_complete(publisher):
                self._drop_slot(control)

    def _streamed(self, parts: Parts, side: SideSnapshots, state: CaptureState) -> None:
        config = self._config
        # Of the transaction before the first one, all that is known is that it is published.
        parts.writer.last_commit_lsn = state.lsn
        self._look(parts, state.lsn)
        for table in parts.catalog.published(config.publication):
            parts.writer.know(table.relation)
            side.described(table.relation)
        parts.writer.announced.begun()
        stream = ReplicationStream(
            config.dsn, slot=state.slot, publication=config.publication, start_lsn=state.lsn
        )
        with stream:
            self._stream = stream
            try:
                self._progress.streaming(state)
                self._loop(parts, stream, side, Streaming(parts, stream, side, state))
            finally:
                self._stream = None

    def _loop(
        self, parts: Parts, stream: ReplicationStream, side: SideSnapshots, streaming: Streaming
    ) -> None:
        config, requests = self._config, Requests(self._config.directory)
        heartbeat_due_s = look_due_s = tables_due_s = time.monotonic()
        while not self._is_ending():
            streaming.replace_state(side.go_on(streaming.state))
            has_more = streaming.step()
            stream.wait(0.0 if has_more else WAIT_S_MAX)
            now_s = time.monotonic()
            if config.heartbeat_s and now_s >= heartbeat_due_s:
                heartbeat_due_s = now_s + config.heartbeat_s
                self._heartbeat(parts)
            if now_s >= tables_due_s:
                tables_due_s = now_s + LOOK_FOR_TABLES_S
                self._tell_of_new_tables(parts)
            if now_s >= look_due_s:
                look_due_s = now_s + LOOK_S
                published = parts.publisher.state
                assert published is not None
                self._look(parts, published.lsn)
                self._tell_notices(parts)
            if streaming.is_whole:
                requests.take_into(streaming)
                if self._is_done(parts, streaming.state):
                    return
        if streaming.is_whole and parts.publisher.sent_count:
            streaming.commit()

    def _is_ending(self) -> bool:
        return self._stopping.is_set() or self._pause.is_set()

    def _is_done(self, parts: Parts, state: CaptureState) -> bool:
        """Note that a snapshot only is complete: nothing more is needed of the database."""
        if self._config.snapshot != "only" or state.tables:
            return False
        parts.publisher.commit(replace(state, phase=Phase.DONE))
        return True

    def _drop_slot(self, control: Connection) -> None:
        """The server may take a moment to notice that nobody reads from the slot any more."""
        with explained(self._config.dsn, "dropping the slot of a snapshot that is complete"):
            deadline_s = time.monotonic() + SLOT_FREE_S_MAX
            while (slot := read_slot(control, self._config.slot)) is not None and slot.active_pid is not None:
                if time.monotonic() > deadline_s:
                    break
                time.sleep(SLOT_FREE_PAUSE_S)
            drop_slot(control, self._config.slot)

    def _heartbeat(self, parts: Parts) -> None:
        with explained(self._config.dsn, "writing a heartbeat"):
            # Asked each time, since a standby may be promoted.
            if not is_standby(parts.control):
                emit_message(parts.control, HEARTBEAT, self._config.name)
                return
        # Then keep-alives alone say how far it is.
        parts.writer.notices.tell("the database is a standby, so no heartbeats are written to its log")

    def _look(self, parts: Parts, published_lsn: int) -> Slot:
        config = self._config
        with explained(config.dsn, "looking at the slot"):
            found = read_slot(parts.control, config.slot)
        slot = check_slot(config.name, config.slot, found, published_lsn)
        self._progress.slot_seen(slot)
        warning = lag_warning(config.name, slot)
        if warning is not None and self._warned is None:
            _logger.warning(warning, extra=fields(capture=config.name, kept_bytes=slot.kept_bytes))
        self._warned = warning
        return slot

    def _tell_of_partitions(self, parts: Parts) -> None:
        count = self._config.partition_count
        if count > 1:
            parts.writer.notices.tell(
                f"its topics have {count} partitions, and a TRUNCATE is told in one of them: who reads the "
                "others keeps rows that are gone. A table that is truncated needs --partitions 1"
            )
            self._tell_notices(parts)

    def _tell_of_new_tables(self, parts: Parts) -> None:
        for table in left_out(parts):
            parts.writer.notices.tell(
                f"{table} is not captured, as the publication {self._config.publication} does not have it: "
                "the next start adds it, if the capture has made the publication, and else says what to do"
            )

    def _tell_notices(self, parts: Parts) -> None:
        for sentence in parts.writer.notices.take():
            _logger.warning(
                "capture %s: %s", self._config.name, sentence, extra=fields(capture=self._config.name)
            )


def _is_complete(publisher: Publisher) -> bool:
    return publisher.state is not None and publisher.state.phase is Phase.DONE
