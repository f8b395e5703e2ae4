"""Who may use the broker, and how connections are encrypted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from headrace.config.checks import require
from headrace.config.environment import default_tls_key_password

SaslMechanism = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]
SASL_MECHANISMS: Final[tuple[SaslMechanism, ...]] = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The broker's certificate, and whose certificates clients must show."""

    certificate: Path
    """A PEM file with the broker's certificate, and after it those up to a root that clients trust."""
    key: Path
    """A PEM file with the certificate's private key. Others than its owner must not be able to read it."""
    key_password: str | None = field(default_factory=default_tls_key_password, repr=False)
    """The password of the key, where it is encrypted."""
    client_ca: Path | None = None
    """A PEM file of authorities. With it, clients must show a certificate that one of them has signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """Who may use the broker, and how clients prove who they are."""

    users_file: Path | None = None
    """The users and what proves their passwords (`headrace users`). With it, clients must log in by SASL."""
    sasl_mechanisms: tuple[SaslMechanism, ...] | None = None
    """How clients may log in. None: by SCRAM, and by PLAIN where nobody on the way can read the password."""
    session_lifetime_ms_max: int = 0
    """After this time a client must log in anew, on the same connection (KIP-368). 0: never."""
    tls: TlsConfig | None = None
    """Encrypt connections. None: plain text."""

    def __post_init__(self) -> None:
        chosen = self.sasl_mechanisms
        require(chosen is None or bool(chosen), "sasl_mechanisms is empty: leave it out, or name one")
        for mechanism in chosen or ():
            require(
                mechanism in SASL_MECHANISMS,
                f"there is no SASL mechanism {mechanism!r} here: use {', '.join(SASL_MECHANISMS)}",
            )
        require(
            chosen is None or self.users_file is not None,
            "sasl_mechanisms needs a users_file to check with",
        )
        require(self.session_lifetime_ms_max >= 0, "session_lifetime_ms_max must be at least 0")

    @property
    def is_authenticated(self) -> bool:
        """Whether clients have to prove who they are."""
        return self.users_file is not None or (self.tls is not None and self.tls.client_ca is not None)
