"""The broker's side of SASL: PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677, by the library `scramp`).

A client's tokens go in, one by one; out come answers, and at the end the user's name, or LoginFailed. What it
says is for the log: the client hears only that it failed.

An unknown user is treated like one whose password is wrong: as many steps, as much work, and the same salt
each time, with as many iterations as users have here. So nobody learns by trying which users there are.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from headrace.errors import FaultError
from headrace.security.verifier import (
    HASHES,
    ITERATION_COUNT,
    SALT_BYTES,
    ScramVerifier,
    proves,
    verifier_of_salted,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.config import SaslMechanism
    from headrace.security.users_file import Users, Verifiers
    from headrace.security.verifier import ScramName

    ReadUsers = Callable[[], Users]

NAME_CHARS_MAX: Final = 255
PLACE_BYTES: Final = 8
_DECOY_KEY: Final = secrets.token_bytes(32)


class LoginFailed(FaultError):
    """A client could not prove who it is."""

    def __init__(self, message: str, *, user: str = "") -> None:
        super().__init__(message)
        self.user = user[:NAME_CHARS_MAX]


@dataclass(frozen=True, slots=True)
class Step:
    """What to send back, and whose log-in it completes, if it does."""

    answer: bytes
    user: str | None = None


class Exchange(Protocol):
    """One log-in."""

    def step(self, token: bytes) -> Step:
        """Take the client's next token. Raises LoginFailed. Takes milliseconds; may wait for the disk."""
        ...


def new_exchange(mechanism: SaslMechanism, read_users: ReadUsers) -> Exchange:
    """Begin a log-in of one of the users that there are when its tokens come."""
    return PlainExchange(read_users) if mechanism == "PLAIN" else ScramExchange(mechanism, read_users)


class PlainExchange:
    """One token: authorisation id, NUL, user, NUL, password."""

    def __init__(self, read_users: ReadUsers) -> None:
        self._read_users = read_users

    def step(self, token: bytes) -> Step:
        """Check the password against the strongest verifier that the user has."""
        try:
            authorisation_id, user, password = token.decode().split("\0")
        except ValueError:
            raise LoginFailed("the token is not PLAIN's: three texts with a NUL between them") from None
        if not user or not password:
            raise LoginFailed("the user's name or the password is empty", user=user)
        if authorisation_id not in {"", user}:
            raise LoginFailed("acting for another user is not possible", user=user)
        users = self._read_users()
        found: Verifiers = users.get(user, {})
        verifier = found.get("SCRAM-SHA-512") or found.get("SCRAM-SHA-256")
        is_right = proves(verifier or decoy("SCRAM-SHA-512", user, users), password.encode())
        if verifier is None:
            raise LoginFailed("there is no such user", user=user)
        if not is_right:
            raise LoginFailed("the password is wrong", user=user)
        return Step(b"", user)


class ScramExchange:
    """Two tokens: the client's first message and its final one."""

    def __init__(self, mechanism: ScramName, read_users: ReadUsers) -> None:
        # Loaded with the first log-in: a broker without users starts faster.
        from scramp import ScramMechanism  # noqa: PLC0415

        self._mechanism: ScramName = mechanism
        self._read_users = read_users
        self._user = ""
        self._is_known = False
        self._has_begun = False
        self._server = ScramMechanism(mechanism).make_server(self._look_up)

    def step(self, token: bytes) -> Step:
        """Take the first or the final message."""
        from scramp import ScramException  # noqa: PLC0415  # see above

        try:
            message = token.decode()
            if not self._has_begun:
                self._has_begun = True
                self._server.set_client_first(message)
                return Step(self._server.get_server_first().encode())
            self._server.set_client_final(message)
            if not self._is_known:
                raise LoginFailed("there is no such user", user=self._user)
            return Step(self._server.get_server_final().encode(), self._user)
        except UnicodeDecodeError:
            raise LoginFailed("a message of SCRAM is not UTF-8", user=self._user) from None
        except ScramException as error:
            raise LoginFailed(self._reason(error), user=self._user) from error

    def _look_up(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        self._user = user
        users = self._read_users()
        verifier = users.get(user, {}).get(self._mechanism)
        self._is_known = verifier is not None
        found = verifier or decoy(self._mechanism, user, users)
        return found.salt, found.stored_key, found.server_key, found.iteration_count

    def _reason(self, error: Exception) -> str:
        if error.__cause__ is not None:
            return str(error.__cause__)
        if "client keys" not in str(error):
            return f"a message of SCRAM is wrong: {error}"
        return "the password is wrong" if self._is_known else f"there is no such user with {self._mechanism}"


def decoy(mechanism: ScramName, user: str, users: Users) -> ScramVerifier:
    """A verifier that no password proves: always the same for a name, as a real one would be.

    Its iterations are those of one of the users, each as likely as the other. While users come and go, few
    names change over to another number.
    """
    seed = hmac.digest(_DECOY_KEY, f"{mechanism} {user}".encode(), HASHES[mechanism])
    salt = hmac.digest(seed, b"salt", "sha256")[:SALT_BYTES]
    counts = sorted(each[mechanism].iteration_count for each in users.values() if mechanism in each)
    place = int.from_bytes(hmac.digest(seed, b"iterations", "sha256")[:PLACE_BYTES]) * len(counts)
    count = counts[place >> 8 * PLACE_BYTES] if counts else ITERATION_COUNT
    return verifier_of_salted(mechanism, seed, salt=salt, iteration_count=count)
