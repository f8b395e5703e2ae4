"""Where servers listen, and whom that lets in."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from headrace.config.checks import require
from headrace.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, or where a client finds it."""

    host: str
    port: int

    def __post_init__(self) -> None:
        require(bool(self.host), "an address needs a host, such as 127.0.0.1:9092")
        require(0 <= self.port <= 65535, f"{self.port} is not a port: use 0 to 65535 (0 picks a free one)")

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `host:port`, with an IPv6 host in brackets: `[::1]:9092`."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal():
            raise ConfigError(f"{text!r} is not an address: write host:port, such as 127.0.0.1:9092")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def check_metrics_address(listen: Address | None, *, is_public: bool) -> None:
    """Refuse to serve metrics, which need no log-in, where others could read them, unless that is meant."""
    require(
        listen is None or listen.is_loopback or is_public,
        f"refusing to serve metrics on {listen}, where everybody could read the names of topics, groups and "
        "pipelines. Use 127.0.0.1, or allow it (--metrics-public) on a network that you trust",
    )
