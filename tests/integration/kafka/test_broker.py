"""The broker inside a process: starts, stops, leaves nothing behind."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import headrace
from headrace.broker import Broker
from headrace.config import Address, BrokerConfig
from headrace.errors import ConfigError, DataDirectoryInUse, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_broker_is_there_within_the_with_statement_and_gone_after_it(
    kafka_at: Callable[[str], Any],
) -> None:
    with headrace.Broker() as broker:
        address, directory = broker.address, broker.data_dir
        assert kafka_at(broker.bootstrap).produce("orders", [b"x"]) == [0]
        assert directory.is_dir()
    assert not directory.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.host, address.port), timeout=5)


def test_the_fixture_gives_each_test_a_broker_of_its_own(
    headrace_broker: Broker, kafka_at: Callable[[str], Any]
) -> None:
    assert kafka_at(headrace_broker.bootstrap).admin.list_topics(timeout=30).topics == {}


def test_a_broker_leaves_no_thread_no_file_and_no_socket_behind(kafka_at: Callable[[str], Any]) -> None:
    process = psutil.Process()

    def run_once() -> None:
        with Broker() as broker, socket.create_connection((broker.address.host, broker.address.port)):
            pass

    run_once()
    threads, files = set(threading.enumerate()), process.num_fds()
    for _ in range(3):
        run_once()
    assert set(threading.enumerate()) == threads
    assert process.num_fds() == files


def test_a_broker_can_be_started_again_and_keeps_what_it_has(
    tmp_path: Path, kafka_at: Callable[[str], Any]
) -> None:
    broker = Broker(tmp_path / "data")
    for number in range(3):
        with broker:
            assert kafka_at(broker.bootstrap).produce("orders", [b"x"]) == [number]


def test_stopping_twice_is_harmless_and_starting_twice_is_refused() -> None:
    broker = Broker()
    broker.stop()
    broker.start()
    with pytest.raises(UsageError, match="running already"):
        broker.start()
    broker.stop()
    broker.stop()
    with pytest.raises(UsageError, match="is not running"):
        _ = broker.bootstrap


def test_two_brokers_in_one_process_do_not_disturb_each_other(kafka_at: Callable[[str], Any]) -> None:
    with Broker() as left, Broker() as right:
        assert kafka_at(left.bootstrap).produce("orders", [b"left"]) == [0]
        assert kafka_at(right.bootstrap).produce("orders", [b"right"]) == [0]
        left.stop()
        assert kafka_at(right.bootstrap).produce("orders", [b"right"]) == [1]


def test_a_port_in_use_is_reported_where_the_broker_was_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = Broker(config=BrokerConfig(listen=Address("127.0.0.1", port)))
        threads = set(threading.enumerate())
        with pytest.raises(ConfigError, match=rf"can't listen on 127.0.0.1:{port}: .*choose another"):
            broker.start()
        assert set(threading.enumerate()) == threads


def test_a_data_directory_in_use_is_reported_where_the_broker_was_started(tmp_path: Path) -> None:
    with Broker(tmp_path / "data"), pytest.raises(DataDirectoryInUse, match="is in use by process"):
        Broker(tmp_path / "data").start()


def test_a_failed_start_leaves_no_temporary_directory_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = BrokerConfig(listen=Address("127.0.0.1", taken.getsockname()[1]))
        with pytest.raises(ConfigError):
            Broker(config=config).start()
    assert list(tmp_path.iterdir()) == []


def test_a_client_that_waits_is_let_go_when_the_broker_stops(
    raw_at: Callable[[str], Any], kafka_at: Callable[[str], Any]
) -> None:
    with Broker() as broker:
        kafka_at(broker.bootstrap).create_topic("orders")
        client = raw_at(broker.bootstrap)
        client.request(3, 1, topics=None)
    assert client.is_closed_by_the_broker()


def test_a_broker_stops_while_clients_keep_connecting() -> None:
    is_done = threading.Event()
    addresses: list[Address] = []

    def connect_for_ever() -> None:
        sockets = []
        while not is_done.is_set():
            try:
                sockets.append(socket.create_connection((addresses[-1].host, addresses[-1].port), timeout=5))
            except OSError:
                continue
        for each in sockets:
            each.close()

    with Broker() as broker:
        addresses.append(broker.address)
    threads = [threading.Thread(target=connect_for_ever) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        with Broker() as broker:
            addresses.append(broker.address)
            with socket.create_connection((broker.address.host, broker.address.port), timeout=5):
                pass
    is_done.set()
    for thread in threads:
        thread.join()


def test_a_program_that_forgets_to_stop_its_broker_ends_and_leaves_nothing_behind(tmp_path: Path) -> None:
    program = "import headrace; broker = headrace.Broker().start(); print(broker.data_dir)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert not Path(done.stdout.strip()).exists()
    assert done.stderr == ""


def test_importing_headrace_loads_neither_the_broker_nor_spark() -> None:
    loaded = _modules_after("import headrace")
    assert not loaded & {"asyncio", "kio", "uvloop", "pyspark", "confluent_kafka", "headrace.broker"}


def test_the_pytest_plugin_loads_almost_nothing() -> None:
    loaded = _modules_after("import headrace.testing.plugin")
    ours = {name for name in loaded if name.startswith("headrace")}
    assert ours == {"headrace", "headrace.testing", "headrace.testing.plugin"}
    assert not loaded & {"kio", "uvloop", "pyspark"}


def test_a_broker_needs_no_spark() -> None:
    loaded = _modules_after("import headrace\nwith headrace.Broker(): pass")
    assert not loaded & {"pyspark", "py4j"}


def test_the_code_of_groups_is_read_soon_after_the_start_though_nobody_asks_for_it() -> None:
    program = """
import sys, time
import headrace
from headrace.kafka import server
server.READ_AHEAD_S = 0.0
deadline_s = time.monotonic() + 60
with headrace.Broker():
    while "headrace.kafka.consumer_groups" not in sys.modules and time.monotonic() < deadline_s:
        time.sleep(0.01)
"""
    assert "headrace.kafka.consumer_groups" in _modules_after(program)


def _modules_after(code: str) -> set[str]:
    program = f"{code}\nimport sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_an_attribute_that_headrace_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Brokr'"):
        _ = headrace.Brokr
