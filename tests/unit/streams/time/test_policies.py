"""Policies of watermarks are checked when they are made, and travel as JSON."""

from __future__ import annotations

import pytest

from headrace.errors import PipelineError
from headrace.streams.time.policies import (
    Policy,
    adaptive,
    bounded,
    declared,
    declared_column,
    from_json,
    perfect,
    to_json,
)


@pytest.mark.parametrize(
    "policy",
    [
        bounded("10 seconds"),
        bounded("0 seconds", idle_after="5 minutes"),
        adaptive(),
        adaptive(quantile=0.5, at_least="0 seconds", at_most="1 day", idle_after="1 minute"),
        declared("complete_until"),
        declared("complete_until", partitions=6, idle_after="1 hour"),
        perfect(),
    ],
)
def test_a_policy_comes_back_from_json_as_it_was(policy: Policy) -> None:
    assert from_json(to_json(policy)) == policy


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "3", '{"policy": "guess"}', '{"policy": "bounded", "delay": 1}']
)
def test_json_that_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(PipelineError, match="no policy of a watermark"):
        from_json(text)


@pytest.mark.parametrize("quantile", [0, 1, 99, -0.5, True, "0.9", float("nan")])
def test_a_quantile_lies_between_0_and_1(quantile: float) -> None:
    with pytest.raises(PipelineError, match="must be between 0 and 1"):
        adaptive(quantile=quantile)


def test_bounds_the_wrong_way_round_are_refused() -> None:
    with pytest.raises(PipelineError, match="at_least is 2 hours, more than at_most, 1 hour"):
        adaptive(at_least="2 hours")


def test_nothing_is_idle_at_once() -> None:
    with pytest.raises(PipelineError, match="idle_after is '0 seconds'"):
        bounded("1 second", idle_after="0 seconds")


@pytest.mark.parametrize("column", ["", None, 3])
def test_what_sources_declare_is_in_a_column_that_has_a_name(column: str) -> None:
    with pytest.raises(PipelineError, match="name the column by which sources say how far they are"):
        declared(column)


def test_a_watermark_waits_for_at_least_one_partition() -> None:
    with pytest.raises(PipelineError, match="at least one partition"):
        declared("complete_until", partitions=0)


def test_only_a_declared_watermark_has_a_column() -> None:
    assert declared_column(declared("complete_until")) == "complete_until"
    assert [declared_column(each) for each in (perfect(), bounded("1 second"), None)] == [None] * 3
