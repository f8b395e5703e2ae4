"""Fetch: batches as they lie on disk, up to the high watermark.

A fetch that finds less than `min_bytes` is parked. It looks again whenever one of its partitions can be
read further, and answers with what there is when `max_wait_ms` has passed.

What is read, and how much of it, see fetch_reading.py. In a session (see fetch_sessions.py) all of its
partitions are read, whichever the request names, and the answer leaves out what the client knows already.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.answer import Pending
from headrace.kafka.fetch_reading import FetchReading
from headrace.kafka.messages.fetch import FetchableTopicResponse, FetchResponse

if TYPE_CHECKING:
    from headrace.kafka.fetch_sessions import FetchContext
    from headrace.kafka.messages.fetch import FetchRequest, PartitionData
    from headrace.kafka.services import Call, Services, Timer
    from headrace.log.partition import PartitionLog

FIRST_VERSION_WITH_TOPIC_IDS: Final = 13


def handle_fetch(call: Call, request: FetchRequest) -> FetchResponse | Pending[FetchResponse]:
    """Read batches, now or when there are some."""
    services = call.services
    context = services.fetch_sessions.open(
        request,
        uses_topic_ids=call.api_version >= FIRST_VERSION_WITH_TOPIC_IDS,
        now_ms=int(services.clock.monotonic_s() * 1000),
    )
    if isinstance(context, ErrorCode):
        return FetchResponse(error_code=context, responses=())
    reading = FetchReading(services, request, context)
    data = reading.read()
    if reading.is_enough or request.max_wait_ms <= 0:
        reading.count()
        return _response(context, data)
    return _ParkedFetch(services, request, context, reading.logs).pending


def _response(context: FetchContext, data: list[PartitionData | None]) -> FetchResponse:
    answer = context.answer(data)
    if isinstance(answer, ErrorCode):
        return FetchResponse(error_code=answer, responses=())
    return FetchResponse(
        session_id=context.session_id,
        responses=tuple(
            FetchableTopicResponse(
                topic=topic, topic_id=topic_id, partitions=tuple(each for _, each in partitions)
            )
            for (topic, topic_id), partitions in groupby(answer, key=lambda each: each[0][:2])
        ),
    )


class _ParkedFetch:
    """A fetch that waits for more."""

    def __init__(
        self, services: Services, request: FetchRequest, context: FetchContext, logs: list[PartitionLog]
    ) -> None:
        self.pending: Pending[FetchResponse] = Pending()
        self._services = services
        self._request = request
        self._context = context
        self._logs = logs
        wait_ms = min(request.max_wait_ms, services.config.fetch_wait_ms_max)
        services.watchers.watch(logs, self._look_again)
        self._timer: Timer = services.scheduler.call_later(wait_ms / 1000, self._give_up)
        self.pending.on_abandoned = self._stop

    def _look_again(self, *, is_last_time: bool = False) -> None:
        has_room = self._services.unsent_answers.has_room(self._look_again)
        if not has_room and not is_last_time:
            return
        try:
            reading = FetchReading(self._services, self._request, self._context)
            data = reading.read()
            if reading.is_enough or is_last_time:
                self._answer(reading, data)
        except Exception:
            # A mistake of ours: the client must not wait for ever, nor others for it.
            self._stop()
            self.pending.resolve(FetchResponse(error_code=ErrorCode.unknown_server_error, responses=()))
            raise

    def _give_up(self) -> None:
        self._look_again(is_last_time=True)

    def _answer(self, reading: FetchReading, data: list[PartitionData | None]) -> None:
        reading.count()
        self._stop()
        self.pending.resolve(_response(self._context, data))

    def _stop(self) -> None:
        self._services.watchers.unwatch(self._logs, self._look_again)
        self._services.unsent_answers.forget(self._look_again)
        self._timer.cancel()
