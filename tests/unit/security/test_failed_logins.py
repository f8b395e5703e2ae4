"""Whoever fails often waits longer; whoever stops failing is forgiven."""

from __future__ import annotations

import pytest

from headrace.security import failed_logins
from headrace.security.failed_logins import DELAY_S, DELAY_S_MAX, FORGIVEN_AFTER_S, FailedLogins


def test_each_failure_from_an_address_waits_longer_up_to_a_maximum() -> None:
    failures = FailedLogins()
    delays = [failures.note("10.0.0.7", second)[1] for second in range(50)]
    assert delays[:2] == [DELAY_S, 2 * DELAY_S]
    assert delays == sorted(delays)
    assert delays[-1] == DELAY_S_MAX


def test_another_address_does_not_wait_for_what_one_has_done() -> None:
    failures = FailedLogins()
    for second in range(50):
        failures.note("10.0.0.7", second)
    assert failures.note("10.0.0.8", 50) == (1, DELAY_S)


def test_failures_are_forgiven_after_a_while_without_any() -> None:
    failures = FailedLogins()
    failures.note("10.0.0.7", 0.0)
    failures.note("10.0.0.7", 1.0)
    assert failures.note("10.0.0.7", 2.0 + FORGIVEN_AFTER_S) == (1, DELAY_S)


def test_the_address_that_failed_longest_ago_is_forgotten_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failed_logins, "ADDRESS_COUNT_MAX", 2)
    failures = FailedLogins()
    for host in ("a", "b", "a", "c"):
        failures.note(host, 1.0)
    assert failures.note("a", 1.0)[0] == 3
    assert failures.note("b", 1.0)[0] == 1
