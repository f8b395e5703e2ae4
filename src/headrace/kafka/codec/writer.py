"""Compile a writer for one version of a message.

A writer appends the bytes of a value to a list of parts. Record batches are appended as they are, so that
a fetched megabyte is not copied once more; those that lie unread in the log are read when they are sent.

Runs of fields with a fixed size, and a length that follows them, are written by one `struct` call. A tagged
field that is None is left out. In the source of a writer, `parts` is the list and `add` appends to it.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from headrace.kafka.codec.shape import FIXED_FORMATS, shape_of
from headrace.kafka.codec.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kafka.codec.shape import Entity, EntityShape, FieldShape

    # Bytes, and in answers to Fetch also StoredBatches.
    Parts = list[Any]
    Writer = Callable[[Any, Parts], None]

_SMALL_VARINTS: Final = tuple(bytes((value,)) for value in range(0x80))
_ZERO_UUID: Final = bytes(16)


@lru_cache(maxsize=1024)
def compile_writer(schema: Entity) -> Writer:
    """Return a writer of `schema` for any value that has its fields as attributes."""
    writer: Writer = _WriterSource(schema).compile()
    return writer


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


class _WriterSource:
    """Writes the source of one writer."""

    def __init__(self, schema: Entity) -> None:
        self._schema = schema
        self._source = Source("write(value, parts)")
        self._varint = self._source.constant(varint)

    def compile(self) -> Any:
        self._source.line("add = parts.append")
        self._entity(self._schema, "value")
        return self._source.compile(f"writer of {self._schema.__module__}.{self._schema.__name__}")

    def _entity(self, schema: Entity, value: str) -> None:
        shape = shape_of(schema)
        run: list[tuple[str, str]] = []
        for field in shape.fields:
            expression = f"{value}.{field.name}"
            if field.fixed_format is not None:
                run.append((field.fixed_format, expression))
            else:
                self._value(field, expression, run, is_flexible=shape.is_flexible)
                run = []
        self._run(run)
        if shape.is_flexible:
            self._tags(shape, value)

    def _run(self, run: list[tuple[str, str]]) -> None:
        """Write numbers of fixed sizes, given as `struct` letters and expressions."""
        if run:
            pack = self._source.constant(Struct(">" + "".join(letter for letter, _ in run)).pack)
            self._source.line(f"add({pack}({', '.join(expression for _, expression in run)}))")

    def _tags(self, shape: EntityShape, value: str) -> None:
        source = self._source
        if not shape.tagged:
            source.line("add(b'\\0')")
            return
        count, chunks, outer = (source.variable() for _ in range(3))
        source.line(f"{count}, {chunks}, {outer} = 0, [], parts")
        for field in shape.tagged:
            tagged = source.variable()
            source.line(f"{tagged} = {value}.{field.name}")
            with source.block(f"if {tagged} is not None:"):
                source.line("parts = []")
                source.line("add = parts.append")
                # Whether a tagged entity is there is told by its tag, not by a byte of its own.
                if field.kind == "entity" and not field.is_array:
                    self._entity(field.entity, tagged)
                else:
                    self._value(field, tagged, [], is_flexible=True)
                tag = source.constant(varint(field.tag or 0))
                source.line(f"{chunks} += ({tag}, {self._varint}(sum(map(len, parts))), *parts)")
                source.line(f"{count} += 1")
        source.line(f"parts = {outer}")
        source.line("add = parts.append")
        source.line(f"add({self._varint}({count}))")
        source.line(f"parts += {chunks}")

    def _value(
        self, field: FieldShape, expression: str, run: list[tuple[str, str]], *, is_flexible: bool
    ) -> None:
        """Write a run of numbers and the field that comes after it."""
        if field.is_array:
            self._array(field, expression, run, is_flexible=is_flexible)
        elif field.kind == "entity":
            self._run(run)
            self._single_entity(field, expression)
        else:
            self._element(field, expression, run, is_flexible=is_flexible)

    def _array(
        self, field: FieldShape, expression: str, run: list[tuple[str, str]], *, is_flexible: bool
    ) -> None:
        source = self._source
        array, element = source.variable(), source.variable()
        source.line(f"{array} = {expression}")
        self._length(array, run, "i", is_flexible=is_flexible)
        with source.block(f"for {element} in {array} or ():"):
            if field.kind == "entity":
                self._entity(field.entity, element)
            else:
                self._element(field, element, [], is_flexible=is_flexible)

    def _single_entity(self, field: FieldShape, expression: str) -> None:
        source = self._source
        if not field.is_nullable:
            self._entity(field.entity, expression)
            return
        entity = source.variable()
        source.line(f"{entity} = {expression}")
        with source.block(f"if {entity} is None:"):
            source.line("add(b'\\xff')")
        with source.block("else:"):
            source.line("add(b'\\x01')")
            self._entity(field.entity, entity)

    def _element(
        self, field: FieldShape, expression: str, run: list[tuple[str, str]], *, is_flexible: bool
    ) -> None:
        source = self._source
        if letter := FIXED_FORMATS.get(field.kind):
            self._run([*run, (letter, expression)])
            return
        value = source.variable()
        source.line(f"{value} = {expression}")
        if field.kind == "uuid":
            self._run(run)
            source.line(f"add({source.constant(_ZERO_UUID)} if {value} is None else {value}.bytes)")
            return
        if field.kind == "string":
            with source.block(f"if {value} is not None:"):
                source.line(f"{value} = {value}.encode()")
        self._length(value, run, "h" if field.kind == "string" else "i", is_flexible=is_flexible)
        with source.block(f"if {value} is not None:"):
            source.line(f"add({value})")

    def _length(self, value: str, run: list[tuple[str, str]], letter: str, *, is_flexible: bool) -> None:
        """Write a run of numbers and a length, -1 for null; a compact one is a varint, and one higher."""
        if is_flexible:
            self._run(run)
            self._source.line(f"add({self._varint}(0 if {value} is None else len({value}) + 1))")
        else:
            self._run([*run, (letter, f"-1 if {value} is None else len({value})")])
