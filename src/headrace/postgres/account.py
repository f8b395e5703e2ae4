"""Whom the embedded PostgreSQL runs as. It refuses to run as root, so root lends it another account."""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace.errors import SetupError

ACCOUNTS: Final = ("postgres", "nobody")
"""Whom root lets it run as: the account that is made for it, where there is one."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine and their group; we are root, or we are that user."""

    user_id: int
    group_id: int
    is_other: bool
    """Whether it is another than the one whom this process runs as."""

    @property
    def process_options(self) -> dict[str, Any]:
        """What `subprocess` starts a process of this account with."""
        if not self.is_other:
            return {}
        return {"user": self.user_id, "group": self.group_id, "extra_groups": []}

    def own(self, path: Path) -> None:
        """Make the account the owner of a file or directory that we have made."""
        if self.is_other:
            os.chown(path, self.user_id, self.group_id)

    def may_enter(self, directory: Path) -> bool:
        """Whether the account can reach what is in a directory, as far as that directory is concerned."""
        return self._may(directory, stat.S_IXOTH)

    def may_run(self, program: Path) -> bool:
        """Whether the account can read and run a file, all the way down from the root directory."""
        ways_in = all(self.may_enter(parent) for parent in program.parents)
        return ways_in and self._may(program, stat.S_IROTH | stat.S_IXOTH)

    def _may(self, path: Path, bits_of_others: int) -> bool:
        found = path.stat()
        if found.st_uid == self.user_id:
            bits = bits_of_others << 6
        elif found.st_gid == self.group_id:
            bits = bits_of_others << 3
        else:
            bits = bits_of_others
        return found.st_mode & bits == bits


def account_for(cluster_dir: Path) -> Account:
    """Whom to run as: ourselves; for root, whoever owns the cluster, or one of the accounts for a new one."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), is_other=False)
    if cluster_dir.exists():
        owner = cluster_dir.stat()
        if owner.st_uid != 0:
            return Account(owner.st_uid, owner.st_gid, is_other=True)
    for name in ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid, is_other=True)
    raise SetupError(
        f"PostgreSQL does not run as root, and there is no user {' or '.join(ACCOUNTS)} to run it as: add "
        "one (useradd --system postgres), run this as another user, or name a database of your own by its DSN"
    )
