"""The broker as a whole: in this process, on its own thread, or in the foreground until a signal comes.

with headrace.Broker() as broker:               # a free port and a temporary directory, gone afterwards
    producer = Producer({"bootstrap.servers": broker.bootstrap})

with headrace.Broker("data") as broker:         # keeps its data in ./data
    ...

with headrace.Broker(users={"ann": "secret"}) as broker:    # clients must log in: SASL_PLAINTEXT
    ...

with headrace.Broker(amqp=True) as broker:      # work queues as well
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import resource
import signal
import sys
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from headrace.clock import SystemClock
from headrace.config import MIB, Address, BrokerConfig, QueueConfig, failpoints_to_arm
from headrace.errors import UsageError
from headrace.failpoints import arm_all
from headrace.kafka.server import KafkaServer
from headrace.log.store import LogStore
from headrace.security.users import UserRegistry
from headrace.security.users_file import USERS_FILE_NAME
from headrace.security.verifier import ITERATION_COUNT_MIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from headrace.clock import Clock
    from headrace.config import TlsConfig
    from headrace.queue.server import QueueServer

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

EMBEDDED_HEARTBEAT_INTERVAL_MS: Final = 500
"""Members of consumer groups learn of changes by their heartbeats. A test should not wait 5 s for that."""
OPEN_FILES_MAX: Final = 65_536
MAPPED_BYTES_MIN: Final = 8 * MIB
"""What is larger gets memory of its own from the system, which has it back when it is freed."""
FREED_BYTES_MAX: Final = 16 * MIB
"""How much freed memory is kept to be used again."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where a broker's clients connect."""

    kafka: Address
    amqp: Address | None
    """None where it serves no queues."""


Started = tuple[KafkaServer, Listening, asyncio.AbstractEventLoop, asyncio.Event]
"""A server, where it listens, its event loop, and what to set to stop it."""


class Broker:
    """A Kafka broker inside this process, on a thread of its own. Use it as a context manager.

    `data_dir` is where the log is kept. Without it, a temporary directory is made and removed again; then
    there is nothing that could survive, and nothing waits for the disk (durability `os`).

    `config` replaces all other settings. Without it, the broker listens on a free port of 127.0.0.1.

    With `users`, names and their passwords, clients must log in by SASL; what proves the passwords is kept
    in the data directory. With `tls`, connections are encrypted; `headrace.config.TlsConfig` says how. With
    `metrics`, Prometheus' metrics are served at `metrics_url`. With `amqp`, work queues are served at
    `amqp_url`.

    Several brokers in one process don't disturb each other, and a stopped one can be started again. Methods
    may be called from any thread, one at a time.
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        users: Mapping[str, str] | None = None,
        tls: TlsConfig | None = None,
        metrics: bool = False,
        amqp: bool = False,
        config: BrokerConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._config = config or BrokerConfig(
            listen=Address("127.0.0.1", 0),
            durability="os" if data_dir is None else "sync",
            consumer_heartbeat_interval_ms=EMBEDDED_HEARTBEAT_INTERVAL_MS,
            share_heartbeat_interval_ms=EMBEDDED_HEARTBEAT_INTERVAL_MS,
        )
        if tls is not None:
            self._config = replace(self._config, security=replace(self._config.security, tls=tls))
        if metrics and self._config.metrics_listen is None:
            self._config = replace(self._config, metrics_listen=Address("127.0.0.1", 0))
        if amqp and self._config.queues is None:
            self._config = replace(self._config, queues=QueueConfig(listen=Address("127.0.0.1", 0)))
        self._users = dict(users or {})
        self._clock = clock or SystemClock()
        self._thread: Thread | None = None
        self._temporary_dir: Path | None = None

    def start(self) -> Self:
        """Start, and return when clients can connect. What goes wrong is raised here."""
        if self._thread is not None:
            raise UsageError(f"the broker at {self.bootstrap} is running already: stop it first")
        if self._data_dir is None:
            import tempfile  # noqa: PLC0415  # a broker in the foreground starts without it

            self._temporary_dir = Path(tempfile.mkdtemp(prefix="headrace-"))
        config = replace(self._config, data_dir=self.data_dir)
        if self._users:
            users_file = config.security.users_file or self.data_dir / USERS_FILE_NAME
            config = replace(config, security=replace(config.security, users_file=users_file))
        started: Future[Started] = Future()
        thread = Thread(
            target=_run_in_thread,
            args=(config, self._users, self._clock, started),
            name="headrace-broker",
            daemon=True,
        )
        thread.start()
        try:
            self._server, self._listening, self._loop, self._stopping = started.result()
        except BaseException:
            # It did not start, or whoever waits for it was interrupted: then it stops as soon as it is up.
            started.add_done_callback(_stop_again)
            thread.join()
            self._remove_temporary_dir()
            raise
        self._thread = thread
        # Whoever forgets to stop a broker can still leave the program, and finds no directory left over.
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Stop, and return when all sockets are closed and nothing is left behind. Harmless when stopped."""
        if self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._thread = None
        atexit.unregister(self.stop)
        self._remove_temporary_dir()

    @property
    def address(self) -> Address:
        """Where the broker listens."""
        if self._thread is None:
            raise UsageError("the broker is not running: call start(), or use it in a `with` statement")
        return self._listening.kafka

    @property
    def bootstrap(self) -> str:
        """What a Kafka client wants as `bootstrap.servers`."""
        return str(self.address)

    @property
    def metrics_url(self) -> str:
        """Where Prometheus finds the broker's metrics, if it was started with them."""
        _ = self.address
        if self._server.metrics_address is None:
            raise UsageError("the broker serves no metrics: start it with metrics=True")
        return f"http://{self._server.metrics_address}/metrics"

    @property
    def amqp_url(self) -> str:
        """What a client of AMQP connects with, if the broker was started with queues."""
        _ = self.address
        if self._listening.amqp is None:
            raise UsageError("the broker serves no queues: start it with amqp=True")
        return amqp_url(self._listening.amqp, self._users, has_tls=self._config.security.tls is not None)

    @property
    def data_dir(self) -> Path:
        """Where the log is kept."""
        directory = self._data_dir or self._temporary_dir
        if directory is None:
            raise UsageError("the broker is not running, so its temporary directory does not exist")
        return directory

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _remove_temporary_dir(self) -> None:
        if self._temporary_dir is not None:
            from shutil import rmtree  # noqa: PLC0415  # see above

            rmtree(self._temporary_dir)
            self._temporary_dir = None


