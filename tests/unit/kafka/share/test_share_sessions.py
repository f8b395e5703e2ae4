"""Share sessions: requests in order, and what each member fetches."""

from __future__ import annotations

from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from headrace.kafka.share import sessions as share_sessions
from headrace.kafka.share.sessions import FINAL_EPOCH, INT_MAX, ShareSession, ShareSessions

KEY = ("g", "m")
TOPIC = UUID(int=1)


def opened(sessions: ShareSessions, key: tuple[str, str] = KEY, connection: str = "c") -> ShareSession:
    session = sessions.open(key, connection, [(TOPIC, 0), (TOPIC, 1)])
    assert isinstance(session, ShareSession)
    return session


def test_requests_come_in_the_order_of_their_epochs() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions)
    assert sessions.next(KEY, 2) is ErrorCode.invalid_share_session_epoch
    assert sessions.next(KEY, 1) is session
    session.advance()
    assert sessions.next(KEY, 1) is ErrorCode.invalid_share_session_epoch
    assert sessions.next(KEY, 2) is session
    assert sessions.next(KEY, FINAL_EPOCH) is session


def test_after_the_last_epoch_comes_the_first() -> None:
    session = opened(ShareSessions(10))
    session.next_epoch = INT_MAX
    session.advance()
    assert session.next_epoch == 1


@pytest.mark.parametrize("epoch", [1, FINAL_EPOCH])
def test_a_session_that_is_not_there_is_not_found(epoch: int) -> None:
    assert ShareSessions(10).next(KEY, epoch) is ErrorCode.share_session_not_found


def test_partitions_are_added_and_forgotten() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions)
    assert sessions.change(session, [(TOPIC, 2), (TOPIC, 1)], [(TOPIC, 0), (TOPIC, 7)]) is ErrorCode.none
    assert list(session.partitions) == [(TOPIC, 1), (TOPIC, 2)]


def test_a_partition_that_gave_records_comes_last_the_next_time() -> None:
    session = opened(ShareSessions(10))
    session.gave((TOPIC, 0))
    session.gave((TOPIC, 9))
    assert list(session.partitions) == [(TOPIC, 1), (TOPIC, 0)]


def test_there_are_only_so_many_sessions() -> None:
    sessions = ShareSessions(1)
    first = opened(sessions)
    assert sessions.open(("g", "n"), "c", []) is ErrorCode.share_session_limit_reached
    sessions.close(first)
    opened(sessions, ("g", "n"))
    assert len(sessions) == 1


def test_all_sessions_together_name_only_so_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_sessions, "PARTITION_COUNT_MAX", 3)
    sessions = ShareSessions(10)
    session = opened(sessions)
    assert sessions.open(("g", "n"), "c", [(TOPIC, 0), (TOPIC, 1)]) is ErrorCode.share_session_limit_reached
    assert sessions.change(session, [(TOPIC, 2)], []) is ErrorCode.none
    assert sessions.change(session, [(TOPIC, 3)], []) is ErrorCode.share_session_limit_reached
    sessions.change(session, [], [(TOPIC, 0), (TOPIC, 1)])
    opened(sessions, ("g", "n"))


def test_a_connection_knows_its_sessions() -> None:
    sessions = ShareSessions(10)
    one = opened(sessions)
    other = opened(sessions, ("g", "n"))
    opened(sessions, ("h", "m"), connection="d")
    assert sessions.of_connection("c") == [one, other]
    sessions.close(one)
    assert sessions.of_connection("c") == [other]
    sessions.close(other)
    assert sessions.of_connection("c") == []


def test_a_new_session_of_a_member_takes_the_place_of_its_last_one() -> None:
    sessions = ShareSessions(1)
    opened(sessions)
    other = opened(sessions, connection="d")
    assert sessions.get(KEY) is other
    assert sessions.of_connection("c") == []
    assert len(sessions) == 1


def test_a_session_stays_as_it_is_where_there_is_no_room_for_what_it_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share_sessions, "PARTITION_COUNT_MAX", 2)
    sessions = ShareSessions(10)
    session = opened(sessions)
    added = [(TOPIC, 2), (TOPIC, 3)]
    assert sessions.change(session, added, [(TOPIC, 0)]) is ErrorCode.share_session_limit_reached
    assert list(session.partitions) == [(TOPIC, 0), (TOPIC, 1)]
    assert sessions.open(KEY, "d", [*added, (TOPIC, 4)]) is ErrorCode.share_session_limit_reached
    assert sessions.get(KEY) is session
