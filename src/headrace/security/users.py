"""The users of a running broker: the file's, read again whenever it has changed.

So a user who is added or removed by `headrace users` can log in, or can't, from the next log-in on; sessions
that are open stay open.
"""

from __future__ import annotations

import secrets
from threading import Lock
from typing import TYPE_CHECKING

from headrace.security.users_file import UsersFile, check_user_name
from headrace.security.verifier import HASHES, ITERATION_COUNT, SALT_BYTES, make_verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from headrace.security.users_file import Users
    from headrace.security.verifier import ScramName, ScramVerifier


class UserRegistry:
    """Reads and changes the file of users. Waits for the disk; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._file = UsersFile(path)
        self._lock = Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._users: Users = {}

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._file.path

    def all(self) -> Users:
        """All users and their verifiers."""
        with self._lock:
            stamp = self._file.stamp()
            if stamp is None or stamp != self._stamp:
                self._users = self._file.read()
                self._stamp = stamp
            return self._users

    def change(self, edit: Callable[[Users], Users]) -> None:
        """Replace the users by what the function makes of them; nothing changes if it raises."""
        with self._lock:
            self._users = self._file.change(edit)
            self._stamp = self._file.stamp()

    def add(self, passwords: Mapping[str, str], *, iteration_count: int = ITERATION_COUNT) -> None:
        """Add users, or give them other passwords, for all mechanisms."""
        added = {
            check_user_name(name): verifiers_of(password, iteration_count=iteration_count)
            for name, password in passwords.items()
        }
        self.change(lambda users: {**users, **added})


def verifiers_of(password: str, *, iteration_count: int = ITERATION_COUNT) -> dict[ScramName, ScramVerifier]:
    """What to keep of a password, for all mechanisms."""
    return {
        mechanism: make_verifier(
            mechanism, password, salt=secrets.token_bytes(SALT_BYTES), iteration_count=iteration_count
        )
        for mechanism in HASHES
    }
