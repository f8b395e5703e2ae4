"""Code that is sent to a process that can't import it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SENT = """
from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from headrace import events


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    at: datetime | None = None


@events.decider("thing")
class Thing:
    initial = Last()

    @staticmethod
    def decide(state: Last, command: Happened) -> list[Happened]:
        return [command]

    @staticmethod
    def evolve(state: Last, event: Happened) -> Last:
        return Last(at=event.parts[-1].at)
"""
SEND = """
import sys
import msgspec
import thing
from pyspark import cloudpickle
from headrace.events.folding import Folding

msgspec.json.Decoder(thing.Happened)
cloudpickle.register_pickle_by_value(thing)
sys.stdout.buffer.write(cloudpickle.dumps(Folding(thing.Thing)))
"""
RECEIVE = """
import pickle
import sys

folding = pickle.loads(sys.stdin.buffer.read())
(event,) = folding.decode("Happened", 1, b'{"parts": [{"at": "2026-03-01T09:30:00Z"}]}')
state = folding.evolve(folding.initial, event)
assert "thing" not in sys.modules
print(folding.read_state(folding.write_state(state)).at.isoformat())
"""


def test_a_decider_folds_where_its_module_is_not(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "thing.py").write_text(SENT)
    sent = subprocess.run([sys.executable, "-c", SEND], cwd=here, capture_output=True, check=False)
    assert sent.returncode == 0, sent.stderr.decode()
    received = subprocess.run(
        [sys.executable, "-c", RECEIVE], cwd=tmp_path, input=sent.stdout, capture_output=True, check=False
    )
    assert received.returncode == 0, received.stderr.decode()
    assert received.stdout.decode().strip() == "2026-03-01T09:30:00+00:00"
