"""The compiled readers and writers, held against kio's for every API and version on offer."""

from __future__ import annotations

import datetime as dt
import io
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from headrace.errors import ProtocolError
from headrace.kafka import api as offered
from headrace.kafka.codec.frame import (
    LARGE_PART_BYTES_MIN,
    read_request_header,
    request_reader,
    response_writer,
)
from headrace.kafka.codec.reader import (
    ARRAY_LENGTH_MAX,
    ELEMENT_COUNT_MAX,
    STRING_BYTES_MAX,
    compile_reader,
    read_varint,
)
from headrace.kafka.codec.shape import EntityShape, FieldShape, shape_of
from headrace.kafka.codec.writer import compile_writer, varint
from headrace.kafka.handlers.api_versions import unsupported_api_versions
from headrace.kafka.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from headrace.kafka.messages.metadata import MetadataRequest
from headrace.kafka.messages.offset_fetch import OffsetFetchRequest
from headrace.kafka.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

VERSIONS = [
    pytest.param(api.key, version, id=f"{api.request.__name__.removesuffix('Request')}-{version}")
    for api in offered.APIS.values()
    for version in range(api.version_first, api.version_last + 1)
]
EACH_VERSION = settings(max_examples=8)

SIMPLE_KINDS: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "error_code": st.sampled_from(ErrorCode),
    "string": st.text(max_size=200),
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
    "uuid": st.none() | st.uuids().filter(lambda value: value.int != 0),
}
TIMES: dict[str, st.SearchStrategy[Any]] = {
    "timedelta_i32": st.integers(0, 2**31 - 1).map(lambda ms: dt.timedelta(milliseconds=ms)),
    "timedelta_i64": st.integers(0, 2**40).map(lambda ms: dt.timedelta(milliseconds=ms)),
    "datetime_i64": st.integers(0, 2**41).map(lambda ms: dt.datetime.fromtimestamp(ms / 1000, tz=dt.UTC)),
}


@cache
def kio_entities(schema: Any) -> st.SearchStrategy[Any]:
    """Any value of one of kio's schemas."""
    by_name = {shape.name: shape for shape in (*shape_of(schema).fields, *shape_of(schema).tagged)}
    return st.builds(schema, **{field.name: _field_values(field, by_name) for field in fields(schema)})


def _field_values(field: Any, by_name: dict[str, FieldShape]) -> st.SearchStrategy[Any]:
    kafka_type = field.metadata.get("kafka_type")
    if kafka_type in TIMES:
        return TIMES[kafka_type]
    shape = by_name[field.name]
    element = kio_entities(shape.entity) if shape.kind == "entity" else SIMPLE_KINDS[shape.kind]
    values = st.lists(element, max_size=3).map(tuple) if shape.is_array else element
    return st.none() | values if shape.is_nullable and shape.tag is None else values


