"""Compile a reader for one version of a message.

A reader turns `(buffer, position)` into `(value, next position)`. Every length is held against the bytes
that remain before anything is allocated, and arrays have a maximum, each and all of a message together: an
element of three bytes becomes an object of a hundred. A string has at most 32,767 bytes in every version, as
in Kafka. Whatever is wrong with the bytes raises ProtocolError.

Runs of fields with a fixed size are read by one `struct` call.
"""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from threading import local
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints
from uuid import UUID

from headrace.errors import ProtocolError
from headrace.kafka.codec.shape import FIXED_FORMATS, FieldShape, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kafka.codec.shape import Entity, EntityShape, MessageClass

    Reader = Callable[[bytes, int], tuple[Any, int]]
    FieldsReader = Callable[[bytes, int, dict[str, Any]], int]

ARRAY_LENGTH_MAX: Final = 100_000
"""More elements than this in one array close the connection."""
ELEMENT_COUNT_MAX: Final = 250_000
"""More elements than this in all arrays of a message close the connection."""
STRING_BYTES_MAX: Final = 32_767
VARINT_BYTES_MAX: Final = 5

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_ZERO_UUID: Final = bytes(16)


class _ElementMeter(local):
    """Counts the elements of all arrays of the message that a thread is reading."""

    count = 0

    def add(self, count: int) -> None:
        """Count further elements."""
        self.count += count
        if self.count > ELEMENT_COUNT_MAX:
            raise ProtocolError(f"more than {ELEMENT_COUNT_MAX} elements in all arrays of the message")


_meter: Final = _ElementMeter()


@lru_cache(maxsize=1024)
def compile_reader(schema: Entity, into: MessageClass) -> Reader:
    """Return a reader of `schema` that makes values of the class `into`."""
    read = _compile_entity(schema, into)

    def read_message(buffer: bytes, position: int) -> tuple[Any, int]:
        _meter.count = 0
        return read(buffer, position)

    return read_message


