"""Decimal numbers: `numeric` and `money`.

As text, which is the default, `12.50` is the string "12.50": exact, readable, and understood wherever a
decimal is wanted. In Debezium's exact encoding it is base64 of the whole number 1250, as the fewest bytes
of its two's complement, most significant first; the reader has to know the scale. Where the column has no
scale, an object holds both: {"scale": 1, "value": ...}, without zeros at the end.

NaN and the infinities are no decimal numbers: both forms write them as strings. (Debezium stops at them where
it writes the exact encoding.)
"""

from __future__ import annotations

import re
from typing import Final

from headrace.cdc.values.scalars import Converter, base64_string, plain

_SPECIAL: Final = frozenset({b"NaN", b"Infinity", b"-Infinity"})
_SCALE_BITS: Final = 0x7FF
_SCALE_SIGN: Final = 0x400
_MODIFIER_HEADER: Final = 4
_MONEY_SIGNIFICANT: Final = re.compile(rb"[0-9]+")


def scale_of(modifier: int) -> int | None:
    """How many digits `numeric(p, s)` has behind the point; None for `numeric` as such."""
    if modifier < _MODIFIER_HEADER:
        return None
    scale = modifier - _MODIFIER_HEADER & _SCALE_BITS
    return scale - 2 * _SCALE_SIGN if scale & _SCALE_SIGN else scale


def exact_numeric(modifier: int) -> Converter:
    """Debezium's encoding of a column's numbers."""
    scale = scale_of(modifier)
    if scale is None:
        return _of_any_scale
    return _of_scale(scale)


def _of_scale(scale: int) -> Converter:
    def convert(value: bytes) -> bytes:
        return plain(value) if value in _SPECIAL else base64_string(twos_complement(unscaled(value, scale)))

    return convert


def _of_any_scale(value: bytes) -> bytes:
    if value in _SPECIAL:
        return plain(value)
    digits = value.rstrip(b"0").rstrip(b".") if b"." in value else value
    scale = len(digits.partition(b".")[2])
    number = base64_string(twos_complement(unscaled(digits, scale)))
    return b'{"scale":%d,"value":%b}' % (scale, number)


def unscaled(value: bytes, scale: int) -> int:
    """The whole number that is the value times ten to the power of the scale."""
    whole, _, fraction = value.partition(b".")
    if scale < 0:
        return int(whole[:scale] if len(whole.lstrip(b"-")) > -scale else 0)
    return int(whole + fraction[:scale].ljust(scale, b"0"))


def twos_complement(number: int) -> bytes:
    """The fewest bytes that hold the number and its sign."""
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def money_text(fraction_digits: int) -> Converter:
    """`$1,234.50` as the string "1234.50"."""

    def convert(value: bytes) -> bytes:
        return plain(_amount(value, fraction_digits))

    return convert


def exact_money(fraction_digits: int) -> Converter:
    """The same as an exact number."""

    def convert(value: bytes) -> bytes:
        amount = _amount(value, fraction_digits)
        return base64_string(twos_complement(unscaled(amount, fraction_digits)))

    return convert


def _amount(value: bytes, fraction_digits: int) -> bytes:
    # How money is written depends on the server's lc_monetary: the sign may be a minus anywhere, or
    # parentheses; point and comma may change places. What is certain is how many digits are behind the point.
    digits = b"".join(_MONEY_SIGNIFICANT.findall(value)).rjust(fraction_digits + 1, b"0")
    sign = b"-" if b"-" in value or b"(" in value else b""
    whole = digits[: len(digits) - fraction_digits]
    return sign + whole + (b"." + digits[-fraction_digits:] if fraction_digits else b"")
