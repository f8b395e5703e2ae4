"""The processes of one run: a broker, what judges, and the generator, each apart from the others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Final, Literal

from confluent_kafka import Producer

from headrace.cli.demo_parts import (
    broker_child,
    example_dir,
    generator_child,
    pipeline_child,
    prepare,
)
from headrace.cli.foreground import free_port
from headrace.config import Address, Durability
from headrace.supervisor import Supervisor

Way = Literal["realtime", "micro-batch", "quix"]
THEFT_PAUSE_S: Final = 0.2
"""More thefts than the demo has: dozens of alerts a second, so that a run has thousands to measure."""
COUNT_MAX: Final = 5
STOP_S_MAX: Final = 30.0
HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent, and how batches are cut."""

    rate: int
    cards: int
    batch_s: int
    durability: Durability

    @property
    def count_max(self) -> int:
        """Transactions in a minute before an alert: twice what an honest card makes on average."""
        return max(COUNT_MAX, ceil(2 * 60 * self.rate / self.cards))


class Platform:
    """The processes while they run."""

    def __init__(self, directory: Path, load: Load) -> None:
        self.directory = directory
        self.example = directory / "fraud"
        self.bootstrap = ""
        self._load = load
        self._children = Supervisor(lambda _name, _line: None)
        self._generator = Supervisor(lambda _name, _line: None)
        self._quix: subprocess.Popen[bytes] | None = None

    @property
    def model(self) -> Path:
        """The model that is applied."""
        return self.example / "model.json"

    def start(self, way: Way, quix: str | None) -> None:
        """Start everything. The example is the real one, with the model of this world beside it."""
        shutil.copytree(
            example_dir("fraud"), self.example, ignore=shutil.ignore_patterns("__pycache__", "tests")
        )
        shutil.copyfile(HERE / "model.json", self.model)
        broker = broker_child(Address("127.0.0.1", free_port(0)), self.directory / "broker")
        durable = (*broker.arguments, "--durability", self._load.durability)
        self.bootstrap = self._children.start(replace(broker, arguments=durable))
        generator = self.example / "generate.py"
        prepare(generator, ("--bootstrap", self.bootstrap, "--topics-only"))
        self._set_limits()
        if way == "quix":
            self._start_quix(quix)
        else:
            realtime, batch_s = way == "realtime", self._load.batch_s
            self._children.start(
                pipeline_child(
                    self.example / "pipeline.py",
                    self.bootstrap,
                    self.directory,
                    realtime=realtime,
                    batch_s=batch_s,
                )
            )
        world = ("--cards", str(self._load.cards), "--theft-pause", str(THEFT_PAUSE_S), "--sleepless")
        told = ("--bootstrap", self.bootstrap, *world)
        self._generator.start(generator_child(generator, told, rate=self._load.rate, seed=7))

    def check(self) -> None:
        """Raise if something has ended that should run."""
        self._children.check()
        self._generator.check()
        if self._quix is not None and self._quix.poll() is not None:
            raise SystemExit(f"error: quix_fraud.py has ended with {self._quix.returncode}")

    def batch_count(self) -> int:
        """How many batches have ended. Spark removes old files, so the newest one's number counts."""
        commits = self.directory / "checkpoints" / "fraud_alerts" / "commits"
        numbers = [int(path.name) for path in commits.glob("*") if path.name.isdecimal()]
        return max(numbers) + 1 if numbers else 0

    def stop_sending(self) -> None:
        """End the generator, with everything sent."""
        self._generator.stop()

    def stop(self) -> None:
        """End everything."""
        self._generator.stop()
        if self._quix is not None:
            self._stop_quix(self._quix)
        self._children.stop()

    def _set_limits(self) -> None:
        """As the bank's office would: by a message to the topic of rules."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce("fraud-rules", json.dumps({"count_max": self._load.count_max}), "rules")
        if producer.flush(STOP_S_MAX):
            raise SystemExit("error: the broker did not take the limits")

    def _start_quix(self, python: str | None) -> None:
        if python is None:
            raise SystemExit("error: name the interpreter of an environment with quixstreams by --quix")
        self._quix = subprocess.Popen(
            [
                *(python, "-W", "ignore", str(HERE / "quix_fraud.py"), self.bootstrap),
                *(str(self.directory / "quix"), str(self.model)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(self.example)])},
            start_new_session=True,
        )

    def _stop_quix(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S_MAX)
        process.kill()
        process.wait()


@contextmanager
def running(way: Way, load: Load, quix: str | None) -> Iterator[Platform]:
    """Everything runs inside, in a fresh directory; nothing of it is left behind."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        platform = Platform(Path(name), load)
        try:
            platform.start(way, quix)
            yield platform
        finally:
            platform.stop()