def kio_bytes(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def our_value(value: Any) -> Any:
    """What kio's value is called here: milliseconds for times, plain numbers for errors in requests."""
    if isinstance(value, dt.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, dt.datetime):
        return round(value.timestamp() * 1000)
    return value


def is_same(ours: Any, theirs: Any) -> bool:
    """Whether our message has all that kio's entity has."""
    if is_dataclass(theirs):
        names = {field.name: _our_name(field) for field in fields(theirs)}
        return all(is_same(getattr(ours, name), getattr(theirs, kio)) for kio, name in names.items())
    if isinstance(theirs, tuple):
        return len(ours) == len(theirs) and all(map(is_same, ours, theirs))
    return bool(ours == our_value(theirs))


def _our_name(field: Any) -> str:
    return f"{field.name}_ms" if field.metadata.get("kafka_type") in TIMES else field.name


def as_response(entity: Any) -> Any:
    """A kio entity under our names, with tagged fields left out where they are at their defaults."""
    if isinstance(entity, tuple):
        return tuple(map(as_response, entity))
    if not is_dataclass(entity):
        return our_value(entity)
    values = {}
    for field in fields(entity):
        value = getattr(entity, field.name)
        is_left_out = "tag" in field.metadata and value == _default(field)
        values[_our_name(field)] = None if is_left_out else as_response(value)
    return SimpleNamespace(**values)


def _default(field: Any) -> Any:
    return () if field.default is MISSING else field.default


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
@EACH_VERSION
@given(data=st.data())
def test_a_request_written_by_kio_reads_as_the_same_values(
    api_key: int, version: int, data: st.DataObject
) -> None:
    schema = load_request_schema(api_key, version)
    theirs = data.draw(kio_entities(schema))
    ours, position = compile_reader(schema, offered.APIS[api_key].request)(kio_bytes(theirs), 0)
    assert is_same(ours, theirs)
    assert position == len(kio_bytes(theirs))


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
@EACH_VERSION
@given(data=st.data())
def test_a_response_is_written_byte_for_byte_as_kio_writes_it(
    api_key: int, version: int, data: st.DataObject
) -> None:
    schema: Any = load_response_schema(api_key, version)
    theirs = data.draw(kio_entities(schema))
    parts: list[bytes] = []
    compile_writer(schema)(as_response(theirs), parts)
    assert b"".join(parts) == kio_bytes(theirs)


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
@EACH_VERSION
@given(data=st.data())
def test_a_request_cut_short_is_a_protocol_error(api_key: int, version: int, data: st.DataObject) -> None:
    schema = load_request_schema(api_key, version)
    body = kio_bytes(data.draw(kio_entities(schema)))
    end = data.draw(st.integers(0, max(0, len(body) - 1)))
    read = compile_reader(schema, offered.APIS[api_key].request)
    if body:
        with pytest.raises(ProtocolError):
            read(body[:end], 0)


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
@EACH_VERSION
@given(data=st.data())
def test_random_bytes_read_as_a_request_or_are_a_protocol_error(
    api_key: int, version: int, data: st.DataObject
) -> None:
    schema = load_request_schema(api_key, version)
    body = bytearray(kio_bytes(data.draw(kio_entities(schema))))
    flips = data.draw(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=8))
    for position, value in flips:
        if position < len(body):
            body[position] = value
    read = compile_reader(schema, offered.APIS[api_key].request)
    for candidate in (bytes(body), data.draw(st.binary(max_size=100))):
        try:
            read(candidate, 0)
        except ProtocolError:
            continue


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_each_response_class_has_the_fields_of_each_version(api_key: int, version: int) -> None:
    response = _response_class(offered.APIS[api_key].request)
    assert _missing(shape_of(load_response_schema(api_key, version)), response) == []


def _response_class(request: type[Any]) -> type[Any]:
    name = request.__name__.removesuffix("Request") + "Response"
    found = getattr(import_module(request.__module__), name)
    assert isinstance(found, type)
    return found


def _missing(shape: EntityShape, ours: type[Any]) -> list[str]:
    hints = get_type_hints(ours)
    missing = []
    for field in (*shape.fields, *shape.tagged):
        if field.name not in hints:
            missing.append(f"{ours.__name__}.{field.name}")
        elif field.kind == "entity":
            missing += _missing(shape_of(field.entity), _dataclass_in(hints[field.name]))
    return missing


def _dataclass_in(hint: Any) -> type[Any]:
    while not is_dataclass(hint):
        hint = next(each for each in get_args(hint) if each is not type(None))
    assert isinstance(hint, type)
    return hint


def test_fields_that_a_version_lacks_have_kafkas_default() -> None:
    read = compile_reader(load_request_schema(3, 1), MetadataRequest)
    request, _ = read(b"\xff\xff\xff\xff", 0)
    assert request == MetadataRequest(topics=None, allow_auto_topic_creation=True)


def test_fields_that_a_version_lacks_are_dropped_from_a_response() -> None:
    response = ProduceResponse(
        responses=(
            TopicProduceResponse(
                name="orders",
                topic_id=UUID(int=7),
                partition_responses=(
                    PartitionProduceResponse(index=3, base_offset=42, error_message="none of version 3"),
                ),
            ),
        )
    )
    oldest: Any
    newest: Any
    oldest, newest = (
        entity_reader(load_response_schema(0, version))(
            b"".join(response_writer(0, version).write(1, response))[8 + header :], 0
        )[0]
        for version, header in ((3, 0), (13, 1))
    )
    assert oldest.responses[0].name == "orders"
    assert newest.responses[0].topic_id == UUID(int=7)
    assert not hasattr(oldest.responses[0].partition_responses[0], "error_message")


