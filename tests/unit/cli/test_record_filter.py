"""Which records `headrace consume` prints."""

from __future__ import annotations

import pytest

from headrace.cli.record_filter import Condition, RecordFilter
from headrace.errors import ConfigError

RICH = b'{"amount": 150, "currency": "EUR", "items": [{"price": 120}]}'
POOR = b'{"amount": 50, "currency": "EUR", "items": []}'


@pytest.mark.parametrize(
    "text",
    ["@.amount > 100", "@.amount > 100 && @.currency == 'EUR'", "$.items[?@.price > 100]", "$.items[0]"],
)
def test_a_condition_lets_values_pass_that_meet_it(text: str) -> None:
    condition = Condition.parse(text)
    assert condition.holds(RICH)
    assert not condition.holds(POOR)


@pytest.mark.parametrize("value", [None, b"", b"no json", b"\xff", b"3", b"[" * 100_000])
def test_a_value_without_what_is_asked_for_does_not_pass(value: bytes | None) -> None:
    assert not Condition.parse("@.amount > 100").holds(value)


@pytest.mark.parametrize("text", ["", "@.a >", "$[", "open('x')", "$.a | $.b"])
def test_a_condition_that_can_not_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="--where"):
        Condition.parse(text)


def test_keys_and_conditions_must_both_pass() -> None:
    record_filter = RecordFilter(keys=frozenset({b"a"}), condition=Condition.parse("@.amount > 100"))
    assert record_filter.passes(b"a", RICH)
    assert not record_filter.passes(b"b", RICH)
    assert not record_filter.passes(b"a", POOR)
    assert not record_filter.passes(None, RICH)
    assert RecordFilter().passes(None, None)
