"""How the journal gives space back.

The journal's oldest segment can go when nothing in it is needed any more. Most of it never is: messages are
settled soon. What is still there is written again at the journal's end, with what it has become since, and
once that is durable, the journal's start moves past the segment. So one message that nobody takes does not
keep gigabytes. To write a message again costs as much as to write it, so nothing is done as long as more than
half of the journal is needed. What is needed is an estimate (needed.py). So there is a brake as well: no more
is written again than was written for others, and once what was there at the start. A segment of which nothing
is needed goes at any time.

What is needed is told by the queues, and counted beside that, in groups of batches. Where a group has
messages left after all that the queues told of was written again, nothing is removed any more.

What is declared, and the queues' horizons, are in the journal as well: if any of that is in the segment, all
of it is written again.

    read a piece of the segment, write again what is needed, let others work, and so on to its end
    -> write again what is declared -> durable -> move the start, on a thread -> remove the files, on a thread
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headrace.errors import HeadraceError, StorageError, TooManyOpenFiles
from headrace.failpoints import hit
from headrace.queue.journal_format import (
    AT,
    CAME_BACK,
    COUNTED,
    HORIZON,
    MOVED,
    POSITION,
    POSITION_BITS,
    PUBLISH,
    PURGED_HEAD,
    SETTLED,
    TOPOLOGY,
    TOPOLOGY_HEAD,
    Place,
    Published,
    read_published,
    split_values,
    write_moved,
)
from headrace.queue.needed import counted_bytes
from headrace.queue.topology import Bound, ExchangeMade, QueueMade
from headrace.queue.virtual_host import PREDECLARED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.queue.broker import QueueBroker
    from headrace.queue.journal import LogJournal
    from headrace.queue.virtual_host import VirtualHost

    Submit = Callable[[Callable[[], None], Callable[[], None]], None]

logger: Final = logging.getLogger(__name__)

READ_BYTES: Final = 256 * 1024
"""What is read at once."""
STEP_COUNT: Final = 256
"""How many operations are looked at before others get their turn."""
AT_END: Final = object()


class Reclaiming:
    """Belongs to the event loop's thread; `submit` has work done on another, then calls back on this one."""

    def __init__(
        self, broker: QueueBroker, journal: LogJournal, submit: Submit, *, segment_bytes: int
    ) -> None:
        self._broker = broker
        self._services = broker.services
        self._journal = journal
        self._log = journal.log
        self._needed = journal.needed
        self._submit = submit
        self._segment_bytes = segment_bytes
        self._is_running = False
        self._has_declarations = False
        self._at_start_bytes = self._log.size_bytes
        self._again_bytes = 0
        """What was written again since the start."""
        self.reclaimed_count = 0
        """Segments that were given back."""

    def look(self) -> None:
        """Begin if it is worth it. Called whenever the journal has grown."""
        if self._is_running or self._services.is_stopped:
            return
        segments = self._log.segments
        if len(segments) == 1 or self._log.size_bytes <= 2 * self._needed.live_bytes + self._segment_bytes:
            return
        start_offset, end_offset = self._log.start_offset, segments[1].base_offset
        others_bytes = self._journal.written_bytes - self._again_bytes
        if (
            self._again_bytes <= others_bytes + self._at_start_bytes
            or self._needed.next_offset(start_offset, end_offset) >= end_offset
        ):
            self._is_running = True
            self._has_declarations = False
            self._step(self._copy(start_offset, end_offset), end_offset)

    def _step(self, pieces: Iterator[None], end_offset: int) -> None:
        """Write again what is needed of the next piece."""
        if self._services.is_stopped or self._journal.failed is not None:
            return
        try:
            is_at_end = next(pieces, AT_END) is AT_END
        except TooManyOpenFiles:
            self._give_up()
            return
        except Exception as error:  # noqa: BLE001  # Whatever it was, the queues stop.
            # What is written again is not all that is needed then, so the segment must stay.
            self._services.fail(error)
            return
        self._broker.flush()
        if is_at_end:
            self._finish(end_offset)
        else:
            self._services.loop.call_soon(lambda: self._step(pieces, end_offset))

    def _copy(self, offset: int, end_offset: int) -> Iterator[None]:
        """Write again what is needed up to an offset, in pieces. Raises StorageError."""
        seen_count = 0
        while (offset := self._needed.next_offset(offset, end_offset)) < end_offset:
            data = self._log.read(offset, size_bytes_max=READ_BYTES, below_offset=end_offset)
            for found, value in split_values(data, offset):
                offset = found + 1
                if self._needed.next_offset(found, offset) == offset:
                    continue
                self._has_declarations = self._has_declarations or self._needed.has_declarations(found)
                position = 0
                while position < len(value):
                    position = self._keep(found, value, position)
                    seen_count += 1
                    if seen_count % STEP_COUNT == 0:
                        yield
            yield

    def _finish(self, end_offset: int) -> None:
        if self._has_declarations:
            before_bytes = self._journal.pending_bytes
            self._declare_again()
            self._again_bytes += self._journal.pending_bytes - before_bytes
            self._broker.flush()
        self._journal.when_durable(self._journal.token, lambda: self._move_start(end_offset))

    def _move_start(self, end_offset: int) -> None:
        has_messages = self._needed.has_messages(self._log.start_offset, end_offset)
        if has_messages and self._services.in_pieces_count:
            # Queues that were emptied or deleted have not told yet all that they no longer need.
            self._give_up()
            return
        if has_messages:
            # It stays as if this were still running, so that nothing is ever removed.
            logger.critical(
                "NO SPACE OF THE QUEUES' JOURNAL IS GIVEN BACK ANY MORE: messages below offset %d are needed "
                "and in no queue. They are there when the broker is started again",
                end_offset,
            )
            return
        hit("queue.reclaim")
        change = self._log.begin_record_deletion(end_offset)

        def moved() -> None:
            try:
                change.finish()
            except TooManyOpenFiles:
                self._give_up()
                return
            except StorageError as error:
                self._journal.fail(error)
                return
            self._needed.forget_below(end_offset)
            hit("queue.reclaimed")
            self._submit(self._remove_files, self._ended)

        self._submit(change.run, moved)

    def _give_up(self) -> None:
        """Leave it for now: what was written again is found at its new place by the next attempt."""
        self._broker.flush()
        self._is_running = False

    def _remove_files(self) -> None:
        try:
            self._log.remove_deleted_files()
        except HeadraceError as error:
            # The store has failed as a whole, and the next write says so.
            logger.warning("files of the queues' journal could not be removed: %s", error)

    def _ended(self) -> None:
        self._is_running = False
        self.reclaimed_count += 1
        self.look()

    def _keep(self, offset: int, value: bytes, position: int) -> int:
        """Write the operation at a place again if it is needed; return where the next one begins."""
        kind = value[position]
        if kind not in {PUBLISH, MOVED}:
            return position + _size_bytes(kind, value, position)
        published = read_published(value, position)
        self._keep_message(offset, value, published)
        return published.end

    def _keep_message(self, offset: int, value: bytes, published: Published) -> None:
        places = []
        for place in published.places:
            queue = self._services.queues.get(place.queue_id)
            found = None if queue is None else queue.place_of(place.position)
            if found is not None and found[0] >> POSITION_BITS == offset:
                places.append(place._replace(delivery_count=found[1]))
        if places:
            kept: Sequence[Place] = tuple(places)
            operation = write_moved(value, published, kept)
            self._again_bytes += len(operation)
            kept_bytes = counted_bytes(len(operation) // len(kept))
            self._journal.move(operation, lambda at: self._relocate(kept, offset, at, kept_bytes))

    def _relocate(self, places: Sequence[Place], offset: int, location: int, kept_bytes: int) -> None:
        """Note where a message is now."""
        for place in places:
            queue = self._services.queues.get(place.queue_id)
            if queue is None:
                continue
            before_bytes = queue.relocate(place.position, location, kept_bytes)
            if before_bytes is not None:
                self._needed.added(location >> POSITION_BITS, 1, kept_bytes)
                self._needed.removed(offset, before_bytes)

    def _declare_again(self) -> None:
        for vhost in self._broker.vhosts.values():
            declare_again(vhost, self._journal)


def declare_again(vhost: VirtualHost, journal: LogJournal) -> None:
    """Write everything that is durable in a virtual host, but for messages."""
    for exchange in vhost.exchanges.values():
        if exchange.durable and exchange.name and exchange.name not in PREDECLARED:
            journal.change(
                ExchangeMade(
                    vhost=vhost.name,
                    name=exchange.name,
                    kind=exchange.kind,
                    durable=True,
                    auto_delete=exchange.auto_delete,
                    internal=exchange.internal,
                    arguments=exchange.arguments,
                )
            )
    for queue in vhost.queues.values():
        if queue.is_stored:
            journal.change(
                QueueMade(
                    vhost=vhost.name,
                    name=queue.name,
                    queue_id=queue.queue_id,
                    durable=True,
                    auto_delete=queue.auto_delete,
                    arguments=queue.given,
                )
            )
            journal.horizon(queue.queue_id, queue.horizon_asked)
    for exchange in vhost.exchanges.values():
        for binding in exchange.bindings.values():
            if vhost.is_durable(binding):
                journal.change(Bound(vhost=vhost.name, binding=binding))


def _size_bytes(kind: int, value: bytes, position: int) -> int:
    if kind in {SETTLED, HORIZON}:
        return AT.size
    if kind == CAME_BACK:
        return COUNTED.size
    if kind == TOPOLOGY:
        size_bytes: int = TOPOLOGY_HEAD.unpack_from(value, position)[1]
        return TOPOLOGY_HEAD.size + size_bytes
    count: int = PURGED_HEAD.unpack_from(value, position)[3]
    return PURGED_HEAD.size + count * POSITION.size