@pytest.mark.parametrize("length", [ARRAY_LENGTH_MAX + 1, 2**31 - 1, -2])
def test_an_array_longer_than_its_frame_is_refused_before_anything_is_allocated(length: int) -> None:
    read = compile_reader(load_request_schema(3, 1), MetadataRequest)
    with pytest.raises(ProtocolError, match=r"an array|has a length"):
        read(length.to_bytes(4, "big", signed=True) + b"\0" * 50, 0)


def test_an_array_with_more_elements_than_the_maximum_is_refused_even_if_its_bytes_are_there() -> None:
    read = compile_reader(load_request_schema(3, 1), MetadataRequest)
    with pytest.raises(ProtocolError, match="is the most"):
        read((ARRAY_LENGTH_MAX + 1).to_bytes(4, "big") + b"\0\0" * (ARRAY_LENGTH_MAX + 1), 0)


def test_many_small_arrays_together_have_a_maximum_too() -> None:
    read = compile_reader(load_request_schema(9, 8), OffsetFetchRequest)
    topic = b"\x01\x01\x00"
    group = b"\x02g" + varint(90_001) + topic * 90_000 + b"\0"
    request, _ = read(b"\x03" + group * 2 + b"\0\0", 0)
    assert sum(len(each.topics) for each in request.groups) == 180_000
    read(b"\x03" + group * 2 + b"\0\0", 0)
    with pytest.raises(ProtocolError, match=f"more than {ELEMENT_COUNT_MAX} elements"):
        read(b"\x04" + group * 3 + b"\0\0", 0)


def test_a_string_has_the_same_maximum_in_versions_that_could_hold_a_longer_one() -> None:
    read = compile_reader(load_request_schema(3, 9), MetadataRequest)

    def body(size: int) -> bytes:
        return b"\x02" + varint(size + 1) + b"x" * size + b"\0\0\0\0\0"

    request, _ = read(body(STRING_BYTES_MAX), 0)
    assert len(request.topics[0].name) == STRING_BYTES_MAX
    with pytest.raises(ProtocolError, match="32767 is the most"):
        read(body(STRING_BYTES_MAX + 1), 0)


def test_an_answer_of_very_many_fields_has_few_parts_and_large_records_are_not_copied() -> None:
    large = bytes(LARGE_PART_BYTES_MIN)
    partitions = [
        PartitionData(partition_index=index, high_watermark=1, records=b"x") for index in range(50_000)
    ]
    partitions[100] = replace(partitions[100], records=large)
    response = FetchResponse(
        responses=(FetchableTopicResponse(topic="t", topic_id=None, partitions=tuple(partitions)),)
    )
    parts = response_writer(1, 12).write(1, response)
    unjoined: list[bytes] = []
    compile_writer(load_response_schema(1, 12))(response, unjoined)
    assert len(parts) < 100 < len(unjoined) / 1_000
    assert b"".join(parts)[9:] == b"".join(unjoined)
    assert any(part is large for part in parts)


@given(st.integers(0, 2**32 - 1))
def test_varints_read_back(value: int) -> None:
    assert read_varint(varint(value), 0) == (value, len(varint(value)))


def test_a_varint_without_an_end_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="longer than 5 bytes"):
        read_varint(b"\xff" * 20, 0)


def test_a_header_shorter_than_its_fields_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="shorter than its header"):
        read_request_header(b"\0\x03\0\x01")


def test_a_client_id_may_be_null() -> None:
    assert read_request_header(b"\0\x03\0\x01\0\0\0\x09\xff\xff").client_id is None


def test_tags_of_a_flexible_header_are_stepped_over() -> None:
    header = b"\0\x03\0\x0c\0\0\0\x09\0\x02me" + b"\x01\x05\x03abc"
    body = b"\x00\x01\x00\x00"
    frame = header + body
    request = request_reader(3, 12, MetadataRequest).read(frame, read_request_header(frame))
    assert request == MetadataRequest(topics=None, allow_auto_topic_creation=True)


@pytest.mark.parametrize("version", range(5))
def test_the_answer_to_api_versions_never_has_tags_in_its_header(version: int) -> None:
    data = b"".join(response_writer(18, version).write(77, unsupported_api_versions(offered.OFFERED)))
    assert data[:8] == (len(data) - 4).to_bytes(4, "big") + (77).to_bytes(4, "big")
    assert data[8:10] == (35).to_bytes(2, "big")
