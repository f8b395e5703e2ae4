"""Compile a reader for one version of a message.

A reader turns `(buffer, position)` into `(value, next position)`. Every length is held against the bytes
that remain before anything is allocated, and arrays have a maximum, each and all of a message together: an
element of three bytes becomes an object of a hundred. A string has at most 32,767 bytes in every version, as
in Kafka. Whatever is wrong with the bytes raises ProtocolError.

Runs of fields with a fixed size, and a length that follows them, are read by one `struct` call. In the source
of a reader, `b` is the buffer, `n` its size, `p` the position and `elements` the number of array elements so
far.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import lru_cache
from struct import Struct, unpack_from
from struct import error as struct_error
from typing import TYPE_CHECKING, Any, Final, NoReturn, get_args, get_type_hints
from uuid import UUID

from headrace.errors import ProtocolError
from headrace.kafka.codec.shape import FIXED_FORMATS, shape_of
from headrace.kafka.codec.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kafka.codec.shape import Entity, EntityShape, FieldShape, MessageClass

    Reader = Callable[[bytes, int], tuple[Any, int]]

ARRAY_LENGTH_MAX: Final = 100_000
"""More elements than this in one array close the connection."""
ELEMENT_COUNT_MAX: Final = 250_000
"""More elements than this in all arrays of a message close the connection."""
STRING_BYTES_MAX: Final = 32_767
VARINT_BYTES_MAX: Final = 5

_INT16: Final = Struct(">h")
_ZERO_UUID: Final = bytes(16)


@lru_cache(maxsize=1024)
def compile_reader(schema: Entity, into: MessageClass) -> Reader:
    """Return a reader of `schema` that makes values of the class `into`."""
    read: Reader = _ReaderSource(schema, into).compile()

    def read_message(buffer: bytes, position: int) -> tuple[Any, int]:
        try:
            return read(buffer, position)
        except (struct_error, IndexError):
            raise ProtocolError("the frame ends before the message does") from None
        except UnicodeDecodeError as error:
            raise _not_text(error) from None

    return read_message


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
    try:
        (size,) = _INT16.unpack_from(buffer, position)
    except struct_error:
        raise ProtocolError("the frame ends within a length") from None
    start = position + _INT16.size
    if size == -1:
        return None, start
    end = start + size
    if size < 0 or end > len(buffer):
        _refuse_size("a string", size, len(buffer) - start)
    try:
        return buffer[start:end].decode(), end
    except UnicodeDecodeError as error:
        raise _not_text(error) from None


def skip_tags(buffer: bytes, position: int) -> int:
    """Step over tagged fields."""
    count, position = read_varint(buffer, position)
    if count > len(buffer) - position:
        _refuse_length("tagged fields", count, len(buffer) - position)
    for _ in range(count):
        _, position = read_varint(buffer, position)
        size, position = read_varint(buffer, position)
        if size > len(buffer) - position:
            _refuse_size("a tagged field", size, len(buffer) - position)
        position += size
    return position


class _ReaderSource:
    """Writes the source of one reader."""

    def __init__(self, schema: Entity, into: MessageClass) -> None:
        self._schema = schema
        self._into = into
        self._source = Source("read(b, p)")
        self._read_varint = self._source.constant(read_varint)
        self._refuse_size = self._source.constant(_refuse_size)
        self._refuse_length = self._source.constant(_refuse_length)
        self._refuse_elements = self._source.constant(_refuse_elements)

    def compile(self) -> Any:
        source = self._source
        source.line("n = len(b)")
        source.line("elements = 0")
        source.line(f"return {self._entity(self._schema, self._into)}, p")
        return source.compile(f"reader of {self._schema.__module__}.{self._schema.__name__}")

    def _entity(self, schema: Entity, into: MessageClass) -> str:
        """Read an entity's fields, and return the expression that makes it."""
        shape = shape_of(schema)
        values: dict[str, str] = {}
        run: list[FieldShape] = []
        for field in shape.fields:
            if field.fixed_format is not None:
                run.append(field)
                continue
            length = self._run(run, values, _length_format(field, is_flexible=shape.is_flexible))
            values[field.name] = self._value(field, length, is_flexible=shape.is_flexible, into=into)
            run = []
        self._run(run, values, "")
        if shape.is_flexible:
            self._tags(shape, into, values)
        # A field that the version lacks has the default of the class.
        arguments = ", ".join(f"{name}={variable}" for name, variable in values.items())
        return f"{self._source.constant(into)}({arguments})"

    def _run(self, run: list[FieldShape], values: dict[str, str], length_format: str) -> str:
        """Read fields of fixed sizes, and the length that follows; return that one's variable."""
        layout = Struct(">" + "".join(FIXED_FORMATS[field.kind] for field in run) + length_format)
        if layout.size == 0:
            return ""
        variables = [self._source.variable() for _ in (*run, *length_format)]
        unpack = self._source.constant(layout.unpack_from)
        self._source.line(f"{', '.join(variables)}, = {unpack}(b, p)")
        self._source.line(f"p += {layout.size}")
        values |= zip((field.name for field in run), variables, strict=False)
        return variables[-1]

    def _tags(self, shape: EntityShape, into: MessageClass, values: dict[str, str]) -> None:
        source = self._source
        count, tag, size, end = (source.variable() for _ in range(4))
        for field in shape.tagged:
            values[field.name] = variable = source.variable()
            source.line(f"{variable} = {source.constant(_default(into, field.name))}")
        self._varint(count)
        with source.block(f"if {count}:"):
            with source.block(f"if {count} > n - p:"):
                source.line(f"{self._refuse_length}('tagged fields', {count}, n - p)")
            with source.block(f"for _ in range({count}):"):
                self._varint(tag)
                self._varint(size)
                with source.block(f"if {size} > n - p:"):
                    source.line(f"{self._refuse_size}('a tagged field', {size}, n - p)")
                source.line(f"{end} = p + {size}")
                for field in shape.tagged:
                    with source.block(f"if {tag} == {field.tag}:"):
                        length = self._run([], {}, _length_format(field, is_flexible=True))
                        value = self._value(field, length, is_flexible=True, into=into)
                        source.line(f"{values[field.name]} = {value}")
                        with source.block(f"if p != {end}:"):
                            source.line(f"{source.constant(_refuse_tag)}({field.name!r}, {size})")
                source.line(f"p = {end}")

    def _varint(self, variable: str, *, less: int = 0) -> None:
        source = self._source
        source.line(f"{variable} = b[p]")
        with source.block(f"if {variable} < 128:"):
            source.line("p += 1")
        with source.block("else:"):
            source.line(f"{variable}, p = {self._read_varint}(b, p)")
        if less:
            source.line(f"{variable} -= {less}")

    def _value(self, field: FieldShape, length: str, *, is_flexible: bool, into: MessageClass) -> str:
        """Read a field whose length, where that has a fixed size, has been read; return its variable."""
        if _has_length(field) and is_flexible:
            length = self._source.variable()
            self._varint(length, less=1)
        if field.is_array:
            return self._array(field, length, is_flexible=is_flexible, into=into)
        if field.kind == "entity":
            return self._single_entity(field, into)
        return self._element(field, length, is_nullable=field.is_nullable)

    def _array(self, field: FieldShape, length: str, *, is_flexible: bool, into: MessageClass) -> str:
        source = self._source
        result = source.variable()
        with source.block(f"if {length} < 0:"):
            with source.block(f"if {length} != -1:" if field.is_nullable else "if True:"):
                source.line(f"{self._refuse_length}({field.name!r}, {length}, n - p)")
            source.line(f"{result} = None")
        with source.block("else:"):
            # The smallest element is one byte long.
            with source.block(f"if {length} > {ARRAY_LENGTH_MAX} or {length} > n - p:"):
                source.line(f"{self._refuse_length}({field.name!r}, {length}, n - p)")
            source.line(f"elements += {length}")
            with source.block(f"if elements > {ELEMENT_COUNT_MAX}:"):
                source.line(f"{self._refuse_elements}()")
            if letter := FIXED_FORMATS.get(field.kind):
                unpack = source.constant(unpack_from)
                source.line(f"{result} = {unpack}('>%d{letter}' % {length}, b, p)")
                source.line(f"p += {length} * {Struct('>' + letter).size}")
            else:
                source.line(f"{result} = []")
                with source.block(f"for _ in range({length}):"):
                    element = self._array_element(field, is_flexible=is_flexible, into=into)
                    source.line(f"{result}.append({element})")
                source.line(f"{result} = tuple({result})")
        return result

    def _array_element(self, field: FieldShape, *, is_flexible: bool, into: MessageClass) -> str:
        if field.kind == "entity":
            return self._entity(field.entity, _nested_class(into, field.name))
        length = ""
        if field.kind != "uuid":
            length = self._source.variable()
            if is_flexible:
                self._varint(length, less=1)
            else:
                length = self._run([], {}, "h" if field.kind == "string" else "i")
        # Elements of an array are never null: nullability is the array's own.
        return self._element(field, length, is_nullable=False)

    def _single_entity(self, field: FieldShape, into: MessageClass) -> str:
        source = self._source
        nested = _nested_class(into, field.name)
        if not field.is_nullable:
            return self._entity(field.entity, nested)
        result = source.variable()
        source.line(f"{result} = b[p]")
        source.line("p += 1")
        with source.block(f"if {result} == 255:"):
            source.line(f"{result} = None")
        with source.block("else:"):
            source.line(f"{result} = {self._entity(field.entity, nested)}")
        return result

    def _element(self, field: FieldShape, length: str, *, is_nullable: bool) -> str:
        source = self._source
        result = source.variable()
        if letter := FIXED_FORMATS.get(field.kind):
            return self._run([], {}, letter)
        if field.kind == "uuid":
            source.line(f"{result} = b[p:p + 16]")
            with source.block(f"if len({result}) < 16:"):
                source.line(f"{self._refuse_size}({field.name!r}, 16, n - p)")
            source.line("p += 16")
            zero, make = source.constant(_ZERO_UUID), source.constant(UUID)
            source.line(f"{result} = None if {result} == {zero} else {make}(bytes={result})")
            return result
        with source.block(f"if {length} < 0:"):
            with source.block(f"if {length} != -1:" if is_nullable else "if True:"):
                source.line(f"{self._refuse_size}({field.name!r}, {length}, n - p)")
            source.line(f"{result} = None")
        with source.block("else:"):
            with source.block(f"if {length} > n - p:"):
                source.line(f"{self._refuse_size}({field.name!r}, {length}, n - p)")
            if field.kind == "string":
                with source.block(f"if {length} > {STRING_BYTES_MAX}:"):
                    source.line(f"{source.constant(_refuse_long_string)}({field.name!r}, {length})")
            decode = ".decode()" if field.kind == "string" else ""
            source.line(f"{result} = b[p:p + {length}]{decode}")
            source.line(f"p += {length}")
        return result


