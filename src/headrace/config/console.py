"""What the web page shows, and where it is served."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace.config.address import Address
from headrace.config.checks import check_topic_name, require
from headrace.config.environment import default_bootstrap, default_console_token

TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{20,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """What the web page shows, and where it is served."""

    listen: Address = field(default_factory=lambda: Address("127.0.0.1", 8500))
    """Where the page is served. Loopback only: what it shows has no log-in."""
    bootstrap: str = field(default_factory=default_bootstrap)
    """The broker whose topics are shown."""
    alerts_topic: str = "fraud-alerts"
    """The topic whose records appear on the page as they come."""
    input_topic: str = "transactions"
    """The topic whose rate is shown beside the alerts'."""
    data_dir: Path | None = None
    """Where pipelines tell what they do; without it the page shows none."""
    client_options: Mapping[str, str] = field(default_factory=dict)
    """Settings of librdkafka that a secured broker asks for, such as a user and a certificate."""
    token: str | None = field(default_factory=default_console_token, repr=False)
    """Lets a browser act; None: another one at each start, which nobody can guess."""
    recent_alert_count_max: int = 200
    """How many alerts a page that has just opened is given."""
    viewer_count_max: int = 100
    """Further pages are refused with 503."""
    viewer_backlog_max: int = 1_000
    """A page that falls further behind is cut off; the browser reconnects by itself."""

    def __post_init__(self) -> None:
        require(
            self.listen.is_loopback,
            f"refusing to listen on {self.listen}: the page has no log-in, so it is only "
            "served on loopback; use 127.0.0.1",
        )
        check_topic_name(self.alerts_topic)
        check_topic_name(self.input_topic)
        require(bool(self.bootstrap), "bootstrap is empty: name a broker, such as 127.0.0.1:9092")
        require(
            self.token is None or TOKEN.fullmatch(self.token) is not None,
            "the token is too short or has characters that an address can't have: use 20 to 200 letters, "
            "digits, - and _, or leave it out",
        )
        require(self.recent_alert_count_max >= 1, "recent_alert_count_max must be at least 1")
        require(self.viewer_count_max >= 1, "viewer_count_max must be at least 1")
        require(self.viewer_backlog_max >= 1, "viewer_backlog_max must be at least 1")
