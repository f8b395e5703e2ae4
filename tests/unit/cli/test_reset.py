"""Where a group is moved to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.offsets import OffsetRange
from headrace.cli.reset import Kind, Target
from headrace.errors import ConfigError

THERE = OffsetRange(10, 50)
NOTHING: dict[str, Any] = {
    "to_earliest": False,
    "to_latest": False,
    "to_offset": None,
    "to_time": None,
    "by_duration": None,
    "shift_by": None,
}


@pytest.mark.parametrize(
    ("target", "now", "since", "expected"),
    [
        (Target("earliest"), 20, None, 10),
        (Target("latest"), 20, None, 50),
        (Target("offset", 30), 20, None, 30),
        (Target("offset", 3), 20, None, 10),
        (Target("offset", 99), 20, None, 50),
        (Target("moment", 0), 20, 25, 25),
        (Target("moment", 0), 20, None, 50),
        (Target("shift", 5), 20, None, 25),
        (Target("shift", -5), 20, None, 15),
        (Target("shift", -50), 20, None, 10),
        (Target("shift", 5), None, None, 15),
    ],
)
def test_a_target_gives_an_offset(target: Target, now: int | None, since: int | None, expected: int) -> None:
    assert target.offset(now, THERE, since) == expected


@given(
    kind=st.sampled_from(("earliest", "latest", "offset", "moment", "shift")),
    number=st.integers(-(2**40), 2**40),
    now=st.none() | st.integers(0, 100),
    since=st.none() | st.integers(0, 100),
)
def test_a_group_is_never_moved_out_of_what_a_partition_has(
    kind: Kind, number: int, now: int | None, since: int | None
) -> None:
    assert THERE.first <= Target(kind, number).offset(now, THERE, since) <= THERE.next


def test_exactly_one_target_must_be_given() -> None:
    with pytest.raises(ConfigError, match="exactly one"):
        Target.parse(**NOTHING)
    with pytest.raises(ConfigError, match="exactly one"):
        Target.parse(**{**NOTHING, "to_earliest": True, "shift_by": 3})
    assert Target.parse(**{**NOTHING, "to_offset": 3}) == Target("offset", 3)
