"""A small bank: its customers ask, it decides, and its books follow.

    python examples/bank/bank_generate.py --dsn postgresql://postgres@127.0.0.1/postgres --rate 5

It makes its tables where they are missing, and in an empty store a history of the year before. Then customers
come: see bank_world.py. Read models and transfers follow in threads of their own, each from where it was.

With `--control BOOTSTRAP` it listens to a topic by which a page moves its rate: see bank_control.py. It never
writes there: what goes to topics is what `headrace capture` finds in the database.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Final

from confluent_kafka import KafkaException

from bank_accounts import Account
from bank_control import ControlReader, create_topic
from bank_read_models import READ_MODELS
from bank_transfers import Transfer
from bank_workflow import TRY_AGAIN_AFTER, Transfers
from bank_world import Wish, World, history
from headrace.clock import Clock
from headrace.errors import HeadraceError
from headrace.events import EventStore, Refused
from headrace.events.postgres import PostgresJournal
from headrace.events.processes import ProcessManager
from headrace.events.projections import PostgresPlace, Projection, ReadModels

RATE_MAX: Final = 10_000.0
HISTORY_COUNT: Final = 600
HISTORY: Final = timedelta(days=365)
BEHIND_S_MAX: Final = 2.0
"""Who can't decide as fast as was asked for leaves out what should have been decided longer ago than this."""
LISTEN_EVERY_S: Final = 0.2


class HistoryClock:
    """Stands where the history is, so that its events are recorded at the times at which they happened."""

    def __init__(self) -> None:
        self.now = datetime.min.replace(tzinfo=UTC)

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return int(self.now.timestamp() * 1000)

    def monotonic_s(self) -> float:
        """The same in seconds."""
        return self.now.timestamp()


class Bank:
    """A store, its read models and its transfers, in one database."""

    def __init__(
        self, dsn: str, clock: Clock | None = None, *, read_models: Sequence[Projection] = READ_MODELS
    ) -> None:
        self._journal = PostgresJournal(dsn, clock=clock)
        self._place = PostgresPlace(dsn)
        self.store = EventStore(self._journal, deciders=[Account, Transfer])
        self.store.check_readable()
        self.read_models = ReadModels(self.store, self._place, read_models)
        self.transfers = ProcessManager(self.store, self._place, Transfers, clock=clock)
        self.refusals: Counter[str] = Counter()
        self.taken_count = 0

    def ask(self, wish: Wish) -> None:
        """Have a wish decided; why one is refused is counted."""
        try:
            self.store.execute(wish.stream, wish.command, command_id=wish.command_id, actor="customer")
        except Refused as refused:
            self.refusals[str(refused).partition(":")[0]] += 1
        else:
            self.taken_count += 1

    def close(self) -> None:
        """Give back the connections."""
        self._place.close()
        self._journal.close()


def write_history(
    dsn: str, seed: int, *, count: int, until: datetime, read_models: Sequence[Projection] = READ_MODELS
) -> None:
    """Have a history decided, and all that follows from it. What is there of it already stays as it is."""
    clock = HistoryClock()
    bank = Bank(dsn, clock, read_models=read_models)
    try:
        for wish in history(seed, since=until - HISTORY, until=until, count=count):
            clock.now = wish.at
            bank.ask(wish)
            if wish.stream.startswith("transfer-"):
                bank.transfers.catch_up()
        # What waits to be tried again is tried.
        clock.now = until + TRY_AGAIN_AFTER
        bank.transfers.catch_up()
        bank.read_models.catch_up()
    finally:
        bank.close()


class Customers:
    """Ask for one thing after the other until they are stopped."""

    def __init__(self, bank: Bank, world: World, listen: Callable[[], float | None]) -> None:
        self._bank = bank
        self._world = world
        self._listen = listen
        self._stopped = False

    def stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """Ask no more. May be called by a signal."""
        self._stopped = True

    def come(self, rate: float, count: int | None) -> None:
        """Ask for so many things a second."""
        due_s, listen_s, asked_count = time.monotonic(), 0.0, 0
        while not self._stopped and (count is None or asked_count < count):
            if time.monotonic() >= listen_s:
                listen_s = time.monotonic() + LISTEN_EVERY_S
                rate = self._listen() or rate
                check(self._bank)
            due_s = max(due_s, time.monotonic() - BEHIND_S_MAX) + 1 / rate
            time.sleep(max(0.0, due_s - time.monotonic()))
            for wish in self._world.next(datetime.now(UTC)):
                self._bank.ask(wish)
                asked_count += 1


def check(bank: Bank) -> None:
    """Stop where a thread has: a bank whose books stand still must not go on as if nothing were."""
    if bank.transfers.stopped is not None:
        raise bank.transfers.stopped
    for each in bank.read_models.status():
        if each.stopped is not None:
            sys.exit(f"error: the read model {each.name} stands still: {each.stopped}")


def main() -> None:
    """Read the options, write the history, and let customers come."""
    options = _options()
    try:
        if options.control:
            create_topic(options.control)
        with ExitStack() as stack:
            bank = Bank(options.dsn)
            stack.callback(bank.close)
            if bank.store.journal.head() == 0:
                write_history(options.dsn, options.seed, count=options.history, until=datetime.now(UTC))
            if options.history_only:
                return
            _serve(bank, options, stack)
    except HeadraceError as error:
        sys.exit(f"error: {error}")
    except KafkaException as error:
        sys.exit(f"error: the broker at {options.control} does not answer: {error.args[0].str()}")


def _serve(bank: Bank, options: argparse.Namespace, stack: ExitStack) -> None:
    # Another world after each start: what the same one asks for has been decided already.
    world = World(options.seed, f"live after {bank.store.journal.head()}")
    listen = ControlReader(options.control).read if options.control else lambda: None
    customers = Customers(bank, world, listen)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, customers.stop)
    stack.enter_context(bank.read_models.running())
    stack.enter_context(bank.transfers.running())
    print(f"producing {options.rate:g} wishes a second, for the bank to decide", flush=True)
    customers.come(options.rate, options.count)
    refused = ", ".join(f"{reason} {count}" for reason, count in bank.refusals.most_common())
    print(f"decided {bank.taken_count} wishes; refused: {refused or 'none'}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run a small bank on an event store in PostgreSQL.")
    add = parser.add_argument
    dsn = os.environ.get("HEADRACE_POSTGRES")
    add("--dsn", default=dsn, required=dsn is None, help="the database (HEADRACE_POSTGRES)")
    add("--rate", type=_rate, default=5.0, help="wishes a second (%(default)s)")
    add("--seed", type=int, default=7, help="the same seed makes the same wishes (%(default)s)")
    add("--count", type=int, help="stop after so many wishes")
    add("--history", type=int, default=HISTORY_COUNT, help="wishes of the year before (%(default)s)")
    add("--control", metavar="BOOTSTRAP", help="a broker on which to listen to what a page asks for")
    add("--history-only", action="store_true", help="write the history, then stop")
    return parser.parse_args()


def _rate(text: str) -> float:
    value = float(text)
    if not 0 < value <= RATE_MAX:
        raise argparse.ArgumentTypeError(f"must be above 0, and at most {RATE_MAX:g}")
    return value


if __name__ == "__main__":
    main()
