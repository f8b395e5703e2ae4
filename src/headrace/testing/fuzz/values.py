"""Requests with odd values in every field."""

from __future__ import annotations

from struct import Struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kio.index import load_request_schema

from headrace.kafka.codec.shape import FIXED_FORMATS, EntityShape, FieldShape, shape_of
from headrace.kafka.codec.writer import compile_writer
from headrace.log.batch import encode_batch
from headrace.log.record import Record

if TYPE_CHECKING:
    from random import Random

TEXTS: Final = (
    "",
    "t",
    "u",
    "group",
    "member",
    "id",
    ".",
    "..",
    "a/b",
    "\0",
    "ü€𝄞",
    "x" * 249,
    "x" * 300,
    "__consumer_offsets",
    "__transaction_state",
    "consumer",
    "range",
    "uniform",
    "retention.ms",
    "cleanup.policy",
    "compact",
    "-1",
    "1",
    "PLAIN",
    "SCRAM-SHA-256",
)
SMALL_NUMBERS: Final = (-3, -2, -1, 0, 0, 0, 1, 1, 2, 3, 5, 10, 100, 1_000)
ARRAY_LENGTHS: Final = (0, 1, 1, 1, 2, 3)
_HEADER: Final = Struct(">hhi")
_BITS: Final = {"b": 8, "h": 16, "i": 32, "q": 64, "H": 16, "I": 32}


class OddRequests:
    """Makes requests, as frames without their size."""

    def __init__(self, random: Random, topic_ids: tuple[UUID, ...] = ()) -> None:
        self._random = random
        self._topic_ids = topic_ids
        self._correlation_id = 0

    def frame(self, api_key: int, version: int) -> bytes:
        """A request of one version of an API that can be read, whatever it says."""
        schema = load_request_schema(api_key, version)
        self._correlation_id += 1
        parts = [_HEADER.pack(api_key, version, self._correlation_id), b"\xff\xff"]
        if schema.__header_schema__.__version__ >= 2:
            parts.append(b"\0")
        compile_writer(schema)(self._entity(shape_of(schema)), parts)
        return b"".join(parts)

    def _entity(self, shape: EntityShape) -> Any:
        fields = {field.name: self._field(field) for field in shape.fields}
        for field in shape.tagged:
            fields[field.name] = None if self._random.random() < 0.5 else self._field(field)
        return SimpleNamespace(**fields)

    def _field(self, field: FieldShape) -> Any:
        if field.is_nullable and field.tag is None and self._random.random() < 0.2:
            return None
        if not field.is_array:
            return self._value(field)
        return tuple(self._value(field) for _ in range(self._random.choice(ARRAY_LENGTHS)))

    def _value(self, field: FieldShape) -> Any:
        if field.kind == "entity":
            return self._entity(shape_of(field.entity))
        if field.kind == "string":
            return self._random.choice(TEXTS)
        if field.kind == "uuid":
            return self._uuid()
        if field.kind in {"bytes", "records"}:
            return self._bytes()
        if field.kind == "error_code":
            return SimpleNamespace(value=self._number("h"))
        return self._fixed(FIXED_FORMATS[field.kind])

    def _fixed(self, letter: str) -> Any:
        if letter == "?":
            return self._random.random() < 0.5
        if letter == "d":
            return self._random.choice((0.0, -1.5, float("nan"), float("inf")))
        return self._number(letter)

    def _number(self, letter: str) -> int:
        bits = _BITS[letter]
        lowest = 0 if letter.isupper() else -(1 << bits - 1)
        highest = lowest + (1 << bits) - 1
        if self._random.random() < 0.8:
            return min(max(self._random.choice(SMALL_NUMBERS), lowest), highest)
        return self._random.choice((lowest, highest, self._random.randint(lowest, highest)))

    def _uuid(self) -> UUID | None:
        chosen = self._random.random()
        if chosen < 0.2:
            return None
        if chosen < 0.7 and self._topic_ids:
            return self._random.choice(self._topic_ids)
        return UUID(int=self._random.getrandbits(128))

    def _bytes(self) -> bytes:
        if self._random.random() < 0.3:
            return self._random.randbytes(self._random.choice((0, 1, 7, 61, 200)))
        batch = encode_batch(
            [Record(timestamp_ms=self._random.choice((-1, 0, 2**62)), key=b"k", value=b"v")],
            base_offset=self._number("q"),
            producer_id=self._random.choice((-1, -1, 0, 1, 2**62)),
            producer_epoch=self._random.choice((-1, 0, 1, 32_767)),
            base_sequence=self._random.choice((-1, 0, 1, 2**31 - 1)),
            attributes=self._random.choice((0, 0, 0, 1, 2, 4, 7, 8, 16, 32, 48)),
        )
        cut = self._random.random()
        if cut < 0.1:
            return batch[: self._random.randrange(len(batch))]
        return batch * 2 if cut < 0.2 else batch
