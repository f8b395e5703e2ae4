"""The file of users: who they are and what proves their passwords. No password is in it.

    {"format": 1, "users": {"alice": {"SCRAM-SHA-256": {"iterations": 8192, "salt": "...",
                                                        "stored_key": "...", "server_key": "..."},
                                      "SCRAM-SHA-512": {...}}}}

Bytes are in base 64. Whoever has the file can pretend to be the broker and can try passwords at leisure, so
others than its owner and group must not read it, and only its owner may write it; a file that others could is
refused. It is replaced as a whole: a crash leaves the old content or the new. Changes take a lock on its
directory, so that a command and a running broker can both make them.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
from base64 import b64decode, b64encode
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import ConfigError
from headrace.log.disk import SYSTEM_DISK
from headrace.log.durable_file import make_directory_durably
from headrace.security.verifier import HASHES, ScramVerifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.security.verifier import ScramName

    Verifiers = Mapping[ScramName, ScramVerifier]
    Users = Mapping[str, Verifiers]

USERS_FILE_NAME: Final = "users.json"
"""Where users are kept, below the data directory, when no other place is named."""
FORBIDDEN_MODE: Final = 0o027
"""Nobody else may read, and the group may not write."""
USER_NAME: Final = re.compile(r"[!-~]{1,255}")
"""Names that are the same in every mechanism and safe in a log: no spaces, no control characters, ASCII."""
_FORMAT: Final = 1


def check_user_name(name: str) -> str:
    """Return the name, or say what is wrong with it."""
    if not USER_NAME.fullmatch(name):
        raise ConfigError(
            f"{name[:255]!r} is not a user name: use 1 to 255 letters, digits and signs of ASCII, no spaces"
        )
    return name


def encode_users(users: Users) -> bytes:
    """The file's content."""
    content = {
        "format": _FORMAT,
        "users": {
            name: {mechanism: _fields(verifier) for mechanism, verifier in sorted(verifiers.items())}
            for name, verifiers in sorted(users.items())
        },
    }
    return json.dumps(content, indent=2).encode() + b"\n"


def decode_users(content: bytes, path: object) -> Users:
    """Read the file's content; the path is for the error alone."""
    try:
        fields: dict[str, Any] = json.loads(content)
        _check_format(fields["format"])
        return {
            check_user_name(name): {mechanism: _verifier(mechanism, each[mechanism]) for mechanism in each}
            for name, each in fields["users"].items()
        }
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} is not a file of users ({error}); restore it, or make it anew with `headrace users add`"
        ) from error


class UsersFile:
    """The file at its place. Safe to use from several threads and processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def stamp(self) -> tuple[int, int, int] | None:
        """Differs after each change; None when there is no file."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"can't read the users in {self.path}: {error.strerror}") from error
        return status.st_ino, status.st_mtime_ns, status.st_size

    def read(self) -> Users:
        """All users; none when there is no file."""
        try:
            with self.path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                if mode & FORBIDDEN_MODE:
                    raise ConfigError(
                        f"refusing the users in {self.path}: others can read or change it "
                        f"(mode {mode & 0o777:o}). Run `chmod 600 {self.path}`"
                    )
                return decode_users(file.read(), self.path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"can't read the users in {self.path}: {error.strerror}") from error

    def change(self, edit: Callable[[Users], Users]) -> Users:
        """Replace the users by what the function makes of them; nothing changes if it raises."""
        with self._locked():
            users = edit(self.read())
            self._replace(encode_users(users))
            return users

    @contextmanager
    def _locked(self) -> Iterator[None]:
        directory = self.path.resolve().parent
        try:
            make_directory_durably(SYSTEM_DISK, directory)
            file = os.open(directory, os.O_RDONLY)
        except OSError as error:
            raise ConfigError(f"can't change the users in {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    def _replace(self, content: bytes) -> None:
        # A link stays a link: what it points to is replaced.
        target = self.path.resolve()
        try:
            number, temporary = tempfile.mkstemp(prefix=".users-", dir=target.parent)
            try:
                with os.fdopen(number, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).rename(target)
            except BaseException:
                with suppress(FileNotFoundError):
                    Path(temporary).unlink()
                raise
            SYSTEM_DISK.sync_directory(target.parent)
        except OSError as error:
            raise ConfigError(f"can't change the users in {self.path}: {error.strerror}") from error


def _check_format(number: object) -> None:
    if number != _FORMAT:
        raise ConfigError(f"it has format {number}; this version reads format {_FORMAT}")


def _fields(verifier: ScramVerifier) -> dict[str, object]:
    return {
        "iterations": verifier.iteration_count,
        "salt": b64encode(verifier.salt).decode(),
        "stored_key": b64encode(verifier.stored_key).decode(),
        "server_key": b64encode(verifier.server_key).decode(),
    }


def _verifier(mechanism: str, fields: dict[str, Any]) -> ScramVerifier:
    if mechanism not in HASHES:
        raise ConfigError(f"there is no mechanism {mechanism!r}; {', '.join(HASHES)} are known")
    return ScramVerifier(
        mechanism=mechanism,
        iteration_count=int(fields["iterations"]),
        salt=b64decode(fields["salt"], validate=True),
        stored_key=b64decode(fields["stored_key"], validate=True),
        server_key=b64decode(fields["server_key"], validate=True),
    )
