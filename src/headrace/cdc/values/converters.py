"""Which converter a column has, by its type.

Types that extensions bring are known by their names, as their numbers differ between databases. A type of
which nothing is known is written as its text, which is what Debezium does with texts; so are enums, ranges,
network addresses, JSON, XML, composite types and shapes other than points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, get_args

from headrace.cdc.catalog import NO_MODIFIER, Catalog, PgType
from headrace.cdc.values.containers import array, hstore
from headrace.cdc.values.intervals import interval_iso, interval_us
from headrace.cdc.values.numbers import exact_money, exact_numeric, money_text
from headrace.cdc.values.scalars import (
    Converter,
    as_is,
    binary,
    bit,
    bits,
    floating,
    geometry,
    plain,
    point,
    text,
    truth,
)
from headrace.cdc.values.times import (
    days,
    time_of_day,
    time_with_zone,
    timestamp,
    timestamp_with_zone,
)
from headrace.errors import ConfigError

Numerics = Literal["text", "exact"]
Intervals = Literal["microseconds", "iso"]

SESSION_SETTINGS: Final = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}
"""What a session has to set whose texts are converted: the stream's, and those that read rows."""

_BY_NAME: Final[dict[str, Converter]] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid", "vector", "halfvec"), as_is),
    **dict.fromkeys(("float4", "float8"), floating),
    **dict.fromkeys(("uuid", "macaddr", "macaddr8", "inet", "cidr", "pg_lsn", "xid", "xid8", "tid"), plain),
    **dict.fromkeys(("geometry", "geography"), geometry),
    "bool": truth,
    "bytea": binary,
    "date": days,
    "hstore": hstore,
    "point": point,
    "timetz": time_with_zone,
    "varbit": bits,
}
_BY_NAME_AND_MODIFIER: Final[dict[str, Callable[[int], Converter]]] = {
    "time": time_of_day,
    "timestamp": timestamp,
    "timestamptz": timestamp_with_zone,
    "bit": lambda modifier: bit if modifier == 1 else bits,
}
_NESTED_MAX: Final = 32
"""Domains over domains over arrays: PostgreSQL knows no limit, but somebody may send us a circle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFormat:
    """How values are written where there is a choice."""

    numerics: Numerics = "text"
    """`text` writes numeric and money as strings; `exact` as Debezium does unless told otherwise."""
    intervals: Intervals = "microseconds"
    """`microseconds` writes intervals as about so many; `iso` as `P1Y2M3DT4H5M6S`."""
    money_fraction_digits: int = 2
    """How many digits money has behind the point, by the server's `lc_monetary`."""

    def __post_init__(self) -> None:
        for value, allowed in ((self.numerics, Numerics), (self.intervals, Intervals)):
            if value not in get_args(allowed):
                raise ConfigError(f"{value!r} is no format of values: use {' or '.join(get_args(allowed))}")
        if not 0 <= self.money_fraction_digits <= 9:
            raise ConfigError(
                f"money can't have {self.money_fraction_digits} digits behind the point: 0 to 9"
            )


def converter_of(type_oid: int, modifier: int, catalog: Catalog, format_: ValueFormat) -> Converter:
    """How values of a column of this type are written."""
    return _converter(type_oid, modifier, _Chosen(catalog, format_), 0)


@dataclass(frozen=True, slots=True)
class _Chosen:
    catalog: Catalog
    format: ValueFormat


def _converter(type_oid: int, modifier: int, chosen: _Chosen, depth: int) -> Converter:
    pg_type = chosen.catalog.type_of(type_oid)
    if pg_type is None or depth > _NESTED_MAX:
        return text
    if pg_type.base_oid:
        own = pg_type.base_modifier if modifier == NO_MODIFIER else modifier
        return _converter(pg_type.base_oid, own, chosen, depth + 1)
    if pg_type.element_oid:
        element = _converter(pg_type.element_oid, modifier, chosen, depth + 1)
        return array(element, _delimiter(pg_type, chosen.catalog))
    return _scalar(pg_type.name, modifier, chosen.format)


def _delimiter(array_type: PgType, catalog: Catalog) -> str:
    element = catalog.type_of(array_type.element_oid)
    return element.delimiter if element is not None else array_type.delimiter


def _scalar(name: str, modifier: int, format_: ValueFormat) -> Converter:
    if name == "numeric":
        return exact_numeric(modifier) if format_.numerics == "exact" else plain
    if name == "money":
        money = exact_money if format_.numerics == "exact" else money_text
        return money(format_.money_fraction_digits)
    if name == "interval":
        return interval_iso if format_.intervals == "iso" else interval_us
    if name in _BY_NAME_AND_MODIFIER:
        return _BY_NAME_AND_MODIFIER[name](modifier)
    return _BY_NAME.get(name, text)
