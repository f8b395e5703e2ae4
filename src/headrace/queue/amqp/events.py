"""What comes of a client's bytes, besides messages (`Publish`) and methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.queue.amqp.methods import Method


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginAsked:
    """A client says who it is. Answer with `login_succeeded` or `login_failed`."""

    mechanism: str
    response: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAsked:
    """A client wants a virtual host. Answer with `open_succeeded` or `fail`."""

    virtual_host: str


@dataclass(frozen=True, slots=True)
class ChannelOpened:
    """A channel is there. It was answered already."""


@dataclass(frozen=True, slots=True)
class ChannelClosed:
    """A channel is gone, by its client's wish. It was answered already."""


class Ack:
    """basic.ack, which comes with every message."""

    __slots__ = ("delivery_tag", "is_multiple")

    def __init__(self, delivery_tag: int, *, is_multiple: bool) -> None:
        self.delivery_tag = delivery_tag
        self.is_multiple = is_multiple


Event = LoginAsked | OpenAsked | ChannelOpened | ChannelClosed | Ack | Method
"""`Publish` is one as well."""

CHANNEL_OPENED: Final = ChannelOpened()
CHANNEL_CLOSED: Final = ChannelClosed()