def _has_length(field: FieldShape) -> bool:
    return field.is_array or field.kind in {"string", "bytes", "records"}


def _length_format(field: FieldShape, *, is_flexible: bool) -> str:
    """The `struct` letter of the field's length, where that has a fixed size."""
    if is_flexible or not _has_length(field):
        return ""
    return "h" if field.kind == "string" and not field.is_array else "i"


def _default(into: MessageClass, name: str) -> Any:
    default = next(field.default for field in fields(into) if field.name == name)
    if default is MISSING:
        raise TypeError(f"{into.__name__}.{name} is a tagged field: it needs a default")
    return default


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


def _refuse_size(name: str, size: int, left_bytes: int) -> NoReturn:
    if size == -1:
        raise ProtocolError(f"{name} is null")
    raise ProtocolError(f"{name} has a length of {size} bytes where only {left_bytes} are left")


def _refuse_length(name: str, length: int, left_bytes: int) -> NoReturn:
    if length < 0:
        raise ProtocolError(f"array {name} has a length of {length}")
    raise ProtocolError(
        f"an array of {length} elements ({name}) where {left_bytes} bytes are left "
        f"(and {ARRAY_LENGTH_MAX} elements is the most)"
    )


def _refuse_elements() -> NoReturn:
    raise ProtocolError(f"more than {ELEMENT_COUNT_MAX} elements in all arrays of the message")


def _refuse_long_string(name: str, size: int) -> NoReturn:
    raise ProtocolError(f"{name} has {size} bytes; {STRING_BYTES_MAX} is the most")


def _refuse_tag(name: str, size: int) -> NoReturn:
    raise ProtocolError(f"tagged field {name} is {size} bytes long but its value is not")


def _not_text(error: UnicodeDecodeError) -> ProtocolError:
    return ProtocolError(f"a string is not UTF-8: {error.reason} at byte {error.start}")
