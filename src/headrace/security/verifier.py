"""What is kept of a password: enough to recognise it, not enough to find it out or to log in with.

    salted password = PBKDF2(password, salt, iteration count)        RFC 5802
    stored key      = H(HMAC(salted password, "Client Key"))
    server key      = HMAC(salted password, "Server Key")

Only salt, count and the two keys are kept. A password is taken as its UTF-8 bytes, as all of Kafka's clients
do, without the normalisation (SASLprep) that RFC 5802 asks for.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final, Literal

from headrace.errors import ConfigError

ScramName = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]

HASHES: Final[dict[ScramName, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATION_COUNT_MIN: Final = 4_096
ITERATION_COUNT_MAX: Final = 16_384
"""Both limits are Kafka's own."""
ITERATION_COUNT: Final = 8_192
SALT_BYTES: Final = 24
SALT_BYTES_MIN: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramVerifier:
    """What proves the password of one user, for one mechanism."""

    mechanism: ScramName
    iteration_count: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not ITERATION_COUNT_MIN <= self.iteration_count <= ITERATION_COUNT_MAX:
            accepted = f"{ITERATION_COUNT_MIN} to {ITERATION_COUNT_MAX}"
            raise ConfigError(f"{self.iteration_count} iterations; {accepted} are accepted")
        if len(self.salt) < SALT_BYTES_MIN:
            raise ConfigError(f"a salt of {len(self.salt)} bytes; {SALT_BYTES_MIN} is the least")
        size_bytes = hashlib.new(HASHES[self.mechanism]).digest_size
        if len(self.stored_key) != size_bytes or len(self.server_key) != size_bytes:
            raise ConfigError(f"keys of {self.mechanism} have {size_bytes} bytes")


def make_verifier(
    mechanism: ScramName, password: str, *, salt: bytes, iteration_count: int = ITERATION_COUNT
) -> ScramVerifier:
    """What to keep of a password."""
    salted = _salted(mechanism, password.encode(), salt, iteration_count)
    return verifier_of_salted(mechanism, salted, salt=salt, iteration_count=iteration_count)


def verifier_of_salted(
    mechanism: ScramName, salted_password: bytes, *, salt: bytes, iteration_count: int
) -> ScramVerifier:
    """What to keep of a password that has been salted already, as Kafka's administrators send it."""
    name = HASHES[mechanism]
    return ScramVerifier(
        mechanism=mechanism,
        iteration_count=iteration_count,
        salt=salt,
        stored_key=_stored_key(name, salted_password),
        server_key=hmac.digest(salted_password, b"Server Key", name),
    )


def proves(verifier: ScramVerifier, password: bytes) -> bool:
    """Whether it is the password. Takes the same time whether it is or not: some milliseconds."""
    salted = _salted(verifier.mechanism, password, verifier.salt, verifier.iteration_count)
    return hmac.compare_digest(_stored_key(HASHES[verifier.mechanism], salted), verifier.stored_key)


def _salted(mechanism: ScramName, password: bytes, salt: bytes, iteration_count: int) -> bytes:
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iteration_count)


def _stored_key(name: str, salted_password: bytes) -> bytes:
    return hashlib.new(name, hmac.digest(salted_password, b"Client Key", name)).digest()