def amqp_url(address: Address, users: Mapping[str, str], *, has_tls: bool) -> str:
    """What a client connects with, as the first of the users, or as the guest that there is without any."""
    name, password = next(iter(users.items()), ("guest", "guest"))
    scheme = "amqps" if has_tls else "amqp"
    return f"{scheme}://{quote(name, safe='')}:{quote(password, safe='')}@{address}/"


def run_broker(config: BrokerConfig, on_ready: Callable[[Listening], None]) -> None:
    """Serve in the foreground until SIGINT or SIGTERM, then shut down cleanly. Call it on the main thread."""

    _allow_open_files()
    _keep_freed_memory()
    arm_all(failpoints_to_arm())

    async def serve_until_signal() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, stopping.set)
        await _serve(config, {}, SystemClock(), lambda _, listening: on_ready(listening), stopping)

    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        runner.run(serve_until_signal())


def _allow_open_files() -> None:
    """Each connection and each segment in use is an open file, and systems allow few unless asked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _keep_freed_memory() -> None:
    """Have glibc use freed memory again instead of giving it back to the system at once.

    Frames and answers are large and short-lived. By default the memory of each would be new pages from the
    system, which clears them first: that would take more time than all else that is done with a frame.
    """
    libc = ctypes.CDLL(None)
    # Other C libraries have no such function, or know better anyway.
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)
        libc.mallopt(_M_TRIM_THRESHOLD, FREED_BYTES_MAX)


def _stop_again(started: Future[Started]) -> None:
    if started.exception() is None:
        _, _, loop, stopping = started.result()
        loop.call_soon_threadsafe(stopping.set)


def _run_in_thread(
    config: BrokerConfig,
    users: Mapping[str, str],
    clock: Clock,
    started: Future[Started],
) -> None:
    async def serve_until_stopped() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        await _serve(
            config,
            users,
            clock,
            lambda server, listening: started.set_result((server, listening, loop, stopping)),
            stopping,
        )

    try:
        with asyncio.Runner(loop_factory=_new_event_loop) as runner:
            runner.run(serve_until_stopped())
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)


async def _serve(
    config: BrokerConfig,
    users: Mapping[str, str],
    clock: Clock,
    on_ready: Callable[[KafkaServer, Listening], None],
    stopping: asyncio.Event,
) -> None:
    store = LogStore.open(config.data_dir, config.log, clock, message_bytes_max=config.message_bytes_max)
    try:
        if users and config.security.users_file is not None:
            UserRegistry(config.security.users_file).add(users, iteration_count=ITERATION_COUNT_MIN)
        server = KafkaServer(config, store, clock)
        queues = _queue_server(config, clock)
        if queues is not None and config.metrics_listen is not None:
            # Only a broker that is watched pays for these at its start.
            from headrace.queue.collector import QueueCollector  # noqa: PLC0415

            server.show_beside(QueueCollector(queues), queues.unready)
        try:
            amqp_address = None if queues is None else await queues.start()
            on_ready(server, Listening(kafka=await server.start(), amqp=amqp_address))
            await stopping.wait()
        finally:
            if queues is not None:
                await queues.stop()
            await server.stop()
    finally:
        store.close()


def _queue_server(config: BrokerConfig, clock: Clock) -> QueueServer | None:
    """What serves queues, where they are wanted."""
    if config.queues is None:
        return None
    # Only a broker that has queues pays for them at its start.
    from headrace.queue.server import QueueServer  # noqa: PLC0415

    return QueueServer(config, config.queues, clock)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's event loop where it can be had; it is about twice as fast."""
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    try:
        import uvloop  # noqa: PLC0415  # it is not needed where it can't be had
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
