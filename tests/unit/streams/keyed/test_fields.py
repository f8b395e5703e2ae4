"""State that older code has written, read by what is declared now."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from headrace.errors import ConfigError, PipelineError
from headrace.streams.keyed.fields import Fields
from headrace.streams.schema import schema_ddl, state_defaults

KEYS = pa.schema({"k": pa.string()})


def fields(**kept: pa.DataType) -> Fields:
    return Fields(operator="adding", keys=KEYS, kept=pa.schema(kept), defaults={"more": 7, "seen": []})


OLD = pa.table({"k": ["a", "b"], "total": pa.array([1, 2], pa.int64())})


def test_a_new_field_gets_its_default_for_all_keys() -> None:
    read = fields(total=pa.int64(), more=pa.int64(), other=pa.string()).read(OLD)

    assert read.to_pylist() == [
        {"k": "a", "total": 1, "more": 7, "other": None},
        {"k": "b", "total": 2, "more": 7, "other": None},
    ]


def test_fields_may_be_declared_in_another_order() -> None:
    both = OLD.append_column("more", pa.array([3, 4], pa.int64()))

    assert fields(more=pa.int64(), total=pa.int64()).read(both).column_names == ["k", "more", "total"]


def test_a_table_that_is_as_declared_stays_the_same_object() -> None:
    noted = OLD.replace_schema_metadata({"headrace.buckets": "16"})

    assert fields(total=pa.int64()).read(noted) is noted


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (
            {"more": pa.int64()},
            "has a field 'total' that is no longer declared, and what it holds would be lost",
        ),
        ({"total": pa.float64()}, "'total' is kept as int64, and declared as double: restore the type"),
    ],
)
def test_a_field_that_is_gone_or_of_another_type_is_refused(kept: dict[str, pa.DataType], told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        fields(**kept).read(OLD)


def test_other_keys_are_refused() -> None:
    other = Fields(
        operator="adding", keys=pa.schema({"j": pa.string()}), kept=pa.schema({"total": pa.int64()})
    )
    with pytest.raises(PipelineError, match="kept by other columns than j: restore them"):
        other.read(OLD)


def test_names_that_would_be_in_each_other_s_way_are_refused() -> None:
    with pytest.raises(PipelineError, match="'k' is a key and a field of the state"):
        fields(k=pa.int64())
    with pytest.raises(PipelineError, match="'_due_us' begins with _"):
        fields(_due_us=pa.int64())


def test_a_new_key_begins_with_defaults_of_its_own() -> None:
    declared = fields(seen=pa.list_(pa.int64()))
    first = declared.fresh()
    first["seen"].append(1)

    assert declared.fresh() == {"seen": []}


@dataclass
class Seen:
    count: int = 0
    amounts: list[int] = field(default_factory=list)
    last: str | None = None


@dataclass
class Unready:
    count: int


def test_a_dataclass_declares_state_with_its_defaults() -> None:
    ddl = schema_ddl(Seen, with_defaults=True)

    assert ddl == "`count` bigint not null, `amounts` array<bigint> not null, `last` string"
    assert state_defaults(Seen) == {"count": 0, "amounts": [], "last": None}
    with pytest.raises(ConfigError, match=r"Unready.count has no default"):
        state_defaults(Unready)
