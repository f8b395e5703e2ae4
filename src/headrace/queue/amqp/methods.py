"""Methods, read and written by the tables of the library `pamqp`.

    payload    class id u16, method id u16, arguments; neighbouring bits share an octet

The library's own reader calls by name for every argument and has no limits, so ours goes by its tables only.
What is read are the library's own objects, made without its checks: those refuse names that RabbitMQ and we
allow. Methods that come and go with every message are read and written in `frames`.
"""

from __future__ import annotations

from struct import Struct, error
from typing import TYPE_CHECKING, Any, Final, cast

from pamqp import commands
from pamqp.base import Frame as Method

from headrace.queue.amqp.refusals import NOT_IMPLEMENTED, violation
from headrace.queue.amqp.values import (
    read_long_string,
    read_short_string,
    read_table,
    write_long_string,
    write_short_string,
    write_table,
)
from headrace.queue.refusals import syntax_error

if TYPE_CHECKING:
    from collections.abc import Callable

    Read = Callable[[bytes, int], tuple[Any, int]]
    Write = Callable[[Any], bytes]

BASIC_CLASS: Final = 60

_INDEX: Final = Struct(">I")
_FIXED: Final = {"octet": Struct(">B"), "short": Struct(">H"), "long": Struct(">I"), "longlong": Struct(">Q")}
_METHODS: Final = cast("dict[int, type[Method]]", commands.INDEX_MAPPING)

__all__ = ["BASIC_CLASS", "Method", "read_method", "write_method"]


def read_method(payload: bytes) -> Method:
    """The method in a frame's payload. Raises QueueRefused."""
    try:
        (index,) = _INDEX.unpack_from(payload)
    except error:
        raise syntax_error("a method frame is too short to name its method") from None
    kind = _METHODS.get(index)
    if kind is None:
        raise violation(NOT_IMPLEMENTED, f"there is no method {index >> 16}.{index & 0xFFFF}")
    method = kind.__new__(kind)
    position, bit = _INDEX.size, 0
    try:
        for name, read in _ARGUMENTS[index]:
            if read is None:
                setattr(method, name, bool(payload[position] >> bit & 1))
                bit += 1
                continue
            position, bit = position + (bit > 0), 0
            value, position = read(payload, position)
            setattr(method, name, value)
    except (IndexError, error):
        raise syntax_error(f"the arguments of {kind.name} are cut short") from None
    return method


def write_method(kind: type[Method], *values: Any) -> bytes:
    """A method's payload, of its arguments in their order."""
    parts = [_INDEX.pack(kind.index)]
    bits, bit = 0, 0
    for write, value in zip(_ARGUMENT_WRITERS[kind.index], values, strict=True):
        if write is None:
            bits |= bool(value) << bit
            bit += 1
            continue
        if bit:
            parts.append(bytes((bits,)))
            bits, bit = 0, 0
        parts.append(write(value))
    if bit:
        parts.append(bytes((bits,)))
    return b"".join(parts)


def _fixed_reader(fixed: Struct) -> Read:
    unpack_from, size = fixed.unpack_from, fixed.size
    return lambda data, position: (unpack_from(data, position)[0], position + size)


_READERS: Final[dict[str, Read]] = {
    **{name: _fixed_reader(fixed) for name, fixed in _FIXED.items()},
    "timestamp": _fixed_reader(_FIXED["longlong"]),
    "shortstr": read_short_string,
    "longstr": read_long_string,
    "table": read_table,
}
_WRITERS: Final[dict[str, Write]] = {
    **{name: fixed.pack for name, fixed in _FIXED.items()},
    "timestamp": _FIXED["longlong"].pack,
    "shortstr": write_short_string,
    "longstr": write_long_string,
    "table": write_table,
}


_ARGUMENTS: Final[dict[int, tuple[tuple[str, Read | None], ...]]] = {
    index: tuple((name, _READERS.get(kind.amqp_type(name))) for name in kind.attributes())
    for index, kind in _METHODS.items()
}
"""By method: its arguments by name, with what reads them; None for a bit."""
_ARGUMENT_WRITERS: Final[dict[int, tuple[Write | None, ...]]] = {
    index: tuple(_WRITERS.get(kind.amqp_type(name)) for name in kind.attributes())
    for index, kind in _METHODS.items()
}
