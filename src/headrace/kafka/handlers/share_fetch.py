"""ShareFetch: records that nobody else in the group has, and acknowledgements of those of before.

What a member acknowledges is taken in first. Then it is given what is available; where there is less than
`min_bytes`, the fetch is parked, and looks again whenever a partition can be read further or records come
back, until `max_wait_ms` has passed.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.answer import Pending, follow
from headrace.kafka.handlers.produce import error_code_of
from headrace.kafka.handlers.share_session import connection_of, open_or_continue
from headrace.kafka.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from headrace.kafka.share.acknowledging import Acknowledging, Verdict
from headrace.kafka.share.reading import EXACT_MODE, WHOLE_BATCHES, Found, ShareReading
from headrace.kafka.share.sessions import FINAL_EPOCH, INITIAL_EPOCH

if TYPE_CHECKING:
    from headrace.kafka.groups.settings import GroupSettings
    from headrace.kafka.messages.share_fetch import ShareFetchRequest
    from headrace.kafka.services import Call, Services, Timer
    from headrace.kafka.share.sessions import SharePartition, ShareSession


def handle_share_fetch(
    call: Call, request: ShareFetchRequest
) -> ShareFetchResponse | Pending[ShareFetchResponse]:
    """Take acknowledgements in, and give records out, now or when there are some."""
    try:
        return _handle_share_fetch(call, request)
    except HeadraceError as error:
        return ShareFetchResponse(error_code=error_code_of(error), error_message=str(error))


def _handle_share_fetch(
    call: Call, request: ShareFetchRequest
) -> ShareFetchResponse | Pending[ShareFetchResponse]:
    services = call.services
    refusal = _check(request)
    if refusal is not ErrorCode.none:
        return ShareFetchResponse(error_code=refusal)
    session = open_or_continue(services, request, connection_of(call))
    if isinstance(session, ErrorCode):
        return ShareFetchResponse(error_code=session)
    group_id, member_id = session.key
    settings = services.groups.settings_of(group_id)
    acknowledging = Acknowledging(
        services=services,
        group_id=group_id,
        member_id=member_id,
        settings=settings,
        is_renewal=request.is_renew_ack,
    )
    acknowledging.take(request.topics)
    fetch = _ShareFetch(services, session, request, settings, acknowledging)
    if request.share_session_epoch == FINAL_EPOCH:
        services.shares.end_session(session)
        return fetch.answer([])
    if request.is_renew_ack or request.max_records <= 0 or request.max_bytes <= 0:
        return fetch.answer([])
    return fetch.run()


def _check(request: ShareFetchRequest) -> ErrorCode:
    if not request.group_id or not request.member_id:
        return ErrorCode.invalid_request
    has_said = any(each.acknowledgement_batches for topic in request.topics for each in topic.partitions)
    if request.share_session_epoch == INITIAL_EPOCH and has_said:
        return ErrorCode.invalid_request
    if request.share_acquire_mode not in {WHOLE_BATCHES, EXACT_MODE}:
        return ErrorCode.invalid_request
    wants = (request.max_bytes, request.max_records, request.min_bytes, request.max_wait_ms)
    if request.is_renew_ack and any(wants):
        # Locks are renewed by those who work: they are not kept waiting for more.
        return ErrorCode.invalid_request
    return ErrorCode.none


class _ShareFetch:
    """One fetch, that may have to wait."""

    def __init__(
        self,
        services: Services,
        session: ShareSession,
        request: ShareFetchRequest,
        settings: GroupSettings,
        acknowledging: Acknowledging,
    ) -> None:
        self._services = services
        self._session = session
        self._request = request
        self._settings = settings
        self._acknowledging = acknowledging
        self._pending: Pending[ShareFetchResponse] = Pending()
        self._timer: Timer | None = None
        self._watched: ShareReading | None = None
        self._is_over = False
        """Whether nothing more is to be taken: callers may have been on their way when it was answered."""

    def run(self) -> Pending[ShareFetchResponse]:
        """Answer at once, or when there is enough, or when time is up."""
        shares = self._services.shares
        self._pending.on_abandoned = self._stop
        # Positions that begin now count once they are durable: until then, they might begin elsewhere again.
        begun = self._reading().starting()
        try:
            shares.write(begun)
        except HeadraceError as error:
            return self._failed(error)
        if begun:
            shares.when_durable(self._begin)
        else:
            self._begin(None)
        return self._pending

    def answer(self, found: list[Found]) -> Pending[ShareFetchResponse]:
        """The answer, once what was acknowledged is durable."""

        def respond(error: HeadraceError | None) -> ShareFetchResponse:
            if error is None:
                return self._response(found)
            self._acknowledging.fail(error)
            return self._response([_unkept(each.partition, error) for each in found])

        return self._services.shares.answer(respond)

    def _begin(self, error: HeadraceError | None) -> None:
        if self._is_over:
            return
        if error is not None:
            follow(self._pending, self._failed(error))
            return
        wait_ms = min(self._request.max_wait_ms, self._services.config.fetch_wait_ms_max)
        try:
            if not self._look(is_last_time=wait_ms <= 0):
                self._timer = self._services.scheduler.call_later(wait_ms / 1000, self._give_up)
        except Exception:
            self._fail_unexpectedly()
            raise

    def _reading(self) -> ShareReading:
        return ShareReading(self._services, self._session, self._request, self._settings)

    def _look(self, *, is_last_time: bool) -> bool:
        """Look at what there is; say whether the fetch has been answered. If not, it is called again."""
        if self._is_over:
            return True
        if self._services.shares.sessions.get(self._session.key) is not self._session:
            self._stop()
            self._pending.resolve(ShareFetchResponse(error_code=ErrorCode.share_session_not_found))
            return True
        if not is_last_time and not self._services.unsent_answers.has_room(self._look_again):
            return False
        reading = self._reading().read()
        if reading.is_enough or is_last_time:
            self._stop()
            reading.take()
            follow(self._pending, self.answer(reading.found))
            return True
        if self._watched is None:
            self._watched = reading
            self._services.shares.watch(reading.keys, self._look_again)
        reading.keep_skipped()
        if reading.is_behind and not self._is_over:
            self._services.scheduler.call_later(0, self._look_again)
        return self._is_over

    def _look_again(self) -> None:
        try:
            self._look(is_last_time=False)
        except Exception:
            self._fail_unexpectedly()
            raise

    def _give_up(self) -> None:
        try:
            self._look(is_last_time=True)
        except Exception:
            self._fail_unexpectedly()
            raise

    def _fail_unexpectedly(self) -> None:
        """A mistake of ours: the client must not wait for ever, nor others for it."""
        self._stop()
        self._pending.resolve(ShareFetchResponse(error_code=ErrorCode.unknown_server_error))

    def _stop(self) -> None:
        self._is_over = True
        if self._watched is not None:
            self._services.shares.unwatch(self._watched.keys, self._look_again)
            self._watched = None
        self._services.unsent_answers.forget(self._look_again)
        if self._timer is not None:
            self._timer.cancel()

    def _failed(self, error: HeadraceError) -> Pending[ShareFetchResponse]:
        return self.answer([_unkept(each, error) for each in self._session.partitions])

    def _response(self, found: list[Found]) -> ShareFetchResponse:
        by_partition = {each.partition: each for each in found}
        verdicts = self._acknowledging.verdicts
        is_first = self._request.share_session_epoch == INITIAL_EPOCH
        told = [
            partition
            for partition in {**dict.fromkeys(verdicts), **dict.fromkeys(by_partition)}
            if is_first or partition in verdicts or _has_news(by_partition[partition])
        ]
        told.sort(key=lambda each: each[0].int)
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self._settings.share_record_lock_duration_ms,
            responses=tuple(
                ShareFetchableTopicResponse(
                    topic_id=topic_id,
                    partitions=tuple(
                        _partition_data(each, by_partition.get(each), verdicts.get(each, Verdict()))
                        for each in same
                    ),
                )
                for topic_id, same in groupby(told, key=lambda each: each[0])
            ),
        )


def _unkept(partition: SharePartition, error: HeadraceError) -> Found:
    """Nothing is given out where nothing can be kept of what becomes of it."""
    return Found(partition=partition, error_code=ErrorCode.kafka_storage_error, message=str(error))


def _has_news(found: Found) -> bool:
    return bool(found.acquired) or found.error_code is not ErrorCode.none


def _partition_data(partition: SharePartition, found: Found | None, verdict: Verdict) -> PartitionData:
    found = found or Found(partition=partition)
    return PartitionData(
        partition_index=partition[1],
        error_code=found.error_code,
        error_message=found.message,
        acknowledge_error_code=verdict.error_code.value,
        acknowledge_error_message=verdict.message,
        records=found.records,
        acquired_records=tuple(
            AcquiredRecords(
                first_offset=each.first, last_offset=each.last, delivery_count=each.delivery_count
            )
            for each in found.acquired
        ),
    )
