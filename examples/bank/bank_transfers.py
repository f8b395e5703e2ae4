"""Transfers: money from one account to another, which are two streams, each with rules of its own.

A transfer is a stream, too: `transfer-<id>`. It is asked for, and then it has arrived or failed; whoever
wants to know looks there. What has to happen between is in bank_workflow.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from bank_accounts import CENTS_MAX, money
from bank_events import TransferCompleted, TransferFailed, TransferRequested
from headrace import events
from headrace.events import Refused

TransferEvent = TransferRequested | TransferCompleted | TransferFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTransfer:
    """Have money go from one account to another."""

    transfer: str
    """The transfer's own stream."""
    source: str
    target: str
    cents: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteTransfer:
    """Note that it has arrived."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FailTransfer:
    """Note that it has not arrived, and why."""

    at: datetime
    reason: str


TransferCommand = RequestTransfer | CompleteTransfer | FailTransfer


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferState:
    """A transfer, as it is after some of its events."""

    status: Literal["none", "requested", "completed", "failed"] = "none"
    source: str = ""
    target: str = ""
    cents: int = 0
    reason: str = ""


@events.decider("transfer")
class Transfer:
    """A transfer between two accounts: `transfer-<id>`."""

    initial = TransferState()

    @staticmethod
    def decide(state: TransferState, command: TransferCommand) -> list[TransferEvent]:
        """What happens when this is asked for, or a refusal."""
        match command:
            case RequestTransfer():
                return _requested(state, command)
            case CompleteTransfer(at=at):
                _require_requested(state)
                return [TransferCompleted(at=at)]
            case FailTransfer(at=at, reason=reason):
                _require_requested(state)
                return [TransferFailed(at=at, reason=reason)]

    @staticmethod
    def evolve(state: TransferState, event: TransferEvent) -> TransferState:
        """The transfer after one more event."""
        match event:
            case TransferRequested(source=source, target=target, cents=cents):
                return replace(state, status="requested", source=source, target=target, cents=cents)
            case TransferCompleted():
                return replace(state, status="completed")
            case TransferFailed(reason=reason):
                return replace(state, status="failed", reason=reason)


def _requested(state: TransferState, command: RequestTransfer) -> list[TransferEvent]:
    if state.status != "none":
        raise Refused("there is a transfer of that number already")
    if command.source == command.target:
        raise Refused("a transfer needs two accounts")
    if not 0 < command.cents <= CENTS_MAX:
        raise Refused(f"{money(command.cents)} can't be moved: at most {money(CENTS_MAX)}, and above 0")
    transfer, source, target = command.transfer, command.source, command.target
    return [
        TransferRequested(transfer=transfer, source=source, target=target, cents=command.cents, at=command.at)
    ]


def _require_requested(state: TransferState) -> None:
    if state.status != "requested":
        raise Refused(f"the transfer is {state.status}: there is nothing to note")
