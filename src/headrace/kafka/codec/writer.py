"""Compile a writer for one version of a message.

A writer appends the bytes of a value to a list of parts. Record batches are appended as they are, so that
a fetched megabyte is not copied once more; the server hands the parts to the socket together.

Runs of fields with a fixed size are written by one `struct` call. A tagged field that is None is left out.
"""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from headrace.kafka.codec.shape import FIXED_FORMATS, FieldShape, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from headrace.kafka.codec.shape import Entity, EntityShape

    Parts = list[bytes]
    Writer = Callable[[Any, Parts], None]

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_SMALL_VARINTS: Final = tuple(bytes((value,)) for value in range(0x80))


@lru_cache(maxsize=1024)
def compile_writer(schema: Entity) -> Writer:
    """Return a writer of `schema` for any value that has its fields as attributes."""
    shape = shape_of(schema)
    steps = _fields_writers(shape)
    if shape.is_flexible:
        steps.append(_tags_writer(shape))

    def write_entity(value: Any, parts: Parts) -> None:
        for step in steps:
            step(value, parts)

    return write_entity


def varint(value: int) -> bytes:
    """Return the bytes of an unsigned varint."""
    if value < 0x80:
        return _SMALL_VARINTS[value]
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def _fields_writers(shape: EntityShape) -> list[Writer]:
    steps: list[Writer] = []
    run: list[FieldShape] = []
    for field in shape.fields:
        if field.fixed_format is not None:
            run.append(field)
            continue
        if run:
            steps.append(_run_writer(run))
            run = []
        steps.append(_single_writer(field, shape.is_flexible))
    if run:
        steps.append(_run_writer(run))
    return steps


def _run_writer(run: list[FieldShape]) -> Writer:
    pack = Struct(">" + "".join(FIXED_FORMATS[field.kind] for field in run)).pack
    get = attrgetter(*(_attribute(field) for field in run))
    if len(run) == 1:
        return lambda value, parts: parts.append(pack(get(value)))
    return lambda value, parts: parts.append(pack(*get(value)))


def _attribute(field: FieldShape) -> str:
    return f"{field.name}.value" if field.kind == "error_code" else field.name


def _single_writer(field: FieldShape, is_flexible: bool) -> Writer:
    write = _value_writer(field, is_flexible)
    get = attrgetter(field.name)
    return lambda value, parts: write(get(value), parts)


def _tags_writer(shape: EntityShape) -> Writer:
    known = [(varint(field.tag or 0), field.name, _value_writer(field, True)) for field in shape.tagged]
    if not known:
        return lambda _value, parts: parts.append(b"\0")

    def write_tags(value: Any, parts: Parts) -> None:
        count = 0
        chunks: Parts = []
        for tag, name, write in known:
            tagged_value = getattr(value, name)
            if tagged_value is not None:
                data: Parts = []
                write(tagged_value, data)
                chunks += [tag, varint(sum(map(len, data))), *data]
                count += 1
        parts.append(varint(count))
        parts += chunks

    return write_tags


def _value_writer(field: FieldShape, is_flexible: bool) -> Writer:
    element = _element_writer(field, is_flexible)
    return _array_writer(element, is_flexible) if field.is_array else element


def _array_writer(element: Writer, is_flexible: bool) -> Writer:
    def write_array(values: tuple[Any, ...] | None, parts: Parts) -> None:
        length = -1 if values is None else len(values)
        parts.append(varint(length + 1) if is_flexible else _INT32.pack(length))
        for value in values or ():
            element(value, parts)

    return write_array


def _element_writer(field: FieldShape, is_flexible: bool) -> Writer:
    if field.kind == "entity":
        assert field.entity is not None  # shape_of gives every entity field its class
        write = compile_writer(field.entity)
        return (
            _nullable_entity_writer(write)
            if field.is_nullable and not field.is_array and field.tag is None
            else write
        )
    if field.kind == "uuid":
        return _write_uuid
    if field.kind in FIXED_FORMATS:
        pack = Struct(">" + FIXED_FORMATS[field.kind]).pack
        return lambda value, parts: parts.append(pack(value))
    if is_flexible:
        return _write_compact_string if field.kind == "string" else _write_compact_bytes
    return _write_string if field.kind == "string" else _write_bytes


def _nullable_entity_writer(write: Writer) -> Writer:
    def write_nullable_entity(value: Any, parts: Parts) -> None:
        parts.append(b"\xff" if value is None else b"\x01")
        if value is not None:
            write(value, parts)

    return write_nullable_entity


def _write_uuid(value: UUID | None, parts: Parts) -> None:
    parts.append(bytes(16) if value is None else value.bytes)


def _write_compact_string(value: str | None, parts: Parts) -> None:
    _write_compact_bytes(None if value is None else value.encode(), parts)


def _write_compact_bytes(value: bytes | None, parts: Parts) -> None:
    if value is None:
        parts.append(b"\0")
    else:
        parts.append(varint(len(value) + 1))
        parts.append(value)


def _write_string(value: str | None, parts: Parts) -> None:
    if value is None:
        parts.append(_INT16.pack(-1))
    else:
        data = value.encode()
        parts.append(_INT16.pack(len(data)))
        parts.append(data)


def _write_bytes(value: bytes | None, parts: Parts) -> None:
    if value is None:
        parts.append(_INT32.pack(-1))
    else:
        parts.append(_INT32.pack(len(value)))
        parts.append(value)
