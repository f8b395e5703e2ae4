"""TLS over any transport, without I/O: bytes from the socket in, plain bytes out, and the other way round.

The handshake and all later records pass through two memory buffers of OpenSSL. Doing it here, and not in the
event loop, lets limits and time-outs hold from the first byte on, and gives every failure a line in the log
that says what to do.

The name under which a client asks for the broker (SNI) is kept: it is the name that the certificate has to
match again when the client follows the metadata.
"""

from __future__ import annotations

import re
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import ConfigError, ProtocolError
from headrace.security.users_file import FORBIDDEN_MODE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from headrace.config import TlsConfig

HANDSHAKE_BYTES_MAX: Final = 256 * 1024
"""A client that sends more without coming to the end of the handshake is let go."""
READ_BYTES: Final = 256 * 1024
WRITE_BYTES: Final = 1024 * 1024
"""Larger parts are encrypted piece by piece."""
HANDSHAKE_RECORD: Final = 0x16

_HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_SHORT_NAMES: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "domainComponent": "DC",
    "streetAddress": "STREET",
    "userId": "UID",
}
_SPECIAL: Final = re.compile(r'([,+"\\<>;=])')
_ESCAPED: Final = r"\\\1"
_ADVICE: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client must show a certificate: set its ssl.keystore",
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate is not signed by an authority in tls.client_ca",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the broker's certificate: set its CA",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not trust the broker's certificate: set its CA",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept the broker's certificate",
    "UNSUPPORTED_PROTOCOL": "the client speaks a version before TLS 1.2",
    "NO_SHARED_CIPHER": "the client has no cipher in common with the broker",
}

Buffer = bytes | bytearray | memoryview


def make_context(config: TlsConfig) -> ssl.SSLContext:
    """The settings of TLS: 1.2 and 1.3 with OpenSSL's own choice of strong ciphers."""
    _check_private(config.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _NamedObject
    context.sni_callback = _note_name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(config.certificate, config.key, config.key_password or _no_password)
    except ssl.SSLError as error:
        raise ConfigError(
            f"the certificate {config.certificate} and the key {config.key} can't be used "
            f"({error.reason or error}): both must be PEM files and belong together, and the password of an "
            "encrypted key is taken from HEADRACE_TLS_KEY_PASSWORD"
        ) from error
    except OSError as error:
        raise ConfigError(f"can't read {config.certificate}: {error.strerror}") from error
    if config.client_ca is not None:
        _require_client_certificates(context, config.client_ca)
    return context


class _NamedObject(ssl.SSLObject):
    """Knows under which name the client has asked for the broker."""

    asked_name: str | None = None


class TlsStream:
    """The broker's end of one connection. Belongs to the event loop's thread."""

    __slots__ = ("_handshake_bytes", "_incoming", "_object", "_outgoing", "is_ended", "is_established")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object: ssl.SSLObject = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._handshake_bytes = 0
        self.is_established = False
        self.is_ended = False
        """Whether the client has said that nothing more will come."""

    @property
    def server_name(self) -> str | None:
        """What the client calls the broker, where it says so."""
        return self._object.asked_name if isinstance(self._object, _NamedObject) else None

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the socket; return the plain bytes in them. Raises ProtocolError."""
        if not self.is_established:
            self._check_start(data)
        self._incoming.write(data)
        try:
            if not self.is_established:
                self._object.do_handshake()
                self.is_established = True
            return self._read()
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLError as error:
            doing = "the connection" if self.is_established else "the TLS handshake"
            raise ProtocolError(f"{doing} failed: {_explained(error)}") from error

    def send(self, parts: Iterable[Buffer]) -> bytes:
        """Take plain bytes; return all bytes that are due on the socket."""
        for part in parts:
            for start in range(0, len(part), WRITE_BYTES):
                self._object.write(memoryview(part)[start : start + WRITE_BYTES])
        return self._outgoing.read()

    def due(self) -> bytes:
        """Bytes of the protocol itself that are due on the socket."""
        return self._outgoing.read()

    def close(self) -> bytes:
        """The last bytes: that nothing more will come."""
        if self.is_established:
            # The client's own farewell has not come, and nobody waits for it.
            with suppress(ssl.SSLError):
                self._object.unwrap()
        return self._outgoing.read()

    def subject(self) -> str | None:
        """Whom the client's certificate was made out to, as Kafka writes it; None where it showed none."""
        certificate = self._object.getpeercert() if self.is_established else None
        if not certificate:
            return None
        subject: Any = certificate["subject"]
        return distinguished_name(subject)

    def _read(self) -> bytes:
        pieces: list[bytes] = []
        try:
            while piece := self._object.read(READ_BYTES):
                pieces.append(piece)
            self.is_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_ended = True
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _check_start(self, data: bytes) -> None:
        if self._handshake_bytes == 0 and data[0] != HANDSHAKE_RECORD:
            raise ProtocolError(
                "the first bytes are not a TLS handshake, and this port speaks TLS only; the client must set "
                "security.protocol to SSL, or to SASL_SSL where log-ins are asked for"
            )
        self._handshake_bytes += len(data)
        if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
            raise ProtocolError(f"the TLS handshake took more than {HANDSHAKE_BYTES_MAX} bytes")


def distinguished_name(subject: Iterable[Iterable[tuple[str, str]]]) -> str:
    """A certificate's subject in the form of RFC 2253, the most specific part first, as Kafka writes it."""
    parts = [
        "+".join(f"{_SHORT_NAMES.get(name, name)}={_SPECIAL.sub(_ESCAPED, value)}" for name, value in part)
        for part in subject
    ]
    return ",".join(reversed(parts))


def _explained(error: ssl.SSLError) -> str:
    reason = error.reason or str(error)
    return f"{reason} ({_ADVICE[reason]})" if reason in _ADVICE else reason


def _note_name(stream: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
    if isinstance(stream, _NamedObject) and name is not None and _HOST_NAME.fullmatch(name):
        stream.asked_name = name


def _require_client_certificates(context: ssl.SSLContext, authorities: Path) -> None:
    try:
        context.load_verify_locations(authorities)
    except ssl.SSLError as error:
        raise ConfigError(f"{authorities} is not a PEM file of certificates ({error.reason})") from error
    except OSError as error:
        raise ConfigError(f"can't read {authorities}: {error.strerror}") from error
    context.verify_mode = ssl.CERT_REQUIRED


def _check_private(key: Path) -> None:
    try:
        mode = key.stat().st_mode
    except OSError as error:
        raise ConfigError(f"can't read the key {key}: {error.strerror}") from error
    if mode & FORBIDDEN_MODE:
        raise ConfigError(
            f"refusing the key {key}: others can read or change it (mode {mode & 0o777:o}). "
            f"Run `chmod 600 {key}`"
        )


def _no_password() -> str:
    """OpenSSL would ask at the terminal for the password of an encrypted key, and wait for ever."""
    return ""
