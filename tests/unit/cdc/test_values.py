"""What PostgreSQL writes as text, and what Debezium makes of it."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cdc.catalog import BUILT_IN_TYPES, NO_MODIFIER, KnownCatalog, PgType
from headrace.cdc.values.converters import ValueFormat, converter_of
from headrace.cdc.values.numbers import scale_of, twos_complement
from headrace.errors import ConfigError

OIDS = {each.name: each.oid for each in BUILT_IN_TYPES.values()}
OWN = (
    PgType(oid=90001, name="mood", schema="public"),
    PgType(oid=90002, name="_mood", schema="public", element_oid=90001),
    PgType(
        oid=90003, name="price", schema="public", base_oid=OIDS["numeric"], base_modifier=(10 << 16 | 2) + 4
    ),
    PgType(oid=90004, name="prices", schema="public", base_oid=90005),
    PgType(oid=90005, name="_price", schema="public", element_oid=90003),
    PgType(oid=90006, name="hstore", schema="extensions"),
    PgType(oid=90007, name="vector", schema="public"),
    PgType(oid=90008, name="geometry", schema="public"),
    PgType(oid=90009, name="pair", schema="public"),
    PgType(oid=90010, name="circle_of_domains", schema="public", base_oid=90010),
    PgType(oid=90011, name="citext", schema="public"),
)
CATALOG = KnownCatalog(OWN)
NUMERIC_10_2 = (10 << 16 | 2) + 4
NUMERIC_3_MINUS_2 = (3 << 16 | (-2 & 0x7FF)) + 4
EXACT = ValueFormat(numerics="exact")


def converted(
    text: str | bytes, of_type: str | int, modifier: int = NO_MODIFIER, format_: ValueFormat | None = None
) -> object:
    oid = OIDS[of_type] if isinstance(of_type, str) else of_type
    raw = text.encode() if isinstance(text, str) else text
    return json.loads(converter_of(oid, modifier, CATALOG, format_ or ValueFormat())(raw))


@pytest.mark.parametrize(
    ("of_type", "text", "value"),
    [
        ("bool", "t", True),
        ("bool", "f", False),
        ("int2", "-32768", -32768),
        ("int4", "7", 7),
        ("int8", "9223372036854775807", 9223372036854775807),
        ("oid", "4294967295", 4294967295),
        ("float4", "1.1", 1.1),
        ("float8", "1e+300", 1e300),
        ("float8", "1e-05", 1e-5),
        ("float8", "-0", -0.0),
        ("float8", "NaN", "NaN"),
        ("float4", "Infinity", "Infinity"),
        ("float8", "-Infinity", "-Infinity"),
        ("text", 'a "b" \\ \n\t\x01 ü 🚰', 'a "b" \\ \n\t\x01 ü 🚰'),
        ("varchar", "", ""),
        ("bpchar", "ab  ", "ab  "),
        ("char", "x", "x"),
        ("name", "pg_class", "pg_class"),
        ("json", '{"a": [1, 2]}', '{"a": [1, 2]}'),
        ("jsonb", '{"a": "\\""}', '{"a": "\\""}'),
        ("xml", "<a b='c'/>", "<a b='c'/>"),
        ("uuid", "7c1c7c6e-0f9a-4c53-9f2b-000000000001", "7c1c7c6e-0f9a-4c53-9f2b-000000000001"),
        ("inet", "192.168.0.1/24", "192.168.0.1/24"),
        ("cidr", "10.0.0.0/8", "10.0.0.0/8"),
        ("macaddr", "08:00:2b:01:02:03", "08:00:2b:01:02:03"),
        ("macaddr8", "08:00:2b:01:02:03:04:05", "08:00:2b:01:02:03:04:05"),
        ("int4range", "[1,5)", "[1,5)"),
        ("tstzrange", '["2026-01-01 00:00:00+00",)', '["2026-01-01 00:00:00+00",)'),
        ("int4multirange", "{[1,5),[7,9)}", "{[1,5),[7,9)}"),
        ("tsvector", "'a':1 'b':2", "'a':1 'b':2"),
        ("bytea", "\\x00ff", "AP8="),
        ("bytea", "\\x", ""),
        ("bytea", "\\000\\377a\\\\", base64.b64encode(b"\x00\xffa\\").decode()),
        ("varbit", "101", "BQ=="),
        ("varbit", "", ""),
        ("varbit", "100000001", "AQE="),
        ("point", "(1,2.5)", {"x": 1, "y": 2.5, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAARA", "srid": None}),
        ("box", "(1,1),(0,0)", "(1,1),(0,0)"),
        ("line", "{1,-1,0}", "{1,-1,0}"),
        ("pg_lsn", "16/B374D848", "16/B374D848"),
        ("money", "$1,234.56", "1234.56"),
        ("money", "-$0.05", "-0.05"),
        ("money", "($1.00)", "-1.00"),
        ("money", "1.234,56 €", "1234.56"),
        (90001, "ok", "ok"),
        (90002, '{ok,"so so",NULL}', ["ok", "so so", None]),
        (90003, "12.34", "12.34"),
        (90004, "{1.00,2.50}", ["1.00", "2.50"]),
        (90006, '"a"=>"1", "b"=>NULL, "c\\"d"=>"e\\\\f, \\"g\\"=>"',
         '{"a":"1","b":null,"c\\"d":"e\\\\f, \\"g\\"=>"}'),
        (90006, "", "{}"),
        (90007, "[1,2.5,-3]", [1, 2.5, -3]),
        (90008, "0101000020E6100000000000000000F03F0000000000000040",
         {"wkb": "AQEAACDmEAAAAAAAAAAA8D8AAAAAAAAAQA==", "srid": 4326}),
        (90008, "0101000000000000000000F03F0000000000000040",
         {"wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": None}),
        (90009, '(1,"a b")', '(1,"a b")'),
        (90010, "x", "x"),
        (90011, "MiXed", "MiXed"),
        (424242, "of a type nobody knows", "of a type nobody knows"),
    ],
)  # fmt: skip
def test_a_value_is_written_as_debezium_writes_it(of_type: str | int, text: str, value: object) -> None:
    assert converted(text, of_type) == value


@pytest.mark.parametrize(
    ("modifier", "text", "value"),
    [(1, "1", True), (1, "0", False), (3, "011", "Aw=="), (NO_MODIFIER, "10", "Ag==")],
)
def test_one_bit_is_a_boolean_and_several_are_bytes(modifier: int, text: str, value: object) -> None:
    assert converted(text, "bit", modifier) == value


@pytest.mark.parametrize(
    ("of_type", "text", "value"),
    [
        ("_int4", "{}", []),
        ("_int4", "{1,NULL,3}", [1, None, 3]),
        ("_int4", "[0:1]={1,2}", [1, 2]),
        ("_int4", "{{1,2},{3,NULL}}", [[1, 2], [3, None]]),
        ("_text", '{a,"b,c",NULL,"NULL","","{}","q\\"b\\\\"}', ["a", "b,c", None, "NULL", "", "{}", 'q"b\\']),
        ("_text", '{{"a b",c},{d,NULL}}', [["a b", "c"], ["d", None]]),
        ("_bool", "{t,f}", [True, False]),
        ("_numeric", "{1.50,NaN}", ["1.50", "NaN"]),
        ("_date", "{1970-01-02,infinity}", [1, 2147483647]),
        ("_timestamptz", '{"2026-01-02 01:04:05+00"}', ["2026-01-02T01:04:05.000000Z"]),
        ("_bytea", '{"\\\\x00ff"}', ["AP8="]),
        ("_box", "{(1,1),(0,0);(2,2),(0,0)}", ["(1,1),(0,0)", "(2,2),(0,0)"]),
        ("_jsonb", '{"{\\"a\\": 1}"}', ['{"a": 1}']),
        ("_float8", "{1.5,NaN,Infinity}", [1.5, "NaN", "Infinity"]),
    ],
)
def test_arrays_hold_what_their_elements_are(of_type: str, text: str, value: object) -> None:
    assert converted(text, of_type) == value


any_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
arrays = st.recursive(
    st.none() | any_text, lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=8
).map(lambda each: [each])


@given(arrays)
def test_any_array_of_texts_comes_back(value: list[object]) -> None:
    assert converted(as_array(value), "_text") == value


def as_array(value: object) -> str:
    """As PostgreSQL writes it."""
    if isinstance(value, list):
        return "{" + ",".join(map(as_array, value)) + "}"
    if value is None:
        return "NULL"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(st.dictionaries(st.text(max_size=5), st.none() | st.text(max_size=5), max_size=4))
def test_any_hstore_comes_back(pairs: dict[str, str | None]) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    written = ", ".join(
        f"{quoted(key)}=>{'NULL' if value is None else quoted(value)}" for key, value in pairs.items()
    )
    assert json.loads(str(converted(written, 90006))) == pairs


@pytest.mark.parametrize(
    ("modifier", "text", "value"),
    [
        (NUMERIC_10_2, "12.34", "BNI="),
        (NUMERIC_10_2, "2.50", "APo="),
        (NUMERIC_10_2, "-1.28", "gA=="),
        (NUMERIC_10_2, "0.00", "AA=="),
        (NUMERIC_10_2, "NaN", "NaN"),
        (NUMERIC_3_MINUS_2, "12300", "ew=="),
        (NUMERIC_3_MINUS_2, "-100", "/w=="),
        (NUMERIC_3_MINUS_2, "0", "AA=="),
        (NO_MODIFIER, "123.456", {"scale": 3, "value": "AeJA"}),
        (NO_MODIFIER, "123.4560", {"scale": 3, "value": "AeJA"}),
        (NO_MODIFIER, "100", {"scale": 0, "value": "ZA=="}),
        (NO_MODIFIER, "100.00", {"scale": 0, "value": "ZA=="}),
        (NO_MODIFIER, "-Infinity", "-Infinity"),
    ],
)
def test_numerics_can_be_written_in_debeziums_exact_encoding(modifier: int, text: str, value: object) -> None:
    assert converted(text, "numeric", modifier, EXACT) == value
    assert converted(text, "numeric", modifier) == text


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**20), max_value=10**20))
def test_an_exact_numeric_can_be_read_back(value: Decimal) -> None:
    written = str(converted(f"{value:f}", "numeric", (30 << 16 | 4) + 4, EXACT))
    unscaled = int.from_bytes(base64.b64decode(written), "big", signed=True)
    assert Decimal(unscaled).scaleb(-4) == value


@given(st.integers())
def test_numbers_take_the_fewest_bytes(number: int) -> None:
    written = twos_complement(number)
    assert int.from_bytes(written, "big", signed=True) == number
    assert len(written) == 1 or int.from_bytes(written[1:], "big", signed=True) != number


def test_the_scale_of_a_numeric_is_in_its_modifier() -> None:
    assert scale_of(NUMERIC_10_2) == 2
    assert scale_of(NUMERIC_3_MINUS_2) == -2
    assert scale_of(NO_MODIFIER) is None


def test_money_can_be_exact_too() -> None:
    assert converted("$12.34", "money", format_=EXACT) == "BNI="
    assert converted("¥1,234", "money", format_=ValueFormat(money_fraction_digits=0)) == "1234"


@pytest.mark.parametrize(
    ("of_type", "modifier", "text", "value"),
    [
        ("date", -1, "2026-01-02", 20455),
        ("date", -1, "1969-12-31", -1),
        ("date", -1, "0001-01-01", -719162),
        ("date", -1, "0001-12-31 BC", -719163),
        ("date", -1, "0044-03-15 BC", -735160),
        ("date", -1, "4713-01-01 BC", -2440550),
        ("date", -1, "10000-01-01", 2932897),
        ("date", -1, "infinity", 2147483647),
        ("date", -1, "-infinity", -2147483648),
        ("time", -1, "12:34:56.789", 45296789000),
        ("time", 6, "24:00:00", 86400000000),
        ("time", 3, "12:34:56.789", 45296789),
        ("time", 0, "00:00:01", 1000),
        ("timetz", -1, "12:34:56.789+02", "10:34:56.789Z"),
        ("timetz", -1, "01:00:00+05:30", "19:30:00Z"),
        ("timetz", -1, "23:00:00-02", "01:00:00Z"),
        ("timestamp", -1, "2026-01-02 03:04:05.678901", 1767323045678901),
        ("timestamp", 3, "2026-01-02 03:04:05.678", 1767323045678),
        ("timestamp", -1, "1969-12-31 23:59:59.999999", -1),
        ("timestamp", -1, "0044-03-15 00:00:00 BC", -735160 * 86400000000),
        ("timestamp", -1, "294276-12-31 23:59:59.999999", 9224318015999999999),
        ("timestamp", -1, "infinity", 9223372036825200000),
        ("timestamp", -1, "-infinity", -9223372036832400000),
        ("timestamptz", -1, "2026-01-02 01:04:05.678901+00", "2026-01-02T01:04:05.678901Z"),
        ("timestamptz", -1, "2026-11-15 19:58:21.73546+00", "2026-11-15T19:58:21.735460Z"),
        ("timestamptz", -1, "2026-01-02 01:04:05+00", "2026-01-02T01:04:05.000000Z"),
        ("timestamptz", 3, "2026-01-02 01:04:05.6+00", "2026-01-02T01:04:05.600Z"),
        ("timestamptz", 0, "2026-01-02 01:04:05+00", "2026-01-02T01:04:05Z"),
        ("timestamptz", -1, "2026-01-02 03:04:05.5+02", "2026-01-02T01:04:05.500000Z"),
        ("timestamptz", 0, "2026-01-01 20:34:05-04:30", "2026-01-02T01:04:05Z"),
        ("timestamptz", 0, "1883-11-18 12:00:00-04:56:02", "1883-11-18T16:56:02Z"),
        ("timestamptz", 0, "0044-03-15 00:00:00+00 BC", "-0043-03-15T00:00:00Z"),
        ("timestamptz", 0, "0001-06-01 00:00:00+00 BC", "0000-06-01T00:00:00Z"),
        ("timestamptz", 0, "10000-01-01 00:00:00+00", "+10000-01-01T00:00:00Z"),
        ("timestamptz", 0, "infinity", "infinity"),
        ("timestamptz", 0, "-infinity", "-infinity"),
        ("interval", -1, "1 day 02:00:00", 93600000000),
        ("interval", -1, "1 year 2 mons 3 days 04:05:06.789", 37091106789000),
        ("interval", -1, "-1 days +02:03:04", -79016000000),
        ("interval", -1, "-00:00:00.5", -500000),
        ("interval", -1, "00:00:00", 0),
        ("interval", -1, "1 mon", 2629800000000),
        ("interval", -1, "infinity", 2**63 - 1),
    ],
)
def test_a_time_is_written_as_debezium_writes_it(
    of_type: str, modifier: int, text: str, value: object
) -> None:
    assert converted(text, of_type, modifier) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 year 2 mons 3 days 04:05:06.789", "P1Y2M3DT4H5M6.789S"),
        ("-1 days -00:00:10", "P0Y0M-1DT0H0M-10S"),
        ("100:00:00", "P0Y0M0DT100H0M0S"),
        ("infinity", "infinity"),
    ],
)
def test_intervals_can_keep_their_parts(text: str, value: str) -> None:
    assert converted(text, "interval", format_=ValueFormat(intervals="iso")) == value


@given(st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31)))  # noqa: DTZ001
def test_times_agree_with_pythons_own(at: datetime) -> None:
    text = at.isoformat(sep=" ")
    expected_us = (at - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001
    assert converted(text, "timestamp") == expected_us
    assert converted(str(at.date()), "date") == (at.date() - date(1970, 1, 1)).days
    iso = at.replace(tzinfo=UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    assert converted(text + "+00", "timestamptz") == iso


@given(st.integers(-4712, 294275), st.integers(0, 364))
def test_dates_beyond_pythons_own_go_on_without_a_gap(year: int, day: int) -> None:
    def days_of(of_year: int, month: int, of_month: int) -> int:
        era = (
            f"{1 - of_year:04d}-{month:02d}-{of_month:02d} BC"
            if of_year < 1
            else f"{of_year:04d}-{month:02d}-{of_month:02d}"
        )
        found = converted(era, "date")
        assert isinstance(found, int)
        return found

    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    first, last = days_of(year, 1, 1), days_of(year, 12, 31)
    assert last - first == 364 + is_leap
    assert days_of(year + 1, 1, 1) == last + 1
    assert first <= first + day <= last


def test_text_that_is_not_utf_8_is_still_told() -> None:
    assert converted(b"caf\xe9", "text") == "caf\\xe9"


@pytest.mark.parametrize(
    "settings", [{"numerics": "double"}, {"intervals": "x"}, {"money_fraction_digits": -1}]
)
def test_a_format_that_is_none_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ValueFormat(**settings)  # type: ignore[arg-type]
