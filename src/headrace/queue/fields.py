"""Field tables of AMQP 0-9-1, as RabbitMQ reads them.

    table    long length of what follows, then for each field a short string (its name) and a value
    value    one octet for the type, then:
      t bool | b int8 | B uint8 | s int16 | u uint16 | I int32 | i uint32 | l int64 | f float | d double
      D decimal: octet scale, int32 | S long string | x bytes | T uint64, seconds since 1970 | V nothing
      A array: long length of what follows, then values | F table

Long strings are str where they are UTF-8, else bytes. Timestamps are aware datetimes, and numbers
beyond the year 9999. A table in a message's
headers is changed by exchanging single fields (`split`, `join`), so that all others keep their types.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Final

from headrace.queue.refusals import syntax_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NESTING_MAX: Final = 32

LONG: Final = Struct(">I")
INT32: Final = Struct(">i")
NUMBERS: Final = {
    ord("b"): Struct(">b"),
    ord("B"): Struct(">B"),
    ord("s"): Struct(">h"),
    ord("u"): Struct(">H"),
    ord("I"): INT32,
    ord("i"): LONG,
    ord("l"): Struct(">q"),
    ord("L"): Struct(">q"),
    ord("f"): Struct(">f"),
    ord("d"): Struct(">d"),
}
TIMESTAMP: Final = Struct(">Q")
TIMESTAMP_S_MAX: Final = 253_402_300_799
"""The last second of the year 9999."""
SIZES: Final = {kind: number.size for kind, number in NUMBERS.items()} | {
    ord("t"): 1,
    ord("V"): 0,
    ord("T"): 8,
    ord("D"): 5,
}
"""Of values that have always the same."""
DECIMAL: Final = Struct(">Bi")


def read_table(data: bytes) -> dict[str, object]:
    """The fields of a table whose length comes first. Raises QueueRefused (502)."""
    try:
        table, end = _read_table(data, 0, 0)
    except (struct_error, IndexError, OverflowError, ValueError, OSError) as error:
        raise syntax_error(f"a field table can't be read: {error}") from error
    if end != len(data):
        raise syntax_error(f"a field table ends at byte {end} of {len(data)}")
    return table


class FarTimestamp(int):
    """Seconds since 1970 beyond the year 9999, which a datetime can't hold."""


def check_table(data: bytes) -> None:
    """Raise QueueRefused (502) unless the table can be read; much faster than reading it."""
    try:
        end = 4 + LONG.unpack_from(data)[0]
        _check(end == len(data), "does not end where it says")
        _walk(data, 4, end, 0, is_table=True)
    except (struct_error, IndexError, ValueError) as error:
        raise syntax_error(f"a field table can't be read: {error}") from error


def _walk(data: bytes, position: int, end: int, depth: int, *, is_table: bool) -> None:
    _check(end <= len(data) and depth < NESTING_MAX, "is cut short or nested too deeply")
    while position < end:
        if is_table:
            position += 1 + data[position]
        kind = data[position]
        size = SIZES.get(kind)
        if size is None:
            size = 4 + LONG.unpack_from(data, position + 1)[0]
            if kind in b"FA":
                _walk(data, position + 5, position + 1 + size, depth + 1, is_table=kind == ord("F"))
            elif kind not in b"Sx":
                raise ValueError(f"it has a field of the unknown type {kind}")
        position += 1 + size
    _check(position == end, "does not end where it says")


def _read_timestamp(seconds: int) -> object:
    return datetime.fromtimestamp(seconds, UTC) if seconds <= TIMESTAMP_S_MAX else FarTimestamp(seconds)


def split(data: bytes) -> list[tuple[bytes, bytes]]:
    """The names of a table's fields, and their values with their types, as they are."""
    try:
        fields = []
        position, end = 4, 4 + LONG.unpack_from(data)[0]
        while position < end:
            name, position = _read_name(data, position)
            _, after = _read_value(data, position, 0)
            fields.append((name, data[position:after]))
            position = after
    except (struct_error, IndexError, OverflowError, ValueError, OSError) as error:
        raise syntax_error(f"a field table can't be read: {error}") from error
    return fields


