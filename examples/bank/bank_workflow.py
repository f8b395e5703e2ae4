"""How a transfer goes its way: events in, commands out.

    TransferRequested ─▶ SendTransfer to the source ─┬─ TransferSent ─▶ ReceiveTransfer to the target ─┐
                                                     └─ refused ─▶ FailTransfer                        │
        ┌──────────────────────────────────────────────────────────────────────────────────────────────┘
        ├─ TransferReceived ─▶ CompleteTransfer
        └─ refused ─▶ once more after a while ─▶ refused ─▶ ReturnTransfer ─▶ TransferReturned ─▶ FailTransfer

What has been done can't be made undone: it is made good by another event. Each command has an id that follows
from the event that led to it, so whatever is killed when, no money moves twice and none is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bank_accounts import ReceiveTransfer, ReturnTransfer, SendTransfer
from bank_events import (
    TransferCompleted,
    TransferFailed,
    TransferReceived,
    TransferRequested,
    TransferReturned,
    TransferSent,
)
from bank_transfers import CompleteTransfer, FailTransfer
from headrace.events.processes import CommandRefused, Send, SetTimer, TimedOut, process

TRY_AGAIN_AFTER: Final = timedelta(seconds=10)
"""A target that takes nothing now may have been opened by then."""
ATTEMPT_COUNT_MAX: Final = 2
AGAIN: Final = "again"
NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnItsWay:
    """A transfer that has not ended. One that has ended is forgotten: it is as if it had not begun."""

    transfer: str = ""
    source: str = ""
    target: str = ""
    cents: int = 0
    at: datetime = NEVER
    refusal_count: int = 0
    """How often the target has refused it."""


@process("transfers")
class Transfers:
    """Takes each transfer from one account to the other, or back."""

    initial = OnItsWay()

    @staticmethod
    def correlate(event: Any) -> str | None:
        """Which transfer an event is of: the name of its stream."""
        match event.data:
            case TransferRequested() | TransferCompleted() | TransferFailed():
                return str(event.stream)
            case TransferSent() | TransferReceived() | TransferReturned():
                return str(event.data.transfer)
            case _:
                return None

    @staticmethod
    def evolve(state: OnItsWay, event: object) -> OnItsWay:
        """What is known of a transfer after one more event."""
        match event:
            case TransferRequested(transfer=transfer, source=source, target=target, cents=cents, at=at):
                return OnItsWay(transfer=transfer, source=source, target=target, cents=cents, at=at)
            case CommandRefused(command=ReceiveTransfer()):
                return replace(state, refusal_count=state.refusal_count + 1)
            case TransferCompleted() | TransferFailed():
                return OnItsWay()
            case _:
                return state

    @staticmethod
    def react(state: OnItsWay, event: object) -> list[Send | SetTimer]:
        """What is to be done about it."""
        match event:
            case TransferRequested():
                return [Send(stream=state.source, command=_sent(state))]
            case TransferSent() | TimedOut():
                return [Send(stream=state.target, command=_received(state))]
            case TransferReceived(at=at):
                return [Send(stream=state.transfer, command=CompleteTransfer(at=at))]
            case TransferReturned(at=at, reason=reason):
                return [Send(stream=state.transfer, command=FailTransfer(at=at, reason=reason))]
            case CommandRefused():
                return _after_refusal(state, event)
            case _:
                return []


def _after_refusal(state: OnItsWay, refused: CommandRefused) -> list[Send | SetTimer]:
    match refused.command:
        case SendTransfer(at=at):
            # Nothing has moved yet.
            return [Send(stream=state.transfer, command=FailTransfer(at=at, reason=refused.reason))]
        case ReceiveTransfer() if state.refusal_count < ATTEMPT_COUNT_MAX:
            return [SetTimer(name=AGAIN, after=TRY_AGAIN_AFTER)]
        case ReceiveTransfer():
            return [Send(stream=state.source, command=_returned(state, refused.reason))]
        case _:
            # The others are refused only where the transfer has ended.
            return []


def _sent(state: OnItsWay) -> SendTransfer:
    return SendTransfer(transfer=state.transfer, to=state.target, cents=state.cents, at=state.at)


def _received(state: OnItsWay) -> ReceiveTransfer:
    return ReceiveTransfer(transfer=state.transfer, sender=state.source, cents=state.cents, at=state.at)


def _returned(state: OnItsWay, reason: str) -> ReturnTransfer:
    return ReturnTransfer(transfer=state.transfer, cents=state.cents, at=state.at, reason=reason)
