"""Personal fields, encrypted so that they can be forgotten although events never change.

Each person (subject) has a key of its own. A personal field is stored as

    {"$sealed": "<base64 of nonce and AES-256-GCM ciphertext>", "subject": "customer-42"}

and is bound to its event's type, its field and its subject: moved elsewhere, it can't be opened. Forgetting a
person destroys the key. What it sealed stays in the log, in topics and in old copies of both, and can be
read by nobody; it is shown as a placeholder then. A copy of the table of keys can read it for as long as that
copy is kept: backups of keys must be given up in the time in which persons have to be forgotten.

Keys are asked for in each call and never kept longer, so that no process goes on reading what another has
forgotten.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headrace.errors import SubjectForgotten, UnreadableEvents
from headrace.events.event_type import FORGOTTEN, EventType
from headrace.events.journal import Journal
from headrace.events.records import SubjectKey

SEALED: Final = "$sealed"
_NONCE_BYTES: Final = 12
_KEY_BITS: Final = 256


class ForgottenText(str):
    """Stands where a personal field was, until the type says what to show there."""

    __slots__ = ()


class Keyring:
    """The keys that one call needs. Not for several threads."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._keys: dict[str, SubjectKey] = {}

    def fetch(self, subjects: Iterable[str]) -> None:
        """Ask for the keys of several persons at once."""
        unknown = {subject for subject in subjects if subject not in self._keys}
        if unknown:
            found = self._journal.keys(unknown)
            self._keys.update({each: found.get(each, SubjectKey(key=None)) for each in unknown})

    def key(self, subject: str) -> bytes | None:
        """The key of a person; none if it is forgotten."""
        self.fetch((subject,))
        return self._keys[subject].key

    def make(self, subjects: Iterable[str]) -> None:
        """See to it that all of these persons have a key. Raises SubjectForgotten."""
        wanted = set(subjects)
        if not wanted:
            return
        self.fetch(wanted)
        missing = [each for each in wanted if self._keys[each] == SubjectKey(key=None)]
        if missing:
            made = self._journal.make_keys({each: AESGCM.generate_key(_KEY_BITS) for each in missing})
            self._keys.update(made)
        for each in sorted(wanted):
            if self._keys[each].key is None:
                raise SubjectForgotten(
                    f"{each!r} was forgotten at {self._keys[each].forgotten_at}: personal data can't be "
                    "kept under that name again; somebody who comes back needs a new one"
                )


def subjects_of(described: EventType, event: Any) -> dict[str, str]:
    """Whose each personal field is."""
    return {name: subject_of(event) for name, subject_of in described.personal.items()}


def seal(type_: str, data: dict[str, Any], owners: Mapping[str, str], keyring: Keyring) -> dict[str, Any]:
    """Encrypt the fields that are personal; `owners` says whose they are. None stays None."""
    sealed = dict(data)
    for name, subject in owners.items():
        if data.get(name) is not None:
            key = keyring.key(subject)
            assert key is not None, "keys are made before anything is sealed"
            nonce = os.urandom(_NONCE_BYTES)
            plain = msgspec.json.encode(data[name])
            box = nonce + AESGCM(key).encrypt(nonce, plain, _bound_to(type_, name, subject))
            sealed[name] = {SEALED: b64encode(box).decode(), "subject": subject}
    return sealed


def unseal(type_: str, data: dict[str, Any], keyring: Keyring) -> dict[str, Any]:
    """Decrypt what is sealed. Where the person is forgotten, a ForgottenText stands."""
    return {
        name: _opened(type_, name, value, keyring) if is_sealed(value) else value
        for name, value in data.items()
    }


def is_sealed(value: Any) -> bool:
    """Whether a value of a field is one that was encrypted."""
    return isinstance(value, dict) and SEALED in value


def _opened(type_: str, name: str, value: dict[str, Any], keyring: Keyring) -> Any:
    subject, box = value["subject"], b64decode(value[SEALED])
    key = keyring.key(subject)
    if key is None:
        return ForgottenText(FORGOTTEN)
    try:
        plain = AESGCM(key).decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], _bound_to(type_, name, subject))
    except InvalidTag as error:
        raise UnreadableEvents(
            f"{name!r} of a {type_} does not open with the key of {subject!r}: one of them was changed"
        ) from error
    return msgspec.json.decode(plain)


def _bound_to(type_: str, name: str, subject: str) -> bytes:
    return f"{type_}\0{name}\0{subject}".encode()
