"""Card fraud in real time: three rules and a model, over each card's history and its holder's profile.

    headrace run examples/fraud/pipeline.py --realtime

The rules. For a transaction t, W(t, m) is the set of transactions u of the same card with

    t.at - m minutes < u.at <= t.at

and p(t) is the transaction before t in the order of (at, tx_id). Transactions with the same tx_id are copies
of one. The limits are those of the profile: its last version with since <= t.at; if there is none, the usual
ones.

    velocity   W(t, 1) has more than `count_max` (5) members
    spending   W(t, 10) comes to more than `total_max` (5,000)
    travel     from p(t) to t it is 50 km or more, and more than `kmh_max` (500) kilometres an hour
    model      the score of t is above 0.9

They are rules about sets: in which order transactions and profiles arrive does not matter.

The stream. Whenever a transaction or a profile arrives, the transactions that it concerns are judged again.
So an alert can come again, with the same `alert_id` and more evidence; and where a late arrival has made it
untrue, it comes with `holds: false`. So does one that another version of the profile would have raised, if
a run that was killed may have met the transaction before the profile: when the profile came in a batch that
began after the transaction was sent. The last one with an id counts, which is what a topic keyed by it means.

The bound. A card's HISTORY_LIMIT newest transactions and PROFILE_LIMIT newest profiles are kept; within it
all is exact. Beyond it, an alert whose window may begin before the kept history, or whose transaction is
older than all kept profiles (then the usual limits count), says `complete: false`; and a transaction that
comes too late to be kept at all, or in a micro-batch with too many others of its card, raises an alert of the
rule `history-overflow`: one for each card and day, because with which transaction it is found depends on
where batches end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from card_model import read_model
from card_rules import (
    COUNT_MAX,
    KMH_MAX,
    TOTAL_MAX,
    as_of,
    distance_km,
    features,
    measure,
    previous,
    score,
    total,
    window,
    within,
)

HISTORY_LIMIT: Final = 50
PROFILE_LIMIT: Final = 8
ALERT_LIMIT: Final = 1_000
MICRO_BATCH_LIMIT: Final = 10_000
BLOCKED_FROM: Final = 3
"""So many suspicious activities of a holder block the card."""
OVERFLOW: Final = "history-overflow"
LATE: Final = "INTERVAL 1 MINUTE"
MODEL = read_model(Path(__file__).with_name("model.json"))

transactions = hr.topic(
    "transactions",
    schema=(
        "tx_id string not null, card_id string not null, amount double not null, at timestamp not null, "
        "merchant string, lat double not null, lon double not null"
    ),
    event_time="at",
    # What comes from a clock that is far ahead would push all else out of its card's history.
    max_ahead="1 minute",
    # A micro-batch of a long backlog would have more transactions of a card than are kept of it.
    max_records_per_batch=MICRO_BATCH_LIMIT,
)
profiles = hr.topic(
    "card-profiles",
    schema=(
        "card_id string not null, holder_id string, tier string, home_lat double, home_lon double, "
        "count_max int, total_max double, kmh_max double, since timestamp not null"
    ),
)
alerts = hr.topic(
    "fraud-alerts",
    schema=(
        "alert_id string not null, card_id string not null, holder_id string, at timestamp not null, "
        "holds boolean not null"
    ),
    key="alert_id",
)


@hr.pipeline(writes=alerts)
def fraud_alerts(transactions: DataFrame, profiles: DataFrame) -> DataFrame:
    """Alerts of cards that are used as thieves use them."""
    found = _alerts(_verdicts(_measured(_suspects(_history(transactions, profiles)))))
    return hr.corrected(found, key="alert_id", order_by="version", holds="holds", beside="sent_at")


def features_of(transactions: DataFrame, profiles: DataFrame) -> DataFrame:
    """What the model looks at, of each of these static transactions: to train it with."""
    measured = _measured(_suspects(_history(transactions, profiles)))
    columns = [column.alias(name) for name, column in features(F.col("now")).items()]
    return measured.where("t.is_new").select("card_id", "t.tx_id", *columns)


def _history(transactions: DataFrame, profiles: DataFrame) -> DataFrame:
    sent_at = F.unix_millis("_kafka.timestamp").alias("sent_at")
    return hr.recent(
        transactions.select("card_id", "tx_id", "amount", "at", "merchant", "lat", "lon", sent_at),
        by="card_id",
        order_by="at",
        limit=HISTORY_LIMIT,
        table=profiles.select(
            *("card_id", "holder_id", "tier", "home_lat", "home_lon", "count_max", "total_max", "kmh_max"),
            *("since", sent_at),
        ),
        table_order_by="since",
        table_limit=PROFILE_LIMIT,
    )


# Nobody waits for these, and all transactions are read for them: it is not to slow down the alerts.
@hr.pipeline(writes=hr.topic("transactions.late", key="tx_id"), patience="500 milliseconds")
def late_transactions(transactions: DataFrame) -> DataFrame:
    """Transactions that came more than a minute after they were made. They are judged all the same."""
    written = F.col("_kafka.timestamp")
    return transactions.where(F.col("at") < written - F.expr(LATE)).select(
        *(name for name in transactions.columns if name != "_kafka"),
        F.round((F.unix_micros(written) - F.unix_micros("at")) / 1e6, 3).alias("late_s"),
        F.unix_millis(written).alias("sent_at"),
    )


@hr.pipeline(writes=hr.topic("card-status", key="card_id"))
def card_status(alerts: DataFrame) -> DataFrame:
    """How often each holder was suspicious, and which cards are blocked for it.

    An alert counts once, however often and in however many versions it comes: what is kept is the alerts
    themselves, by their ids, not a number.
    """
    history = hr.recent(
        alerts.select(
            F.coalesce("holder_id", "card_id").alias("holder_id"),
            *("alert_id", "card_id", "at", "holds"),
            F.col("_kafka.offset").alias("version"),
        ),
        by="holder_id",
        order_by="at",
        limit=ALERT_LIMIT,
    )
    sorted_ = F.array_sort(
        F.transform("recent", lambda one: F.struct(one["alert_id"], one["version"], one["holds"]))
    )
    # Versions of an alert have its id as their key, so they lie in one partition, in the order of offsets.
    counted = history.withColumn("versions", sorted_).withColumn(
        "suspicious_count",
        F.size(
            F.filter(
                "versions",
                lambda one, i: (
                    one["holds"]
                    & F.coalesce(F.get("versions", i + 1)["alert_id"] != one["alert_id"], F.lit(True))
                ),
            )
        ),
    )
    new = F.filter("recent", lambda one: one["is_new"])
    cards = F.array_distinct(F.transform(new, lambda one: one["card_id"]))
    return counted.select(
        F.explode(cards).alias("card_id"),
        "holder_id",
        F.when(F.col("suspicious_count") >= BLOCKED_FROM, "blocked")
        .when(F.col("suspicious_count") > 0, "watched")
        # All of its alerts were withdrawn.
        .otherwise("clear")
        .alias("status"),
        "suspicious_count",
        F.try_element_at(new, F.lit(-1))["alert_id"].alias("alert_id"),
        F.try_element_at(new, F.lit(-1))["at"].alias("at"),
    )


def _suspects(history: DataFrame) -> DataFrame:
    """A row for each transaction that has to be judged, because what it is judged by has changed."""
    in_order = F.array_sort(
        F.transform(
            "recent",
            # An old copy comes before a new one, so that what comes a second time is not new.
            lambda one: F.struct(
                *(
                    one[name]
                    for name in ("at", "tx_id", "is_new", "sent_at", "amount", "merchant", "lat", "lon")
                )
            ),
        )
    )
    once = F.filter("copies", lambda one, i: (i == 0) | (one["tx_id"] != F.get("copies", i - 1)["tx_id"]))
    updates = (
        history.withColumn("copies", in_order)
        .withColumn("seen", once)
        .withColumn("new", F.filter("seen", lambda one: one["is_new"]))
        .withColumn("news", F.filter("table", lambda one: one["is_new"]))
    )
    concerned = F.filter(
        "seen",
        lambda one, i: (
            F.exists("new", lambda new: within(new["at"], one["at"], 10))
            | F.exists("news", lambda version: version["since"] <= one["at"])
            | ((i > 0) & F.get("seen", i - 1)["is_new"])
        ),
    )
    reaches_back = F.when(F.size("recent") == HISTORY_LIMIT, F.get("seen", F.lit(0))["at"])
    newest = F.array_max(F.transform(F.filter("recent", lambda one: one["is_new"]), lambda one: one["at"]))
    # Of static rows each is an update, in the order of their time: of those at the same time, the later ones
    # find more of them.
    version = F.struct(newest, F.size(F.filter("recent", lambda one: one["at"] == newest)))
    return updates.select(
        "card_id",
        version.alias("version"),
        "seen",
        "table",
        F.array_max(F.transform("news", lambda version: version["sent_at"])).alias("version_sent_at"),
        reaches_back.alias("reaches_back"),
        may_have_been_met_before(F.col("new"), F.col("table")).alias("may_have_been_met_before"),
        F.explode(
            F.concat(
                F.transform(
                    concerned, lambda one: F.struct(F.lit(False).alias("is_overflow"), one.alias("t"))
                ),
                F.when(
                    F.col("overflow"),
                    F.array(
                        F.struct(
                            F.lit(True).alias("is_overflow"), F.try_element_at("seen", F.lit(-1)).alias("t")
                        )
                    ),
                ).otherwise(F.array()),
            )
        ).alias("suspect"),
    ).select("*", "suspect.*")


def may_have_been_met_before(new: Column, versions: Column) -> Column:
    """Whether a run that was killed may have met one of these transactions, and one of these versions not.

    The killed run had ended when the batch began that brought the version now, and the transaction had been
    sent by then. Static rows have had no run before.
    """
    sent_at = F.array_min(F.transform(new, lambda one: one["sent_at"]))
    return F.coalesce(
        F.exists(versions, lambda one: F.unix_millis(one["came"]) > sent_at),
        F.lit(False),
    )


def _measured(suspects: DataFrame) -> DataFrame:
    """What the rules come to now, and what they came to before this update."""
    t = F.col("t")
    old = F.filter("seen", lambda one: ~one["is_new"])
    old_versions = F.filter("table", lambda one: ~one["is_new"])
    windows = suspects.select(
        "*",
        window(F.col("seen"), t["at"], 1).alias("minute"),
        window(F.col("seen"), t["at"], 10).alias("ten"),
        previous(F.col("seen"), t).alias("previous"),
        as_of(F.col("table"), t["at"]).alias("profile"),
        F.when(
            ~t["is_new"],
            F.struct(
                window(old, t["at"], 1).alias("minute"),
                window(old, t["at"], 10).alias("ten"),
                previous(old, t).alias("previous"),
                as_of(old_versions, t["at"]).alias("profile"),
            ),
        ).alias("old"),
    )
    now = measure(t, F.col("minute"), F.col("ten"), F.col("previous"), F.col("profile"))
    before = measure(t, *(F.col("old")[name] for name in ("minute", "ten", "previous", "profile")))
    return windows.select(
        "*",
        now.alias("now"),
        F.when(F.col("old").isNotNull(), before).alias("before"),
    )


def _verdicts(measured: DataFrame) -> DataFrame:
    """A row for each rule that a transaction breaks, has broken before, or may have by another profile."""
    now = _judged(F.col("now"), F.col("profile"))
    elsewhere = _judged_by_any_profile()
    before = _judged(F.col("before"), F.col("old.profile"))
    at, ten, reaches_back = F.col("t.at"), F.col("ten"), F.col("reaches_back")
    pair = F.filter(F.array("previous", "t"), lambda one: one.isNotNull())
    evidence = {"velocity": F.col("minute"), "spending": ten, "travel": pair, "model": ten}
    minutes = {"velocity": 1, "spending": 10, "travel": 0, "model": 10}
    is_older_than_profiles = (F.size("table") == PROFILE_LIMIT) & (F.get("table", F.lit(0))["since"] > at)
    rules = [
        _verdict(
            rule,
            evidence[rule],
            now[rule],
            holds=~F.col("is_overflow") & (now[rule][0] > now[rule][1]),
            # A transaction that has just come has not broken anything before.
            held=~F.col("is_overflow")
            & (
                (F.col("old").isNotNull() & F.coalesce(before[rule][0] > before[rule][1], F.lit(False)))
                | (F.col("may_have_been_met_before") & elsewhere[rule])
            ),
            complete=~is_older_than_profiles
            & (reaches_back.isNull() | (reaches_back <= at - F.expr(f"INTERVAL {minutes[rule]} MINUTE"))),
        )
        for rule in evidence
    ]
    overflow = _verdict(
        OVERFLOW,
        ten,
        (F.size("seen").cast("double"), F.lit(float(HISTORY_LIMIT))),
        holds=F.col("is_overflow"),
        held=F.lit(False),
        complete=F.lit(False),
    )
    raised = F.filter(F.array(*rules, overflow), lambda one: one["holds"] | one["held"])
    newest = F.array_max(F.transform("seen", lambda one: F.when(one["is_new"], one["sent_at"])))
    return measured.select(
        "card_id",
        "version",
        "t",
        "profile",
        F.coalesce(newest, "version_sent_at").alias("update_sent_at"),
        F.explode(raised).alias("verdict"),
    )


def _judged(measures: Column, profile: Column) -> dict[str, tuple[Column, Column]]:
    """What each rule has measured, and the limit that it is held against."""
    return {
        "velocity": (measures["count_1m"], F.coalesce(profile["count_max"], F.lit(COUNT_MAX)).cast("double")),
        "spending": (measures["total_10m"], F.coalesce(profile["total_max"], F.lit(TOTAL_MAX))),
        "travel": (measures["kmh"], F.coalesce(profile["kmh_max"], F.lit(KMH_MAX))),
        "model": (score(measures, MODEL.weights, MODEL.intercept), F.lit(MODEL.limit)),
    }


def _judged_by_any_profile() -> dict[str, Column]:
    """Whether a rule is broken by some version of the profile that is known, or by none.

    A run that was killed may have met the transaction before a profile that the present run has met first,
    and may have raised an alert by what it knew. Nobody remembers; so whatever it can have raised is
    withdrawn.
    """
    now, t = F.col("now"), F.col("t")

    def strictest(name: str, usual: float) -> Column:
        limits = F.transform("table", lambda one: F.coalesce(one[name].cast("double"), F.lit(usual)))
        return F.least(F.lit(usual), F.array_min(limits))

    from_homes = F.transform(
        "table", lambda one: distance_km(t["lat"], t["lon"], one["home_lat"], one["home_lon"])
    )
    farthest = now.withField("km_from_home", F.coalesce(F.array_max(from_homes), F.lit(0.0)))
    nearest = now.withField("km_from_home", F.lit(0.0))
    return {
        "velocity": now["count_1m"] > strictest("count_max", COUNT_MAX),
        "spending": now["total_10m"] > strictest("total_max", TOTAL_MAX),
        "travel": now["kmh"] > strictest("kmh_max", KMH_MAX),
        # The score grows, or falls, with the distance: between these two there is none beyond them.
        "model": F.greatest(*(score(each, MODEL.weights, MODEL.intercept) for each in (nearest, farthest)))
        > MODEL.limit,
    }


def _verdict(
    rule: str,
    evidence: Column,
    judged: tuple[Column, Column],
    *,
    holds: Column,
    held: Column,
    complete: Column,
) -> Column:
    value, limit = judged
    return F.struct(
        F.lit(rule).alias("rule"),
        holds.alias("holds"),
        held.alias("held"),
        F.round(value, 3).alias("value"),
        F.when(F.lit(rule == "travel"), F.round("now.km", 1)).alias("km"),
        limit.alias("limit"),
        complete.alias("complete"),
        F.when(holds | held, evidence).alias("evidence"),
    )


def _alerts(verdicts: DataFrame) -> DataFrame:
    evidence, rule = F.col("verdict.evidence"), F.col("verdict.rule")
    newest = F.array_max(F.transform(evidence, lambda one: F.when(one["is_new"], one["sent_at"])))
    about = F.when(rule == OVERFLOW, F.date_format("t.at", "yyyy-MM-dd")).otherwise(F.col("t.tx_id"))
    return verdicts.select(
        F.sha2(F.concat_ws("/", rule, "card_id", about), 256).substr(1, 32).alias("alert_id"),
        rule.alias("rule"),
        "card_id",
        "t.tx_id",
        "t.at",
        F.size(evidence).alias("count"),
        F.transform(evidence, lambda one: one["tx_id"]).alias("evidence"),
        total(evidence).alias("total"),
        F.transform(
            evidence,
            lambda one: F.struct(
                *(one[name] for name in ("tx_id", "at", "amount", "merchant", "lat", "lon"))
            ),
        ).alias("transactions"),
        "verdict.value",
        "verdict.limit",
        "verdict.km",
        "profile.holder_id",
        "profile.tier",
        "profile.home_lat",
        "profile.home_lon",
        "verdict.holds",
        "verdict.complete",
        F.coalesce(newest, "update_sent_at").alias("sent_at"),
        "version",
    )
