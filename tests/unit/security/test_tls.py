"""TLS without sockets: whatever the pieces in which bytes come, the same plain bytes come out."""

from __future__ import annotations

import random
import ssl
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trustme

from headrace.config import TlsConfig
from headrace.errors import ProtocolError
from headrace.security.tls import (
    HANDSHAKE_BYTES_MAX,
    WRITE_BYTES,
    TlsStream,
    distinguished_name,
    make_context,
)

if TYPE_CHECKING:
    from pathlib import Path


class Client:
    """The other end, on memory buffers as well."""

    def __init__(self, authority: trustme.CA, name: str = "broker.example.org") -> None:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=name)

    def shake_hands(self) -> bytes:
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def write(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()

    def read(self, data: bytes) -> bytes:
        self.incoming.write(data)
        found = b""
        try:
            while piece := self.tls.read(1 << 20):
                found += piece
        except ssl.SSLWantReadError:
            pass
        return found


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def context(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    directory: Path = tmp_path_factory.mktemp("tls")
    leaf = authority.issue_cert("broker.example.org")
    (directory / "certificate").write_bytes(b"".join(each.bytes() for each in leaf.cert_chain_pems))
    (directory / "key").write_bytes(leaf.private_key_pem.bytes())
    (directory / "key").chmod(0o600)
    return make_context(TlsConfig(certificate=directory / "certificate", key=directory / "key"))


def connected(context: ssl.SSLContext, authority: trustme.CA) -> tuple[TlsStream, Client]:
    stream, client = TlsStream(context), Client(authority)
    while not stream.is_established:
        assert stream.receive(client.shake_hands()) == b""
        client.incoming.write(stream.due())
    client.shake_hands()
    return stream, client


@pytest.mark.parametrize("seed", range(5))
def test_plain_bytes_come_out_as_they_went_in_whatever_the_pieces(
    context: ssl.SSLContext, authority: trustme.CA, seed: int
) -> None:
    seeded = random.Random(seed)
    stream, client = connected(context, authority)
    sent = seeded.randbytes(seeded.randrange(1, 100_000))
    encrypted = client.write(sent)
    received = b""
    while encrypted:
        size = seeded.choice([1, 7, 1_000, 50_000])
        received += stream.receive(encrypted[:size])
        encrypted = encrypted[size:]
    assert received == sent


def test_a_handshake_that_comes_byte_by_byte_comes_to_its_end(
    context: ssl.SSLContext, authority: trustme.CA
) -> None:
    stream, client = TlsStream(context), Client(authority)
    while not stream.is_established:
        for byte in client.shake_hands():
            stream.receive(bytes([byte]))
        client.incoming.write(stream.due())
    assert stream.server_name == "broker.example.org"


def test_answers_of_many_and_of_large_parts_reach_the_client_whole(
    context: ssl.SSLContext, authority: trustme.CA
) -> None:
    stream, client = connected(context, authority)
    parts: list[bytes | bytearray | memoryview] = [
        b"head",
        bytearray(b"x" * (WRITE_BYTES + 1)),
        memoryview(b"tail"),
        b"",
    ]
    assert client.read(stream.send(parts)) == b"".join(bytes(part) for part in parts)


def test_a_farewell_is_noticed_and_given(context: ssl.SSLContext, authority: trustme.CA) -> None:
    stream, client = connected(context, authority)
    last = client.write(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    assert stream.receive(last + client.outgoing.read()) == b"last"
    assert stream.is_ended
    client.incoming.write(stream.close())
    client.tls.unwrap()


@pytest.mark.parametrize("seed", range(30))
def test_noise_ends_in_an_error_of_the_protocol_or_waits_for_more(
    context: ssl.SSLContext, authority: trustme.CA, seed: int
) -> None:
    seeded = random.Random(seed)
    stream, client = TlsStream(context), Client(authority)
    hello = bytearray(client.shake_hands())
    for _ in range(seeded.randrange(1, 5)):
        hello[seeded.randrange(len(hello))] = seeded.randrange(256)
    with suppress(ProtocolError):
        assert stream.receive(bytes(hello)) == b""
    assert not stream.is_established


def test_a_handshake_that_never_ends_is_cut_off(context: ssl.SSLContext) -> None:
    stream = TlsStream(context)
    # A record of a handshake message that announces 16 MB, and then bytes of it.
    record = b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(0x4000 - 4)
    records = [record] * (HANDSHAKE_BYTES_MAX // len(record) + 1)
    with pytest.raises(ProtocolError, match="TLS handshake"):
        deque(map(stream.receive, records), maxlen=0)


def test_a_certificates_subject_is_written_as_kafka_writes_it() -> None:
    subject = ((("countryName", "NL"),), (("organizationName", "Mill, Ltd"),), (("commonName", "a=b"),))
    assert distinguished_name(subject) == r"CN=a\=b,O=Mill\, Ltd,C=NL"
    assert distinguished_name(((("commonName", "a"), ("userId", "7")),)) == "CN=a+UID=7"


def test_a_name_that_is_no_host_name_is_not_taken_over(
    context: ssl.SSLContext, authority: trustme.CA
) -> None:
    stream, client = TlsStream(context), Client(authority, "under_score.example.org")
    stream.receive(client.shake_hands())
    assert stream.server_name is None
