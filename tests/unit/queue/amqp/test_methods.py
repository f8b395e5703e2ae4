"""Methods are read and written as the library pamqp does, within limits."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp.base import Frame

from headrace.errors import QueueRefused
from headrace.queue.amqp.methods import read_method, write_method

METHODS: list[type[Frame]] = [*cast("dict[int, type[Frame]]", commands.INDEX_MAPPING).values()]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 255),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**64 - 1),
    "shortstr": st.text(max_size=60),
    "longstr": st.binary(max_size=300),
    "table": st.dictionaries(
        st.text(max_size=20),
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
        max_size=5,
    ),
}


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.name)
@given(data=st.data())
def test_every_method_comes_back_as_it_was_written(kind: type[Frame], data: st.DataObject) -> None:
    names = kind.attributes()
    values = [data.draw(VALUES[kind.amqp_type(name)]) for name in names]
    method = read_method(write_method(kind, *values))
    assert type(method) is kind
    assert [getattr(method, name) for name in names] == values


def test_what_the_library_writes_is_read() -> None:
    written = commands.Queue.Declare(queue="mails", durable=True, nowait=True, arguments={"x-max-length": 10})
    method = read_method(b"\x00\x32\x00\x0a" + written.marshal())
    assert isinstance(method, commands.Queue.Declare)
    assert dict(method) == dict(written)


def test_what_we_write_the_library_reads() -> None:
    payload = write_method(commands.Queue.DeclareOk, "mails", 7, 2)
    method = commands.Queue.DeclareOk()
    method.unmarshal(payload[4:])
    assert (method.queue, method.message_count, method.consumer_count) == ("mails", 7, 2)


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.name)
def test_a_method_that_is_cut_short_is_refused(kind: type[Frame]) -> None:
    samples: dict[str, Any] = {"shortstr": "ab", "longstr": b"abc", "table": {"a": 1}}
    payload = write_method(kind, *(samples.get(kind.amqp_type(name), 1) for name in kind.attributes()))
    for size in range(len(payload)):
        with pytest.raises(QueueRefused) as refused:
            read_method(payload[:size])
        assert refused.value.closes_connection


def test_an_unknown_method_is_not_implemented() -> None:
    with pytest.raises(QueueRefused, match=r"there is no method 60\.99") as refused:
        read_method(b"\x00\x3c\x00\x63")
    assert refused.value.reply_code == 540


def test_names_that_the_library_would_refuse_are_read() -> None:
    payload = write_method(commands.Queue.Declare, 0, "a b\n%", False, False, False, False, False, {})
    method = read_method(payload)
    assert isinstance(method, commands.Queue.Declare)
    assert method.queue == "a b\n%"


def test_bytes_that_are_not_utf_8_come_back_as_they_were() -> None:
    name = b"\xff\xfe".decode(errors="surrogateescape")
    payload = write_method(commands.Basic.Cancel, name, False)
    assert b"\x02\xff\xfe" in payload
    method = read_method(payload)
    assert isinstance(method, commands.Basic.Cancel)
    assert method.consumer_tag == name
