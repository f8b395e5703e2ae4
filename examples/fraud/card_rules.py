"""The rules as expressions of Spark: they run in real-time mode, in micro-batches and in batch alike.

All are about one transaction t, the history of its card and the card's profile, as structs:

    seen      the card's transactions, each once, in the order of (at, tx_id)
    profile   the last version that is not later than t

`measure` says what they come to. The features of the model are made of the same measures, so they are the
same when it is trained and when it is applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

COUNT_MAX: Final = 5
TOTAL_MAX: Final = 5_000.0
KMH_MAX: Final = 500.0
"""The limits of a card whose holder is not known."""
KM_MIN: Final = 50.0
"""Shorter ways are no journeys: places are not that exact."""
RISKY: Final = ("electronics", "gift-cards", "jewellery")
FEATURES: Final = ("amount", "count_1m", "total_10m", "speed", "from_home", "risky")
EARTH_RADIUS_KM: Final = 6371.0

_SECOND_US: Final = 1_000_000
_HOUR_US: Final = 3_600 * _SECOND_US


def within(at: Column, end: Column, minutes: int) -> Column:
    """Whether a moment lies in the minutes that end with another, their beginning not included."""
    return (at > end - F.expr(f"INTERVAL {minutes} MINUTE")) & (at <= end)


def window(seen: Column, at: Column, minutes: int) -> Column:
    """The transactions of the minutes that end with this moment."""
    return F.filter(seen, lambda one: within(one["at"], at, minutes))


def previous(seen: Column, transaction: Column) -> Column:
    """The transaction before this one; null if it is the first."""
    place = F.struct(transaction["at"], transaction["tx_id"])
    earlier = F.filter(seen, lambda one: F.struct(one["at"], one["tx_id"]) < place)
    return F.try_element_at(earlier, F.lit(-1))


def as_of(versions: Column, at: Column) -> Column:
    """The last of these versions that is not later; null if there is none."""
    return F.try_element_at(F.filter(versions, lambda one: one["since"] <= at), F.lit(-1))


def total(transactions: Column) -> Column:
    """Their money, added up in cents: sums of fractions would depend on their order."""
    cents = F.transform(transactions, lambda one: F.round(one["amount"] * 100))
    return F.aggregate(cents, F.lit(0.0), lambda sum_, one: sum_ + one) / 100


def distance_km(lat: Column, lon: Column, other_lat: Column, other_lon: Column) -> Column:
    """The way over ground between two places."""
    a, b = F.radians(lat), F.radians(other_lat)
    half = F.pow(F.sin((b - a) / 2), 2) + F.cos(a) * F.cos(b) * F.pow(
        F.sin(F.radians(other_lon - lon) / 2), 2
    )
    # Rounding may make it a little more than 1; least() would make 1 of a null as well.
    return F.lit(2 * EARTH_RADIUS_KM) * F.asin(F.when(half > 1, 1.0).otherwise(F.sqrt(half)))


def measure(transaction: Column, minute: Column, ten: Column, before: Column, profile: Column) -> Column:
    """What the rules come to, as a struct: count_1m, total_10m, km, kmh, and the features of the model."""
    km = F.coalesce(
        distance_km(before["lat"], before["lon"], transaction["lat"], transaction["lon"]), F.lit(0.0)
    )
    passed_us = F.unix_micros(transaction["at"]) - F.unix_micros(before["at"])
    kmh = F.when(km >= KM_MIN, km / (F.greatest(passed_us, F.lit(_SECOND_US)) / _HOUR_US)).otherwise(0.0)
    from_home = distance_km(transaction["lat"], transaction["lon"], profile["home_lat"], profile["home_lon"])
    return F.struct(
        F.size(minute).cast("double").alias("count_1m"),
        total(ten).alias("total_10m"),
        km.alias("km"),
        kmh.alias("kmh"),
        F.coalesce(from_home, F.lit(0.0)).alias("km_from_home"),
        F.coalesce(transaction["merchant"].isin(*RISKY), F.lit(False)).alias("is_risky"),
        transaction["amount"].alias("amount"),
    )


def features(measures: Column) -> dict[str, Column]:
    """What the model looks at. Refunds are negative amounts, and no logarithm is there for them."""
    return {
        "amount": F.log1p(F.greatest(measures["amount"], F.lit(0.0))),
        "count_1m": measures["count_1m"],
        "total_10m": F.log1p(F.greatest(measures["total_10m"], F.lit(0.0))),
        "speed": F.log1p(measures["kmh"]),
        "from_home": F.log1p(measures["km_from_home"]),
        "risky": measures["is_risky"].cast("double"),
    }


def score(measures: Column, weights: Mapping[str, float], intercept: float) -> Column:
    """How sure a logistic regression is that it is fraud."""
    weighed = F.lit(intercept)
    for name, feature in features(measures).items():
        weighed += F.lit(weights[name]) * feature
    return F.lit(1.0) / (F.lit(1.0) + F.exp(-weighed))
