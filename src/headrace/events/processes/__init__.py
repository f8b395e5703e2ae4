"""Process managers: events in, commands out, with time-outs and compensation."""

from headrace.events.processes.manager import ProcessManager
from headrace.events.processes.process import (
    CancelTimer,
    CommandRefused,
    Process,
    Send,
    SetTimer,
    TimedOut,
    process,
)
from headrace.events.processes.rows import Outcome, SentCommand
from headrace.events.processes.step import Input, Stepped, step

__all__ = [
    "CancelTimer",
    "CommandRefused",
    "Input",
    "Outcome",
    "Process",
    "ProcessManager",
    "Send",
    "SentCommand",
    "SetTimer",
    "Stepped",
    "TimedOut",
    "process",
    "step",
]
