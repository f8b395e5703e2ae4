"""What the queries of Nexmark have to answer, computed in plain Python over all events at once.

It shares nothing with the pipelines but the events: loops over lists and dicts, in the order of the
definitions. Rows are as a pipeline writes them in JSON, with times as text. nexmark.py says what each asks.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from auction_house import milliseconds
from nexmark_world import Row, World, instant

_WINDOW_MS: Final = 10_000
_HOP_MS: Final = 2_000
_EUROS: Final = 0.908


def q0(world: World) -> Iterator[Row]:
    return (_of(bid, "auction", "bidder", "price", "date_time", "extra") for bid in world.bids)


def q1(world: World) -> Iterator[Row]:
    return ({**row, "price": row["price"] * _EUROS} for row in q0(world))


def q2(world: World) -> Iterator[Row]:
    return (_of(bid, "auction", "price") for bid in world.bids if bid["auction"] % 123 == 0)


def q3(world: World) -> Iterator[Row]:
    people = {person["id"]: person for person in world.persons if person["state"] in {"OR", "ID", "CA"}}
    for auction in world.auctions:
        if auction["category"] == 10 and auction["seller"] in people:
            yield {**_of(people[auction["seller"]], "name", "city", "state"), "id": auction["id"]}


def q4(world: World) -> Iterator[Row]:
    finals = defaultdict(list)
    for auction, bids in _valid_bids(world):
        finals[auction["category"]].append(max(bid["price"] for bid in bids))
    return ({"category": category, "average": _mean(found)} for category, found in finals.items())


def q5(world: World) -> Iterator[Row]:
    windows: dict[int, Counter[int]] = defaultdict(Counter)
    for bid in world.bids:
        newest = bid["at"] // _HOP_MS * _HOP_MS
        for start in range(newest, newest - _WINDOW_MS, -_HOP_MS):
            windows[start][bid["auction"]] += 1
    complete = [start for start in windows if start + _WINDOW_MS <= world.complete_until_ms]
    # Of a stream, a window is known to be whole once the next one is there.
    newest = max(complete, default=None) if world.complete_until_ms < math.inf else None
    for start in complete:
        most = max(windows[start].values())
        for auction, count in windows[start].items():
            if count == most and start != newest:
                yield {"auction": auction, "num": count, **_span(start)}


def q6(world: World) -> Iterator[Row]:
    won = defaultdict(list)
    for auction, bids in _valid_bids(world):
        best = _winner(bids)
        won[auction["seller"]].append((best["at"], auction["id"], best["price"]))
    for seller, found in won.items():
        yield {"seller": seller, "average": _mean([price for *_, price in sorted(found)[-10:]])}


def q7(world: World) -> Iterator[Row]:
    windows = defaultdict(list)
    for bid in world.bids:
        windows[bid["at"] // _WINDOW_MS * _WINDOW_MS].append(bid)
    for start, bids in windows.items():
        if start + _WINDOW_MS <= world.complete_until_ms:
            highest = max(bid["price"] for bid in bids)
            names = ("auction", "bidder", "price", "date_time", "extra")
            yield from (
                {"window": _span(start), **_of(bid, *names)} for bid in bids if bid["price"] == highest
            )


def q8(world: World) -> Iterator[Row]:
    sold = {(auction["seller"], auction["at"] // _WINDOW_MS) for auction in world.auctions}
    for person in world.persons:
        window = person["at"] // _WINDOW_MS
        if (person["id"], window) in sold:
            yield {**_of(person, "id", "name"), "start": instant(window * _WINDOW_MS)}


def q9(world: World) -> Iterator[Row]:
    for auction, bids in _valid_bids(world):
        best = _winner(bids)
        told = {"bidder": best["bidder"], "price": best["price"], "bid_at": instant(best["at"])}
        yield {**_of(auction, "id", "item_name", "category", "seller"), **told}


def q10(world: World) -> Iterator[Row]:
    for bid in world.bids:
        row = _of(bid, "auction", "bidder", "price", "date_time", "extra")
        yield {**row, "day": _day(bid), "minute": _minute(bid)}


def q11(world: World) -> Iterator[Row]:
    times = defaultdict(list)
    for bid in world.bids:
        times[bid["bidder"]].append(bid["at"])
    for bidder, found in times.items():
        sessions: list[list[int]] = []
        for at in sorted(found):
            if sessions and at - sessions[-1][-1] < _WINDOW_MS:
                sessions[-1].append(at)
            else:
                sessions.append([at])
        for session in sessions:
            end = session[-1] + _WINDOW_MS
            if end <= world.complete_until_ms:
                window = {"start": instant(session[0]), "end": instant(end)}
                yield _window(bidder, window, len(session))


def q12(world: World) -> Iterator[Row]:
    counts = Counter((bid["bidder"], bid["logged"] // _WINDOW_MS * _WINDOW_MS) for bid in world.bids)
    for (bidder, start), count in counts.items():
        if start + _WINDOW_MS <= world.logged_until_ms:
            yield _window(bidder, _span(start), count)


def q13(world: World) -> Iterator[Row]:
    for bid in world.bids:
        value = f"side-{bid['auction'] % 10_000}"
        yield {**_of(bid, "auction", "bidder", "price", "date_time"), "value": value}


def q14(world: World) -> Iterator[Row]:
    for row in q1(world):
        if 1_000_000 < row["price"] < 50_000_000:
            hour = int(row["date_time"][11:13])
            kind = "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"
            yield {**row, "bid_time_type": kind, "c_count": row["extra"].count("c")}


def q15(world: World) -> Iterator[Row]:
    for day, bids in _grouped(world.bids, _day).items():
        yield {"day": day, **_statistics(bids)}


def q16(world: World) -> Iterator[Row]:
    for (channel, day), bids in _grouped(world.bids, lambda bid: (bid["channel"], _day(bid))).items():
        told = {"channel": channel, "day": day, "channel_day": f"{channel} {day}"}
        yield {**told, "minute": max(map(_minute, bids)), **_statistics(bids)}


def q17(world: World) -> Iterator[Row]:
    for (auction, day), bids in _grouped(world.bids, lambda bid: (bid["auction"], _day(bid))).items():
        prices = [bid["price"] for bid in bids]
        yield {
            "auction": auction,
            "day": day,
            "total_bids": len(bids),
            **{f"{rank}_bids": len(found) for rank, found in _ranks(bids).items()},
            "min_price": min(prices),
            "max_price": max(prices),
            "avg_price": _mean(prices),
            "sum_price": sum(prices),
        }


def q18(world: World) -> Iterator[Row]:
    for bids in _grouped(world.bids, lambda bid: (bid["bidder"], bid["auction"])).values():
        yield _ranked(max(bids, key=lambda bid: (bid["at"], bid["price"])), 1)


def q19(world: World) -> Iterator[Row]:
    for bids in _grouped(world.bids, lambda bid: bid["auction"]).values():
        best = sorted(bids, key=lambda bid: (bid["price"], bid["at"], bid["bidder"]), reverse=True)
        yield from (_ranked(bid, rank) for rank, bid in enumerate(best[:10], 1))


def q20(world: World) -> Iterator[Row]:
    auctions = {auction["id"]: auction for auction in world.auctions if auction["category"] == 10}
    names = ("item_name", "initial_bid", "seller", "category", "expires")
    for bid in world.bids:
        if bid["auction"] in auctions:
            made = _of(bid, "auction", "bidder", "price", "channel", "date_time")
            yield {**made, **_of(auctions[bid["auction"]], *names)}


def q21(world: World) -> Iterator[Row]:
    known = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    for bid in world.bids:
        _, marked, told = bid["url"].partition("&channel_id=")
        channel_id = known.get(bid["channel"].lower(), told.split("&")[0] if marked else None)
        if channel_id:
            yield {**_of(bid, "auction", "bidder", "price", "channel"), "channel_id": channel_id}


def q22(world: World) -> Iterator[Row]:
    for bid in world.bids:
        parts = bid["url"].split("/")
        directories = {f"dir{number}": parts[2 + number] for number in (1, 2, 3)}
        yield {**_of(bid, "auction", "bidder", "price", "channel"), **directories}


ANSWERS: Final[Mapping[str, Callable[[World], Iterator[Row]]]] = {
    answer.__name__: answer
    for answer in (
        *(q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11),
        *(q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22),
    )
}


def _of(row: Row, *names: str) -> Row:
    return {name: _written(name, row[name]) for name in names}


def _written(name: str, value: Any) -> Any:
    return instant(milliseconds(value)) if name in {"date_time", "expires"} else value


def _span(start_ms: int) -> Row:
    return {"start": instant(start_ms), "end": instant(start_ms + _WINDOW_MS)}


def _window(bidder: int, window: Row, count: int) -> Row:
    return {"bidder": bidder, "window": window, "bid_count": count, "firing": "on_time"}


def _valid_bids(world: World) -> Iterator[tuple[Row, list[Row]]]:
    """The auctions that have bids while they are open, with these."""
    bids = _grouped(world.bids, lambda bid: bid["auction"])
    for auction in world.auctions:
        expires = milliseconds(auction["expires"])
        valid = [bid for bid in bids.get(auction["id"], ()) if auction["at"] <= bid["at"] <= expires]
        if valid:
            yield auction, valid


def _winner(bids: list[Row]) -> Row:
    return max(bids, key=lambda bid: (bid["price"], -bid["at"], bid["bidder"]))


def _ranked(bid: Row, rank: int) -> Row:
    names = ("auction", "bidder", "price", "channel", "url", "date_time", "extra")
    return {**_of(bid, *names), "rank": rank, "removed": False}


def _grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    groups = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _ranks(bids: list[Row]) -> dict[str, list[Row]]:
    return {
        "rank1": [bid for bid in bids if bid["price"] < 10_000],
        "rank2": [bid for bid in bids if 10_000 <= bid["price"] < 1_000_000],
        "rank3": [bid for bid in bids if bid["price"] >= 1_000_000],
    }


def _statistics(bids: list[Row]) -> Row:
    found = {"total": bids, **_ranks(bids)}
    told: Row = {f"{rank}_bids": len(members) for rank, members in found.items()}
    for column in ("bidder", "auction"):
        told |= {
            f"{rank}_{column}s": len({bid[column] for bid in members}) for rank, members in found.items()
        }
    return told


def _mean(values: list[int]) -> float:
    return sum(values) / len(values)


def _day(bid: Row) -> str:
    return str(bid["date_time"][:10])


def _minute(bid: Row) -> str:
    return str(bid["date_time"][11:16])
