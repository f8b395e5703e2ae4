"""What a demo has to show, by the page's own numbers: alerts, other results, or changes in all stores."""

from __future__ import annotations

import json
import urllib.request
from typing import Any, ClassVar, Final, Protocol

from headrace.cli import demo_recipe
from headrace.errors import FaultError

STATS_TIMEOUT_S: Final = 10.0
_ADVICE: Final = "run again with --verbose to see what the parts print"


class Proof(Protocol):
    """What is to be seen on a page. It begins to count when it is made."""

    def status(self) -> str:
        """How it goes, in a line."""

    def count(self) -> None:
        """Count what came so far. Whoever calls this last does so while the page is still there."""

    def is_given(self) -> bool:
        """Whether what was counted last is enough."""

    def verdict(self, seconds: float) -> str:
        """What was seen, in a line; raises FaultError where that is too little."""


def proof_of(kind: demo_recipe.Proof, page: str) -> Proof:
    """The proof of this kind, by the page at this address."""
    kinds: dict[demo_recipe.Proof, type[AlertsSeen | StoresReached]] = {
        "alerts": AlertsSeen,
        "results": ResultsSeen,
        "stores": StoresReached,
    }
    return kinds[kind](page)


class AlertsSeen:
    """Alerts came."""

    inputs: ClassVar = "transactions"
    """What the input's records are."""
    results: ClassVar = "alerts"
    """What the records are that are shown one by one."""

    def __init__(self, page: str) -> None:
        self._page = page
        self._before = self._count()
        self._seen = 0

    def status(self) -> str:
        """Rate, alerts and latency."""
        try:
            stats = ask(self._page, "stats")
        except (OSError, ValueError) as error:
            return f"the page does not answer: {error}"
        latency = stats["latency"]
        return (
            f"{stats['input']['per_s'] or 0:.0f} {self.inputs}/s   "
            f"{stats['alerts']['alert_count']} {self.results}   "
            f"latency p50 {_ms(latency['p50_ms'])}, p99 {_ms(latency['p99_ms'])}"
        )

    def count(self) -> None:
        """Count the alerts that came meanwhile."""
        self._seen = self._count() - self._before

    def is_given(self) -> bool:
        """Whether there was one."""
        return self._seen > 0

    def verdict(self, seconds: float) -> str:
        """How many there were."""
        if not self.is_given():
            raise FaultError(f"no {self.results.removesuffix('s')} was seen in {seconds:.0f} s: {_ADVICE}")
        return f"{self._seen} {self.results} were seen"

    def _count(self) -> int:
        try:
            return int(ask(self._page, "stats")["alerts"]["alert_count"])
        except (OSError, ValueError) as error:
            raise FaultError(
                f"the page at {self._page} does not say how many {self.results} it has seen: {error}"
            ) from error


class ResultsSeen(AlertsSeen):
    """Results of pipelines came, which are no alerts."""

    inputs = "events"
    results = "results"


class StoresReached:
    """Changes that were made meanwhile have arrived in every store."""

    def __init__(self, page: str) -> None:
        self._page = page
        self._before = self._counts()
        self._seen: dict[str, int] = {}

    def status(self) -> str:
        """How far behind each store is."""
        try:
            stores = ask(self._page, "stores")["stores"]
        except (OSError, ValueError) as error:
            return f"the page does not answer: {error}"
        told = [
            f"{store['pipeline']} {_count(store['lag_rows'])} rows behind, took {_ms(store['took_ms_p50'])}"
            for store in stores
        ]
        return "   ".join(told) or "no store yet"

    def count(self) -> None:
        """Count the changes that came to each store meanwhile."""
        self._seen = {name: count - self._before.get(name, 0) for name, count in self._counts().items()}

    def is_given(self) -> bool:
        """Whether some came to each."""
        return bool(self._seen) and not self._lacking()

    def verdict(self, seconds: float) -> str:
        """How many there were, in each."""
        if not self.is_given():
            stores = ", ".join(self._lacking()) or "any store"
            raise FaultError(f"no change was seen in {stores} in {seconds:.0f} s: {_ADVICE}")
        told = ", ".join(f"{name} {count}" for name, count in sorted(self._seen.items()))
        return f"changes were seen to arrive in all stores: {told}"

    def _lacking(self) -> list[str]:
        return sorted(name for name, count in self._seen.items() if count <= 0)

    def _counts(self) -> dict[str, int]:
        try:
            stores = ask(self._page, "stores")["stores"]
        except (OSError, ValueError) as error:
            raise FaultError(
                f"the page at {self._page} does not say what came to the stores: {error}"
            ) from error
        return {str(store["pipeline"]): int(store["arrived_count"]) for store in stores}


def ask(page: str, what: str) -> dict[str, Any]:
    """The page's own numbers."""
    # The page is on this machine: a proxy that the environment names must not be asked.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    # What the page tells is its address with a token, which only a browser needs.
    with opener.open(f"{page.partition('/?')[0]}/api/{what}", timeout=STATS_TIMEOUT_S) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
