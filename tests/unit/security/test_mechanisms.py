"""Log-ins token by token, against an independent implementation of SCRAM's client side."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.security.mechanisms import LoginFailed, decoy, new_exchange
from headrace.security.users import verifiers_of
from headrace.security.verifier import (
    HASHES,
    ITERATION_COUNT,
    ITERATION_COUNT_MIN,
    ScramVerifier,
    make_verifier,
    proves,
    verifier_of_salted,
)

if TYPE_CHECKING:
    from headrace.security.users_file import Users
    from headrace.security.verifier import ScramName

MECHANISMS: list[Any] = list(HASHES)
USERS = {
    "ann": verifiers_of("hunter2", iteration_count=ITERATION_COUNT_MIN),
    "a=b,c": verifiers_of("x", iteration_count=ITERATION_COUNT_MIN),
}


def read_users() -> Users:
    return USERS


class ScramClient:
    """RFC 5802, written down here once more."""

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self._hash = HASHES[mechanism]  # type: ignore[index]  # a name of the parametrisation
        self._password = password.encode()
        name = user.replace("=", "=3D").replace(",", "=2C")
        self.first_bare = f"n={name},r=rOprNGfwEbeRWgbNEkqO"

    @property
    def first(self) -> bytes:
        return f"n,,{self.first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        assert fields["r"].startswith("rOprNGfwEbeRWgbNEkqO")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, b64decode(fields["s"]), int(fields["i"]))
        bare = f"c=biws,r={fields['r']}"
        message = f"{self.first_bare},{server_first.decode()},{bare}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), message, self._hash)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self.expected = b"v=" + b64encode(hmac.digest(server_key, message, self._hash))
        return f"{bare},p={b64encode(proof).decode()}".encode()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("ann", "hunter2"), ("a=b,c", "x")])
def test_scram_lets_in_whoever_knows_the_password_and_proves_that_the_broker_knows_it_too(
    mechanism: ScramName, user: str, password: str
) -> None:
    client, exchange = ScramClient(mechanism, user, password), new_exchange(mechanism, read_users)
    first = exchange.step(client.first)
    assert first.user is None
    last = exchange.step(client.final(first.answer))
    assert (last.user, last.answer) == (user, client.expected)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    ("user", "password", "reason"),
    [("ann", "wrong", "the password is wrong"), ("eve", "hunter2", "there is no such user")],
)
def test_scram_turns_away_a_wrong_password_and_an_unknown_user_at_the_same_step(
    mechanism: ScramName, user: str, password: str, reason: str
) -> None:
    client, exchange = ScramClient(mechanism, user, password), new_exchange(mechanism, read_users)
    first = exchange.step(client.first)
    with pytest.raises(LoginFailed, match=reason) as raised:
        exchange.step(client.final(first.answer))
    assert raised.value.user == user


def test_an_unknown_user_gets_the_same_salt_each_time_and_others_another() -> None:
    salts = [decoy("SCRAM-SHA-256", name, USERS).salt for name in ("eve", "eve", "mallory")]
    assert salts[0] == salts[1] != salts[2]
    assert len(salts[0]) == len(next(iter(USERS["ann"].values())).salt)


def test_unknown_users_have_as_many_iterations_as_users_have() -> None:
    few, many = ITERATION_COUNT_MIN, 2 * ITERATION_COUNT_MIN
    users = {f"user {number}": verifiers_of("x", iteration_count=few) for number in range(3)}
    users["other"] = verifiers_of("x", iteration_count=many)
    names = [f"stranger {number}" for number in range(400)]
    counts = [decoy("SCRAM-SHA-256", name, users).iteration_count for name in names]
    assert set(counts) == {few, many}
    assert 200 < counts.count(few) < 400, "three of four users have few"
    assert counts == [decoy("SCRAM-SHA-256", name, users).iteration_count for name in names]
    assert decoy("SCRAM-SHA-256", "anybody", {}).iteration_count == ITERATION_COUNT


@pytest.mark.parametrize("mechanism", MECHANISMS)
@given(tokens=st.lists(st.binary(max_size=60) | st.text(max_size=60).map(str.encode), max_size=3))
@settings(max_examples=100)
def test_no_noise_logs_anybody_in_by_scram(mechanism: ScramName, tokens: list[bytes]) -> None:
    exchange = new_exchange(mechanism, read_users)
    for token in tokens:
        try:
            assert exchange.step(token).user is None
        except LoginFailed:
            return


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_proof_that_is_altered_proves_nothing(mechanism: ScramName) -> None:
    client, exchange = ScramClient(mechanism, "ann", "hunter2"), new_exchange(mechanism, read_users)
    final = client.final(exchange.step(client.first).answer)
    with pytest.raises(LoginFailed):
        exchange.step(final.replace(b",p=", b",x=1,p="))


def test_a_replayed_final_message_is_refused_because_the_nonce_is_new() -> None:
    client, exchange = (
        ScramClient("SCRAM-SHA-256", "ann", "hunter2"),
        new_exchange("SCRAM-SHA-256", read_users),
    )
    final = client.final(exchange.step(client.first).answer)
    other = new_exchange("SCRAM-SHA-256", read_users)
    other.step(client.first)
    with pytest.raises(LoginFailed, match="nonce"):
        other.step(final)


def test_a_file_of_users_that_can_not_be_read_lets_nobody_in_and_says_why() -> None:
    def fail() -> Users:
        raise ConfigError("the file is broken")

    for mechanism in MECHANISMS:
        with pytest.raises(LoginFailed, match="the file is broken"):
            new_exchange(mechanism, fail).step(ScramClient(mechanism, "ann", "hunter2").first)
    with pytest.raises(ConfigError, match="the file is broken"):
        new_exchange("PLAIN", fail).step(b"\0ann\0hunter2")


@pytest.mark.parametrize("token", [b"\0ann\0hunter2", b"ann\0ann\0hunter2"])
def test_plain_lets_in_whoever_sends_the_password(token: bytes) -> None:
    step = new_exchange("PLAIN", read_users).step(token)
    assert (step.user, step.answer) == ("ann", b"")


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"", "three texts"),
        (b"ann", "three texts"),
        (b"\0ann\0hunter2\0", "three texts"),
        (b"\0\xff\0x", "three texts"),
        (b"\0ann\0", "is empty"),
        (b"\0\0hunter2", "is empty"),
        (b"root\0ann\0hunter2", "acting for another user"),
        (b"\0ann\0wrong", "the password is wrong"),
        (b"\0eve\0hunter2", "there is no such user"),
    ],
)
def test_plain_turns_away_all_else(token: bytes, reason: str) -> None:
    with pytest.raises(LoginFailed, match=reason):
        new_exchange("PLAIN", read_users).step(token)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@given(password=st.text(min_size=1, max_size=20), other=st.text(min_size=1, max_size=20))
@settings(max_examples=10)
def test_a_verifier_knows_its_password_and_no_other(mechanism: ScramName, password: str, other: str) -> None:
    verifier = make_verifier(mechanism, password, salt=b"s" * 12, iteration_count=ITERATION_COUNT_MIN)
    assert proves(verifier, password.encode())
    assert proves(verifier, other.encode()) is (password == other)


def test_a_verifier_shows_nothing_that_helps_to_find_the_password() -> None:
    verifier = make_verifier("SCRAM-SHA-256", "hunter2", salt=b"salt-salt-salt")
    assert "key" not in repr(verifier)
    assert "salt" not in repr(verifier)


def test_the_keys_are_those_of_the_example_in_rfc_7677() -> None:
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    verifier = make_verifier("SCRAM-SHA-256", "pencil", salt=salt, iteration_count=4096)
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    assert verifier == verifier_of_salted("SCRAM-SHA-256", salted, salt=salt, iteration_count=4096)
    assert b64encode(verifier.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert b64encode(verifier.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="


@pytest.mark.parametrize(
    "wrong",
    [{"iteration_count": 4_095}, {"iteration_count": 16_385}, {"salt": b"short"}, {"stored_key": b"x"}],
)
def test_a_verifier_that_can_not_be_right_is_refused(wrong: dict[str, Any]) -> None:
    verifier = make_verifier("SCRAM-SHA-256", "x", salt=b"s" * 12)
    fields = {name: getattr(verifier, name) for name in ScramVerifier.__slots__}
    with pytest.raises(ConfigError):
        ScramVerifier(**{**fields, **wrong})