def _compile_entity(schema: Entity, into: MessageClass) -> Reader:
    shape = shape_of(schema)
    steps = _fields_readers(shape, into)
    if shape.is_flexible:
        steps.append(_tags_reader(shape, into))

    def read_entity(buffer: bytes, position: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        for step in steps:
            position = step(buffer, position, values)
        return into(**values), position

    return read_entity


def read_varint(buffer: bytes, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits."""
    try:
        byte = buffer[position]
        if byte < 0x80:
            return byte, position + 1
        value = 0
        for index in range(VARINT_BYTES_MAX):
            byte = buffer[position + index]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value, position + index + 1
    except IndexError:
        raise ProtocolError("the frame ends within a varint") from None
    raise ProtocolError(f"a varint is longer than {VARINT_BYTES_MAX} bytes")


def read_nullable_string(buffer: bytes, position: int) -> tuple[str | None, int]:
    """Read a string with a length of two bytes, -1 for null."""
    data, position = _read_short_bytes(buffer, position)
    return (None, position) if data is None else (_text(data), position)


def skip_tags(buffer: bytes, position: int) -> int:
    """Step over tagged fields."""
    count, position = read_varint(buffer, position)
    for _ in range(_checked_length(count, buffer, position)):
        _, position = read_varint(buffer, position)
        size, position = read_varint(buffer, position)
        position += _checked_size(size, buffer, position)
    return position


def _fields_readers(shape: EntityShape, into: MessageClass) -> list[FieldsReader]:
    steps: list[FieldsReader] = []
    run: list[FieldShape] = []
    for field in shape.fields:
        if field.fixed_format is not None:
            run.append(field)
            continue
        if run:
            steps.append(_run_reader(run))
            run = []
        steps.append(_single_reader(field, _value_reader(field, shape.is_flexible, into)))
    if run:
        steps.append(_run_reader(run))
    return steps


def _run_reader(run: list[FieldShape]) -> FieldsReader:
    layout = Struct(">" + "".join(FIXED_FORMATS[field.kind] for field in run))
    names = tuple(field.name for field in run)
    unpack_from, size_bytes = layout.unpack_from, layout.size

    def read_run(buffer: bytes, position: int, values: dict[str, Any]) -> int:
        try:
            values.update(zip(names, unpack_from(buffer, position), strict=True))
        except struct_error:
            raise ProtocolError(f"the frame ends before {', '.join(names)}") from None
        return position + size_bytes

    return read_run


def _single_reader(field: FieldShape, read: Reader) -> FieldsReader:
    name = field.name

    def read_single(buffer: bytes, position: int, values: dict[str, Any]) -> int:
        values[name], position = read(buffer, position)
        return position

    return read_single


def _tags_reader(shape: EntityShape, into: MessageClass) -> FieldsReader:
    known = {field.tag: (field.name, _value_reader(field, True, into)) for field in shape.tagged}

    def read_tags(buffer: bytes, position: int, values: dict[str, Any]) -> int:
        count, position = read_varint(buffer, position)
        if count == 0:
            return position
        for _ in range(_checked_length(count, buffer, position)):
            tag, position = read_varint(buffer, position)
            size, position = read_varint(buffer, position)
            end = position + _checked_size(size, buffer, position)
            if tag in known:
                name, read = known[tag]
                values[name], position = read(buffer, position)
                if position != end:
                    raise ProtocolError(f"tagged field {name} is {size} bytes long but its value is not")
            position = end
        return position

    return read_tags


def _value_reader(field: FieldShape, is_flexible: bool, into: MessageClass) -> Reader:
    element = _element_reader(field, is_flexible, into)
    if not field.is_array:
        return element
    return _array_reader(field, element, is_flexible)


def _array_reader(field: FieldShape, element: Reader, is_flexible: bool) -> Reader:
    read_length = _read_compact_length if is_flexible else _read_int32
    is_nullable, name = field.is_nullable, field.name

    def read_array(buffer: bytes, position: int) -> tuple[tuple[Any, ...] | None, int]:
        length, position = read_length(buffer, position)
        if length == -1 and is_nullable:
            return None, position
        if length < 0:
            raise ProtocolError(f"array {name} has a length of {length}")
        _meter.add(_checked_length(length, buffer, position))
        elements = []
        for _ in range(length):
            value, position = element(buffer, position)
            elements.append(value)
        return tuple(elements), position

    return read_array


def _element_reader(field: FieldShape, is_flexible: bool, into: MessageClass) -> Reader:
    if field.kind == "entity":
        assert field.entity is not None  # shape_of gives every entity field its class
        read = _compile_entity(field.entity, _nested_class(into, field.name))
        return _nullable_entity_reader(read) if field.is_nullable and not field.is_array else read
    if field.kind == "uuid":
        return _read_uuid
    if field.kind in FIXED_FORMATS:
        return _fixed_reader(FIXED_FORMATS[field.kind])
    # Elements of an array are never null: nullability is the array's own.
    is_nullable = field.is_nullable and not field.is_array
    if field.kind == "string":
        read_bytes = _read_compact_bytes if is_flexible else _read_short_bytes
        return _string_reader(field.name, read_bytes, is_nullable)
    read_bytes = _read_compact_bytes if is_flexible else _read_long_bytes
    return read_bytes if is_nullable else _required_reader(field.name, read_bytes)


def _nested_class(into: MessageClass, name: str) -> MessageClass:
    """The class of a field's elements: `tuple[Element, ...]` or `Element | None` gives Element."""
    pending = [get_type_hints(into)[name]]
    while pending:
        hint = pending.pop()
        if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
            return hint
        pending.extend(get_args(hint))
    names = [field.name for field in fields(into)]
    raise TypeError(f"{into.__name__} has no class for {name}, only the fields {names}")


def _nullable_entity_reader(read: Reader) -> Reader:
    def read_nullable_entity(buffer: bytes, position: int) -> tuple[Any, int]:
        _checked_size(1, buffer, position)
        if buffer[position] == 0xFF:
            return None, position + 1
        return read(buffer, position + 1)

    return read_nullable_entity


def _fixed_reader(letter: str) -> Reader:
    layout = Struct(">" + letter)

    def read_fixed(buffer: bytes, position: int) -> tuple[Any, int]:
        try:
            return layout.unpack_from(buffer, position)[0], position + layout.size
        except struct_error:
            raise ProtocolError("the frame ends within a number") from None

    return read_fixed


def _string_reader(name: str, read_bytes: Reader, is_nullable: bool) -> Reader:
    def read_string(buffer: bytes, position: int) -> tuple[str | None, int]:
        data, position = read_bytes(buffer, position)
        if data is not None:
            if len(data) > STRING_BYTES_MAX:
                raise ProtocolError(f"{name} has {len(data)} bytes; {STRING_BYTES_MAX} is the most")
            return _text(data), position
        if not is_nullable:
            raise ProtocolError(f"{name} is null")
        return None, position

    return read_string


def _required_reader(name: str, read_bytes: Reader) -> Reader:
    def read_required(buffer: bytes, position: int) -> tuple[bytes, int]:
        data, position = read_bytes(buffer, position)
        if data is None:
            raise ProtocolError(f"{name} is null")
        return data, position

    return read_required


def _read_uuid(buffer: bytes, position: int) -> tuple[UUID | None, int]:
    _checked_size(16, buffer, position)
    data = buffer[position : position + 16]
    return (None if data == _ZERO_UUID else UUID(bytes=data)), position + 16


def _read_compact_bytes(buffer: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(buffer, position)
    return _read_bytes(length - 1, buffer, position)


def _read_short_bytes(buffer: bytes, position: int) -> tuple[bytes | None, int]:
    _checked_size(2, buffer, position)
    return _read_bytes(_INT16.unpack_from(buffer, position)[0], buffer, position + 2)


def _read_long_bytes(buffer: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _read_int32(buffer, position)
    return _read_bytes(size, buffer, position)


def _read_bytes(size: int, buffer: bytes, position: int) -> tuple[bytes | None, int]:
    if size == -1:
        return None, position
    end = position + _checked_size(size, buffer, position)
    return buffer[position:end], end


def _read_int32(buffer: bytes, position: int) -> tuple[int, int]:
    _checked_size(4, buffer, position)
    return _INT32.unpack_from(buffer, position)[0], position + 4


def _read_compact_length(buffer: bytes, position: int) -> tuple[int, int]:
    length, position = read_varint(buffer, position)
    return length - 1, position


def _checked_size(size: int, buffer: bytes, position: int) -> int:
    if size < 0:
        raise ProtocolError(f"a length of {size} bytes")
    if position + size > len(buffer):
        raise ProtocolError(f"a length of {size} bytes where only {len(buffer) - position} are left")
    return size


def _checked_length(length: int, buffer: bytes, position: int) -> int:
    # The smallest element is one byte long.
    if length > ARRAY_LENGTH_MAX or position + length > len(buffer):
        raise ProtocolError(
            f"an array of {length} elements where {len(buffer) - position} bytes are left "
            f"(and {ARRAY_LENGTH_MAX} elements is the most)"
        )
    return length


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"a string is not UTF-8: {error.reason} at byte {error.start}") from None
