"""ShareAcknowledge: what a member says of records, answered when it is durable."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.handlers.produce import error_code_of
from headrace.kafka.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from headrace.kafka.share.acknowledging import Acknowledging
from headrace.kafka.share.sessions import FINAL_EPOCH, INITIAL_EPOCH

if TYPE_CHECKING:
    from headrace.kafka.answer import Pending
    from headrace.kafka.messages.share_acknowledge import ShareAcknowledgeRequest
    from headrace.kafka.services import Call


def handle_share_acknowledge(
    call: Call, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | Pending[ShareAcknowledgeResponse]:
    """Take acknowledgements in; with the last ones, what the member still has is given back."""
    try:
        return _handle_share_acknowledge(call, request)
    except HeadraceError as error:
        return ShareAcknowledgeResponse(error_code=error_code_of(error), error_message=str(error))


def _handle_share_acknowledge(
    call: Call, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | Pending[ShareAcknowledgeResponse]:
    shares = call.services.shares
    if not request.group_id or not request.member_id:
        return ShareAcknowledgeResponse(error_code=ErrorCode.invalid_request)
    if request.share_session_epoch == INITIAL_EPOCH:
        return ShareAcknowledgeResponse(error_code=ErrorCode.invalid_share_session_epoch)
    session = shares.sessions.next((request.group_id, request.member_id), request.share_session_epoch)
    if isinstance(session, ErrorCode):
        return ShareAcknowledgeResponse(error_code=session)
    settings = call.services.groups.settings_of(request.group_id)
    acknowledging = Acknowledging(
        services=call.services,
        group_id=request.group_id,
        member_id=request.member_id,
        settings=settings,
        is_renewal=request.is_renew_ack,
    )
    acknowledging.take(request.topics)
    if request.share_session_epoch == FINAL_EPOCH:
        shares.end_session(session)
    else:
        session.advance()

    def respond(error: HeadraceError | None) -> ShareAcknowledgeResponse:
        if error is not None:
            acknowledging.fail(error)
        return _response(acknowledging, settings.share_record_lock_duration_ms)

    return shares.answer(respond)


def _response(acknowledging: Acknowledging, lock_ms: int) -> ShareAcknowledgeResponse:
    in_order = sorted(acknowledging.verdicts.items(), key=lambda each: each[0][0].int)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=tuple(
            ShareAcknowledgeTopicResponse(
                topic_id=topic_id,
                partitions=tuple(
                    PartitionData(
                        partition_index=index, error_code=verdict.error_code, error_message=verdict.message
                    )
                    for (_, index), verdict in same
                ),
            )
            for topic_id, same in groupby(in_order, key=lambda each: each[0][0])
        ),
    )
