from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cdc.messages import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    RelationColumn,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Update,
)
from headrace.cdc.pgoutput import decode, xid_in_stream
from headrace.errors import ProtocolError
from headrace.testing import pgoutput as pg

u8 = st.integers(0, 2**8 - 1)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
times_us = st.integers(-(2**62), 2**62)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
rows = st.lists(st.none() | st.just(UNCHANGED) | st.binary(max_size=12), max_size=6)
columns = st.builds(
    RelationColumn,
    name=names,
    type_oid=u32,
    modifier=st.integers(-(2**31), 2**31 - 1),
    is_identity=st.booleans(),
)
relations = st.builds(
    Relation,
    oid=u32,
    schema=names.map(lambda name: name or "pg_catalog"),
    name=names,
    identity=st.sampled_from("dinf"),
    columns=st.lists(columns, max_size=4).map(tuple),
)
SAMPLES: tuple[tuple[bytes, Message], ...] = (
    (pg.begin(final_lsn=7, commit_us=8, xid=9), Begin(final_lsn=7, commit_us=8, xid=9)),
    (pg.commit(commit_lsn=1, end_lsn=2, commit_us=3), Commit(commit_lsn=1, end_lsn=2, commit_us=3)),
    (pg.origin(commit_lsn=4, name="far"), Origin(commit_lsn=4, name="far")),
    (pg.type_(oid=5, schema="public", name="mood"), Type(oid=5, schema="public", name="mood")),
    (
        pg.truncate([1, 2], cascade=True),
        Truncate(relations=(1, 2), cascade=True, restart_identity=False),
    ),
    (
        pg.message("pfx", b"hello", lsn=5, is_transactional=False),
        LogicalMessage(is_transactional=False, lsn=5, prefix="pfx", content=b"hello"),
    ),
    (pg.insert(3, [b"1", None]), Insert(3, [b"1", None])),
    (pg.update(3, [b"1", UNCHANGED], key=[b"0", None]), Update(3, [b"0", None], False, [b"1", UNCHANGED])),
    (pg.delete(3, old=[b"1", b"x"]), Delete(3, [b"1", b"x"], True)),
    (pg.stream_start(6, is_first=True), StreamStart(xid=6, is_first=True)),
    (pg.stream_stop(), StreamStop()),
    (
        pg.stream_commit(xid=6, commit_lsn=1, end_lsn=2, commit_us=3),
        StreamCommit(xid=6, commit_lsn=1, end_lsn=2, commit_us=3),
    ),
    (pg.stream_abort(6, 7), StreamAbort(xid=6, subxid=7)),
    (pg.stream_abort(6, 7, is_parallel=True), StreamAbort(xid=6, subxid=7)),
)


@pytest.mark.parametrize(("payload", "message"), SAMPLES, ids=lambda each: type(each).__name__)
def test_each_kind_of_message_is_understood(payload: bytes, message: Message) -> None:
    assert decode(payload, streaming=False) == message
    assert decode(memoryview(payload), streaming=False) == message


@given(relations, st.none() | u32)
def test_a_relation_comes_back_as_it_was(relation: Relation, xid: int | None) -> None:
    assert decode(pg.relation(relation, xid), streaming=xid is not None) == relation


@given(u32, rows, rows, st.sampled_from(["key", "old", "neither"]), st.none() | u32)
def test_rows_come_back_as_they_were(
    oid: int, new: list[bytes | None], old: list[bytes | None], which: str, xid: int | None
) -> None:
    is_streamed = xid is not None
    before = {} if which == "neither" else {which: old}
    is_whole = which == "old"
    assert decode(pg.insert(oid, [*new], xid), streaming=is_streamed) == Insert(oid, [*new])
    update = decode(pg.update(oid, [*new], xid=xid, **before), streaming=is_streamed)  # type: ignore[arg-type]
    assert update == Update(oid, None if which == "neither" else [*old], is_whole, [*new])
    if before:
        delete = decode(pg.delete(oid, xid=xid, **before), streaming=is_streamed)  # type: ignore[arg-type]
        assert delete == Delete(oid, [*old], is_whole)


@given(u64, times_us, u32)
def test_times_count_from_1970(final_lsn: int, commit_us: int, xid: int) -> None:
    begin = Begin(final_lsn=final_lsn, commit_us=commit_us, xid=xid)
    assert decode(pg.begin(final_lsn=final_lsn, commit_us=commit_us, xid=xid), streaming=False) == begin


@pytest.mark.parametrize(
    "payload", [payload for payload, _ in SAMPLES], ids=lambda payload: payload[:1].decode()
)
def test_a_message_that_is_cut_short_or_goes_on_is_refused(payload: bytes) -> None:
    name = type(decode(payload, streaming=False)).__name__.removeprefix("Logical")
    for damaged in [payload[:length] for length in range(1, len(payload))] + [payload + b"\0"]:
        if damaged == payload or (payload[:1] == b"A" and len(damaged) == 9):
            continue
        with pytest.raises(ProtocolError, match=rf"a message {name} of pgoutput, {len(damaged)} bytes long"):
            decode(damaged, streaming=False)


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_a_message_or_an_error_of_the_protocol(payload: bytes, is_streamed: bool) -> None:
    with suppress(ProtocolError):
        decode(payload, streaming=is_streamed)


def test_an_error_names_the_position() -> None:
    with pytest.raises(ProtocolError, match=r"Insert .* at byte 8: 'x' is no kind of column"):
        decode(b"I" + bytes(4) + b"N" + b"\0\1x", streaming=False)


@pytest.mark.parametrize(
    ("payload", "advice"),
    [
        (b"I" + bytes(4) + b"N\0\1b\0\0\0\1x", "without binary"),
        (b"P" + bytes(30), "without two_phase"),
        (b"?", "versions 1 to 4"),
        (b"", "empty"),
    ],
)
def test_what_was_not_asked_for_says_what_to_ask_for(payload: bytes, advice: str) -> None:
    with pytest.raises(ProtocolError, match=advice):
        decode(payload, streaming=False)


def test_a_message_in_a_stream_says_whose_it_is() -> None:
    assert xid_in_stream(pg.insert(1, [b"x"], xid=77)) == 77
    assert xid_in_stream(pg.origin(commit_lsn=1, name="far")) is None
    with pytest.raises(ProtocolError, match="transaction's number"):
        xid_in_stream(b"I\0\0")
