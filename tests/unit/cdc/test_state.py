"""What a capture knows of itself: read back as it was written, and only ever going on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cdc.state import CaptureState, Phase, TableSnapshot, from_json, to_json
from headrace.errors import CaptureFailed

tables = st.builds(
    TableSnapshot,
    schema=st.text(max_size=5),
    table=st.text(max_size=5),
    where=st.none() | st.text(max_size=5),
    after=st.none() | st.lists(st.text(max_size=5)).map(tuple),
    row_count=st.integers(0, 2**40),
    estimate=st.integers(0, 2**40),
    is_requested=st.booleans(),
)
keys = st.lists(st.lists(st.text(max_size=5), max_size=3).map(tuple), max_size=3).map(tuple)
states = st.builds(
    CaptureState,
    slot=st.text(max_size=5),
    system=st.text(max_size=5),
    phase=st.sampled_from(Phase),
    lsn=st.integers(0, 2**64 - 1),
    event_count=st.integers(0, 2**60),
    tables=st.lists(tables, max_size=3).map(tuple),
    requests=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    owns_publication=st.booleans(),
    announced=st.none() | st.dictionaries(st.integers(1, 2**32 - 1), st.text(max_size=5), max_size=3),
    keys=st.none() | st.dictionaries(st.integers(1, 2**32 - 1), keys, max_size=3),
)

STATE = CaptureState(slot="s", system="1", phase=Phase.STREAMING, lsn=100)
ORDERS = TableSnapshot(schema="public", table="orders")
USERS = TableSnapshot(schema="public", table="users")


@given(states)
def test_a_state_is_read_back_as_it_was_written(state: CaptureState) -> None:
    assert from_json(to_json(state), "topic") == state


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b'{"version": 1}', b'{"version": 1, "slot": 7}', b"null"]
)
def test_what_somebody_else_wrote_is_refused(text: bytes) -> None:
    with pytest.raises(CaptureFailed, match=r"shop\.capture is none that a capture writes"):
        from_json(text, "shop.capture")


def test_what_a_newer_version_wrote_is_refused() -> None:
    with pytest.raises(CaptureFailed, match="written by a newer Headrace"):
        from_json(to_json(STATE).replace(b'"version":1', b'"version":2'), "shop.capture")


def test_the_position_never_goes_back() -> None:
    assert STATE.advanced(50, 3).lsn == 100
    assert STATE.advanced(150, 3) == CaptureState(
        slot="s", system="1", phase=Phase.STREAMING, lsn=150, event_count=3
    )


def test_chunks_lead_through_the_tables_one_after_the_other() -> None:
    state = STATE.with_request("a", (ORDERS, USERS)).with_chunk(("10",), 10).with_chunk(("20",), 9)
    assert state.tables[0].after == ("20",)
    assert state.tables[0].row_count == 19
    [users] = state.with_chunk(None, 1).tables
    assert (users.name, users.is_requested) == (USERS.name, True)
    assert state.without_first_table().tables == (users,)
    assert state.with_chunk(None, 1).with_chunk(None, 0).tables == ()


def test_a_request_is_taken_in_once() -> None:
    state = STATE.with_request("a", (ORDERS,))
    assert state.with_request("a", (ORDERS,)) is state
    assert len(state.with_request("b", (ORDERS,)).tables) == 2
