"""The embedded Redis: started, stopped, killed, and never left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from headrace.config import Address, RedisConfig
from headrace.embedded import is_named
from headrace.errors import ChildFailed, ConfigError, DataDirectoryInUse, UsageError
from headrace.redis import EmbeddedRedis
from headrace.testing.redis import TestRedis
from headrace.testing.waiting import eventually

RUN = """
import sys
from pathlib import Path
from headrace.config import RedisConfig
from headrace.redis import EmbeddedRedis
server = EmbeddedRedis(RedisConfig(data_dir=Path(sys.argv[1]))).start()
print(server.pid, server.url, flush=True)
sys.stdin.read()
"""


def embedded(data_dir: Path, listen: Address | None = None) -> EmbeddedRedis:
    return EmbeddedRedis(RedisConfig(data_dir=data_dir, listen=listen))


def put(url: str, value: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.set("kept", value)


def kept(url: str) -> object:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return client.get("kept")


def in_another_process(data_dir: Path) -> tuple[subprocess.Popen[str], int, str]:
    """A process that runs a server; the server's pid and its URL."""
    holder = subprocess.Popen(
        [sys.executable, "-c", RUN, str(data_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    pid, _, url = holder.stdout.readline().strip().partition(" ")
    return holder, int(pid), url


def kill(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdin.close()
    holder.stdout.close()


def is_running(pid: int, data_dir: Path) -> bool:
    return is_named(pid, data_dir.resolve() / "redis" / "redis.conf")


def watchers_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in found.splitlines() if line.endswith(f'kill -TERM "$1" sh {pid}')]


def test_what_was_written_is_there_after_a_stop_and_on_another_way_in(tmp_path: Path) -> None:
    data_dir = tmp_path / 'with space and "'
    with embedded(data_dir) as server:
        assert server.url.startswith("unix://")
        put(server.url, "42")
    with embedded(data_dir, Address("127.0.0.1", 0)) as server:
        assert "@127.0.0.1:" in server.url
        assert kept(server.url) == "42"
        assert (server.home / "password").stat().st_mode & 0o077 == 0
        assert (server.home / "redis.conf").stat().st_mode & 0o077 == 0
    with pytest.raises(UsageError, match="not running"):
        _ = server.url


def test_nobody_gets_in_without_the_password(headrace_redis: TestRedis) -> None:
    with (
        redis.Redis.from_url(headrace_redis.url.replace("unix://:", "unix://:guessed")) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()


def test_a_second_server_of_a_directory_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with embedded(tmp_path) as server:
        with pytest.raises(DataDirectoryInUse, match=str(os.getpid())):
            embedded(tmp_path).start()
        with pytest.raises(UsageError, match="running already"):
            server.start()
        put(server.url, "1")


def test_a_server_stops_when_whoever_started_it_is_killed_and_has_all_that_it_answered(
    tmp_path: Path,
) -> None:
    holder, pid, url = in_another_process(tmp_path)
    put(url, "before the kill")
    kill(holder)
    eventually(lambda: not is_running(pid, tmp_path), "the server's end")
    assert eventually(lambda: not watchers_of(pid))
    with embedded(tmp_path) as server:
        assert kept(server.url) == "before the kill"


def test_a_server_that_was_left_running_is_stopped_before_the_next_one_starts(tmp_path: Path) -> None:
    holder, pid, url = in_another_process(tmp_path)
    put(url, "left over")
    [watcher] = watchers_of(pid)
    os.kill(watcher, signal.SIGKILL)
    kill(holder)
    assert is_running(pid, tmp_path)
    with embedded(tmp_path) as server:
        assert server.pid != pid
        assert not is_running(pid, tmp_path)
        assert kept(server.url) == "left over"


def test_a_server_that_was_killed_has_all_that_it_answered_and_says_that_it_ended(tmp_path: Path) -> None:
    # So deep that the path is too long for a socket, too, which then lies elsewhere.
    data_dir = tmp_path / ("d" * 90)
    with embedded(data_dir) as server:
        put(server.url, "answered")
        elsewhere = Path(server.url.partition("@")[2].partition("?")[0]).parent
        assert not elsewhere.is_relative_to(data_dir)
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(ChildFailed, match="ended with code -9"):
            eventually(server.check, "the end of the server")
    assert not elsewhere.exists()
    with embedded(data_dir) as server:
        assert kept(server.url) == "answered"


def test_a_start_that_fails_says_why_and_lets_go_of_the_directory(tmp_path: Path) -> None:
    with embedded(tmp_path):
        pass
    aof = tmp_path / "redis" / "data" / "appendonly.aof"
    aof.write_text("no commands\r\n")
    with pytest.raises(ChildFailed, match="Bad file format"):
        embedded(tmp_path).start()
    aof.unlink()
    with embedded(tmp_path) as server:
        put(server.url, "1")


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(ConfigError, match=f"Redis can't listen on {address}"):
            embedded(tmp_path, address).start()
