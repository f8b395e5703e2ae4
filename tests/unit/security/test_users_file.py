"""The file of users: reads back what it wrote, refuses what it can't trust."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.security.users import UserRegistry
from headrace.security.users_file import UsersFile, check_user_name, decode_users, encode_users
from headrace.security.verifier import HASHES, ITERATION_COUNT_MIN, ScramVerifier, make_verifier

if TYPE_CHECKING:
    from pathlib import Path

NAMES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20)


@st.composite
def verifiers(draw: Any) -> dict[str, ScramVerifier]:
    found = {}
    for mechanism, size_bytes in draw(
        st.sets(st.sampled_from([("SCRAM-SHA-256", 32), ("SCRAM-SHA-512", 64)]))
    ):
        keys = st.binary(min_size=size_bytes, max_size=size_bytes)
        found[mechanism] = ScramVerifier(
            mechanism=mechanism,
            iteration_count=draw(st.integers(4_096, 16_384)),
            salt=draw(st.binary(min_size=12, max_size=40)),
            stored_key=draw(keys),
            server_key=draw(keys),
        )
    return found


@given(users=st.dictionaries(NAMES, verifiers(), max_size=4))
@settings(max_examples=50)
def test_what_is_written_is_read_back(users: Any) -> None:
    assert decode_users(encode_users(users), "users.json") == users


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b'{"format": 2, "users": {}}',
        b'{"format": 1}',
        b'{"format": 1, "users": {"a b": {}}}',
        b'{"format": 1, "users": {"ann": {"MD5": {}}}}',
        b'{"format": 1, "users": {"ann": {"SCRAM-SHA-256": {}}}}',
        b'{"format": 1, "users": {"ann": {"SCRAM-SHA-256": {"iterations": 5000, "salt": "!"}}}}',
    ],
)
def test_a_file_that_is_not_one_of_users_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"users\.json is not a file of users"):
        decode_users(content, "users.json")


@pytest.mark.parametrize("name", ["", " ", "a b", "a\nb", "ä", "x" * 256, "\x7f"])
def test_a_name_that_could_be_misread_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a user name"):
        check_user_name(name)


def test_a_missing_file_has_no_users(tmp_path: Path) -> None:
    assert UsersFile(tmp_path / "users").read() == {}
    assert UsersFile(tmp_path / "users").stamp() is None


def test_a_file_is_made_with_its_directory_for_its_owner_alone(tmp_path: Path) -> None:
    UserRegistry(tmp_path / "data" / "users").add({"ann": "x"}, iteration_count=ITERATION_COUNT_MIN)
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "data" / "users").stat().st_mode & 0o777 == 0o600
    assert list((tmp_path / "data").iterdir()) == [tmp_path / "data" / "users"]


@pytest.mark.parametrize(
    ("mode", "is_refused"), [(0o600, False), (0o640, False), (0o644, True), (0o620, True)]
)
def test_a_file_that_others_can_read_or_change_is_refused(
    tmp_path: Path, mode: int, is_refused: bool
) -> None:
    path = tmp_path / "users"
    UserRegistry(path).add({"ann": "x"}, iteration_count=ITERATION_COUNT_MIN)
    path.chmod(mode)
    if is_refused:
        with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
            UsersFile(path).read()
    else:
        assert list(UsersFile(path).read()) == ["ann"]


def test_a_change_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    registry = UserRegistry(tmp_path / "users")
    registry.add({"ann": "x"}, iteration_count=ITERATION_COUNT_MIN)
    before = (tmp_path / "users").read_bytes()

    def fail(_users: object) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        registry.change(fail)
    assert (tmp_path / "users").read_bytes() == before
    assert list(tmp_path.iterdir()) == [tmp_path / "users"]


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    UserRegistry(tmp_path / "real").add({"ann": "x"}, iteration_count=ITERATION_COUNT_MIN)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    UserRegistry(tmp_path / "link").add({"bob": "x"}, iteration_count=ITERATION_COUNT_MIN)
    assert (tmp_path / "link").is_symlink()
    assert set(UsersFile(tmp_path / "real").read()) == {"ann", "bob"}


def test_another_registry_sees_a_change_at_once(tmp_path: Path) -> None:
    one, other = UserRegistry(tmp_path / "users"), UserRegistry(tmp_path / "users")
    assert "ann" not in other.all()
    one.add({"ann": "x"}, iteration_count=ITERATION_COUNT_MIN)
    assert set(other.all()["ann"]) == set(HASHES)
    one.change(lambda _users: {})
    assert "ann" not in other.all()


def test_changes_at_the_same_time_all_happen(tmp_path: Path) -> None:
    verifier = make_verifier("SCRAM-SHA-256", "x", salt=b"s" * 12, iteration_count=ITERATION_COUNT_MIN)

    def add(number: int) -> None:
        UserRegistry(tmp_path / "users").change(
            lambda users: {**users, f"user-{number}": {"SCRAM-SHA-256": verifier}}
        )

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(UsersFile(tmp_path / "users").read()) == {f"user-{number}" for number in range(8)}


def test_a_place_where_nothing_can_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"can't (change|read) the users in"):
        UserRegistry(tmp_path / "file" / "users").add({"ann": "x"}, iteration_count=ITERATION_COUNT_MIN)
