"""Which session a request of a share group's member belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.share.sessions import FINAL_EPOCH, INITIAL_EPOCH

if TYPE_CHECKING:
    from headrace.kafka.messages.share_fetch import ShareFetchRequest
    from headrace.kafka.services import Call, Services
    from headrace.kafka.share.sessions import SharePartition, ShareSession


def connection_of(call: Call) -> str:
    """What the connection is known by, on which a request has come."""
    return f"{call.host}:{call.port}"


def open_or_continue(
    services: Services, request: ShareFetchRequest, connection: str
) -> ShareSession | ErrorCode:
    """The session of a fetch, with the partitions that it has from now on."""
    sessions = services.shares.sessions
    key = (request.group_id or "", request.member_id or "")
    named: list[SharePartition] = [
        (topic.topic_id, each.partition_index)
        for topic in request.topics
        if topic.topic_id is not None
        for each in topic.partitions
    ]
    if request.share_session_epoch == INITIAL_EPOCH:
        # What the member has stays its own: it may be at work on it.
        return sessions.open(key, connection, named)
    session = sessions.next(key, request.share_session_epoch)
    if isinstance(session, ErrorCode) or request.share_session_epoch == FINAL_EPOCH:
        return session
    forgotten = [
        (topic.topic_id, index)
        for topic in request.forgotten_topics_data
        if topic.topic_id is not None
        for index in topic.partitions
    ]
    error_code = sessions.change(session, named, forgotten)
    if error_code is not ErrorCode.none:
        return error_code
    session.advance()
    return session
