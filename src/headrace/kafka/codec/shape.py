"""What a kio schema says about an entity, in the few words that the reader and the writer need.

kio turns Kafka's `fooMs` fields into timedeltas and datetimes named `foo`. Ours stay integers of
milliseconds under Kafka's own name, so a field of one of those types is called `foo_ms` here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin

if TYPE_CHECKING:
    from dataclasses import Field

MILLISECOND_TYPES: Final = {"timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}

FIXED_FORMATS: Final = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
}
"""The `struct` letters of types that have the same size in every message."""

Entity = Any
"""One of kio's schema classes: a frozen dataclass whose fields are in the order of the wire."""
MessageClass = Any
"""One of the classes in `headrace.kafka.messages`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldShape:
    """One field of an entity, as it lies on the wire."""

    name: str
    kind: str
    """One of FIXED_FORMATS, or string, bytes, records, uuid, entity."""
    entity: Entity | None
    is_array: bool
    is_nullable: bool
    tag: int | None

    @property
    def fixed_format(self) -> str | None:
        """The field's `struct` letter, where it has a fixed size and a fixed place."""
        return None if self.is_array or self.tag is not None else FIXED_FORMATS.get(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityShape:
    """The fields of an entity in the order of the wire, and whether tagged fields follow them."""

    name: str
    is_flexible: bool
    fields: tuple[FieldShape, ...]
    tagged: tuple[FieldShape, ...]


def shape_of(entity: Entity) -> EntityShape:
    """Describe one of kio's schema classes."""
    shapes = [_field_shape(field) for field in fields(entity)]
    tagged = [shape for shape in shapes if shape.tag is not None]
    return EntityShape(
        name=entity.__name__,
        is_flexible=entity.__flexible__,
        fields=tuple(shape for shape in shapes if shape.tag is None),
        tagged=tuple(sorted(tagged, key=lambda shape: shape.tag or 0)),
    )


def _field_shape(field: Field[Any]) -> FieldShape:
    annotation, is_nullable = _without_none(field.type)
    is_array = get_origin(annotation) is tuple
    kafka_type = field.metadata.get("kafka_type", "entity")
    return FieldShape(
        name=f"{field.name}_ms" if kafka_type in MILLISECOND_TYPES else field.name,
        kind=MILLISECOND_TYPES.get(kafka_type, kafka_type),
        entity=(get_args(annotation)[0] if is_array else annotation) if kafka_type == "entity" else None,
        is_array=is_array,
        # A null time is -1 on the wire, and -1 in our integers.
        is_nullable=is_nullable and kafka_type not in MILLISECOND_TYPES,
        tag=field.metadata.get("tag"),
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) in {Union, UnionType}:
        rest = [argument for argument in get_args(annotation) if argument is not type(None)]
        return rest[0], len(rest) < len(get_args(annotation))
    return annotation, False