def join(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The opposite of `split`."""
    body = b"".join(bytes((len(name),)) + name + value for name, value in fields)
    return LONG.pack(len(body)) + body


def write_table(table: Mapping[str, object]) -> bytes:
    """A table with its length first."""
    return join((_name(name), write_value(value)) for name, value in table.items())


def write_value(value: object) -> bytes:  # noqa: C901, PLR0911  # One line for each type.
    """A value with its type first."""
    match value:
        case None:
            return b"V"
        case bool():
            return b"t\x01" if value else b"t\x00"
        case FarTimestamp():
            return b"T" + TIMESTAMP.pack(value)
        case int():
            return _write_int(value)
        case float():
            return b"d" + NUMBERS[ord("d")].pack(value)
        case str():
            return _long_string(b"S", value.encode("utf-8", "surrogateescape"))
        case bytes() | bytearray():
            return _long_string(b"x", bytes(value))
        case datetime():
            return b"T" + TIMESTAMP.pack(int(value.timestamp()))
        case Decimal():
            return _write_decimal(value)
        case list() | tuple():
            return _write_array(value)
        case dict():
            return b"F" + write_table(value)
    raise syntax_error(f"a field can't hold {type(value).__name__}")


def freeze(value: object) -> object:
    """The same value in a form that can be compared and hashed."""
    if isinstance(value, dict):
        return tuple(sorted((name, freeze(each)) for name, each in value.items()))
    if isinstance(value, list):
        return ("[]", *map(freeze, value))
    return bytes(value) if isinstance(value, bytearray) else (type(value).__name__, value)


def _read_table(data: bytes, position: int, depth: int) -> tuple[dict[str, object], int]:
    end = position + 4 + LONG.unpack_from(data, position)[0]
    _check(end <= len(data) and depth < NESTING_MAX, "is cut short or nested too deeply")
    position += 4
    table: dict[str, object] = {}
    while position < end:
        name, position = _read_name(data, position)
        table[name.decode("utf-8", "surrogateescape")], position = _read_value(data, position, depth)
    _check(position == end, "does not end where it says")
    return table, end


def _read_name(data: bytes, position: int) -> tuple[bytes, int]:
    end = position + 1 + data[position]
    _check(end <= len(data), "is cut short")
    return data[position + 1 : end], end


def _read_value(  # noqa: PLR0911  # One line for each type.
    data: bytes, position: int, depth: int
) -> tuple[object, int]:
    kind = data[position]
    position += 1
    number = NUMBERS.get(kind)
    if number is not None:
        return number.unpack_from(data, position)[0], position + number.size
    match chr(kind):
        case "S" | "x":
            return _read_string(data, position, is_text=kind == ord("S"))
        case "t":
            return data[position] != 0, position + 1
        case "V":
            return None, position
        case "T":
            return _read_timestamp(TIMESTAMP.unpack_from(data, position)[0]), position + 8
        case "D":
            scale, unscaled = DECIMAL.unpack_from(data, position)
            return Decimal(unscaled).scaleb(-scale), position + 5
        case "F":
            return _read_table(data, position, depth + 1)
        case "A":
            return _read_array(data, position, depth + 1)
    raise ValueError(f"it has a field of the unknown type {kind}")


def _read_string(data: bytes, position: int, *, is_text: bool) -> tuple[object, int]:
    end = position + 4 + LONG.unpack_from(data, position)[0]
    _check(end <= len(data), "is cut short")
    value = data[position + 4 : end]
    if is_text:
        try:
            return value.decode(), end
        except UnicodeDecodeError:
            return value, end
    return value, end


def _read_array(data: bytes, position: int, depth: int) -> tuple[list[object], int]:
    end = position + 4 + LONG.unpack_from(data, position)[0]
    _check(end <= len(data) and depth < NESTING_MAX, "is cut short or nested too deeply")
    position += 4
    values: list[object] = []
    while position < end:
        value, position = _read_value(data, position, depth)
        values.append(value)
    _check(position == end, "has an array that does not end where it says")
    return values, end


def _check(is_right: bool, text: str) -> None:
    if not is_right:
        raise ValueError(f"it {text}")


def _name(name: str) -> bytes:
    encoded = name.encode("utf-8", "surrogateescape")
    if len(encoded) > 255:
        raise syntax_error(f"the name of a field has {len(encoded)} bytes; at most 255 are allowed")
    return encoded


def _write_int(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return b"I" + INT32.pack(value)
    return b"l" + NUMBERS[ord("l")].pack(value)


def _long_string(kind: bytes, value: bytes) -> bytes:
    return kind + LONG.pack(len(value)) + value


def _write_decimal(value: Decimal) -> bytes:
    exponent = value.as_tuple().exponent
    scale = -exponent if isinstance(exponent, int) and exponent < 0 else 0
    return b"D" + DECIMAL.pack(scale, int(value.scaleb(scale)))


def _write_array(values: Sequence[object]) -> bytes:
    body = b"".join(map(write_value, values))
    return b"A" + LONG.pack(len(body)) + body
