"""What a connection may ask for, and when."""

from __future__ import annotations

import pytest

from headrace.errors import ProtocolError
from headrace.kafka.security.session import RELOGIN_INTERVAL_S_MIN, STEP_COUNT_MAX, SaslSession
from headrace.kafka.services import ANONYMOUS
from headrace.security.mechanisms import LoginFailed

PRODUCE, METADATA, HANDSHAKE, API_VERSIONS, AUTHENTICATE = 0, 3, 17, 18, 36


def new_session(lifetime_ms: int = 0) -> SaslSession:
    return SaslSession(("SCRAM-SHA-512", "PLAIN"), lifetime_ms=lifetime_ms)


def begin(session: SaslSession, mechanism: str = "PLAIN", now_s: float = 0.0) -> bool:
    return session.begin(mechanism, dict, now_s, with_bare_tokens=False)


def allowed(session: SaslSession, now_s: float = 0.0) -> set[int]:
    found = set()
    for key in (PRODUCE, METADATA, HANDSHAKE, API_VERSIONS, AUTHENTICATE):
        try:
            session.check(key, now_s)
        except ProtocolError:
            continue
        found.add(key)
    return found


def test_before_the_log_in_only_versions_and_the_handshake_can_be_asked_for() -> None:
    assert allowed(new_session()) == {API_VERSIONS, HANDSHAKE}


def test_during_the_log_in_only_tokens_are_taken() -> None:
    session = new_session()
    assert begin(session)
    assert allowed(session) == {AUTHENTICATE}


def test_after_the_log_in_everything_can_be_asked_for() -> None:
    session = new_session()
    begin(session)
    session.complete("ann", 0.0)
    assert allowed(session, 1e9) == {PRODUCE, METADATA, HANDSHAKE, API_VERSIONS, AUTHENTICATE}
    assert session.principal == "User:ann"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "", "plain"])
def test_a_mechanism_that_is_not_offered_ends_the_session(mechanism: str) -> None:
    session = new_session()
    assert not begin(session, mechanism)
    assert session.has_failed
    assert allowed(session) == set()


def test_nobody_is_anybody_before_the_log_in_is_complete() -> None:
    session = new_session()
    begin(session)
    assert session.principal == ANONYMOUS
    session.fail()
    assert session.principal == ANONYMOUS
    assert allowed(session) == set()


def test_when_its_time_is_over_a_session_can_only_be_renewed() -> None:
    session = new_session(lifetime_ms=5_000)
    begin(session)
    session.complete("ann", 10.0)
    assert PRODUCE in allowed(session, 15.0)
    assert allowed(session, 15.1) == {HANDSHAKE}
    assert session.may_begin(15.1)
    assert begin(session, now_s=15.1)
    session.complete("ann", 15.2)
    assert PRODUCE in allowed(session, 20.0)


def test_a_session_is_not_renewed_more_often_than_once_a_second() -> None:
    session = new_session()
    begin(session, now_s=10.0)
    assert not session.may_begin(10.5)
    session.complete("ann", 10.5)
    assert not session.may_begin(10.0 + RELOGIN_INTERVAL_S_MIN / 2)
    assert session.may_begin(10.0 + RELOGIN_INTERVAL_S_MIN)


def test_a_session_stays_with_its_user_and_its_mechanism() -> None:
    session = new_session()
    begin(session)
    session.complete("ann", 0.0)
    assert not begin(session, "SCRAM-SHA-512", 5.0)
    other = new_session()
    begin(other)
    other.complete("ann", 0.0)
    assert begin(other, now_s=5.0)
    with pytest.raises(LoginFailed, match="User:ann can't become User:bob"):
        other.complete("bob", 5.0)


def test_more_tokens_than_any_log_in_needs_are_refused() -> None:
    session = new_session()
    begin(session)
    for _ in range(STEP_COUNT_MAX):
        session.next_exchange()
    with pytest.raises(LoginFailed, match="tokens were sent"):
        session.next_exchange()
