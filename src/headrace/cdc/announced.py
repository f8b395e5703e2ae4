"""Which descriptions of tables are announced on the topic of schemas, also those before a restart.

What was announced is kept with the capture's state, a digest for each table. So a table that was made or
altered while nobody looked is announced as soon as a row shows it, and one that is as it was is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from headrace.cdc.messages import Relation

DIGEST_LENGTH: Final = 8


class Announced:
    """What is announced. Belongs to one thread."""

    def __init__(self, before: Mapping[int, str] | None = None) -> None:
        """`before` are the digests that were kept; None where there are none yet."""
        self._is_beginning = before is None
        self.digests: dict[int, str] = dict(before or {})
        """What is to be kept, by the table's number."""

    def has(self, relation: Relation) -> bool:
        """Whether the table is announced as it is described here."""
        return self.digests.get(relation.oid) == digest_of(relation)

    def knows(self, oid: int) -> bool:
        """Whether the table is announced, as it is or as it was."""
        return oid in self.digests

    def add(self, relation: Relation) -> None:
        """It is announced."""
        self.digests[relation.oid] = digest_of(relation)

    def take(self, relation: Relation) -> None:
        """The table is found in the database. As a capture begins, nobody has to be told of it."""
        if self._is_beginning and not self.knows(relation.oid):
            self.add(relation)

    def begun(self) -> None:
        """The capture has begun: whatever comes up or changes from here on is announced."""
        self._is_beginning = False


def digest_of(relation: Relation) -> str:
    """The same for the same description."""
    columns = [(each.name, each.type_oid, each.modifier, each.is_identity) for each in relation.columns]
    told = repr((relation.schema, relation.name, relation.identity, columns))
    return hashlib.sha256(told.encode()).hexdigest()[:DIGEST_LENGTH]
