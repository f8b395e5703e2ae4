"""What a broker loads before it listens, and what only when it is asked for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from headrace.kafka.api import APIS

PRINT_MODULES = "; import json, sys; print(json.dumps(sorted(sys.modules)))"


def loaded_by(program: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", program + PRINT_MODULES], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


def test_a_broker_starts_without_what_only_some_of_its_clients_need() -> None:
    loaded = loaded_by("import headrace.broker")
    assert not loaded & {
        "hypothesis",
        "prometheus_client",
        "scramp",
        "h11",
        "rich",
        "typer",
        "confluent_kafka",
        "headrace.kafka.consumer_groups",
        "headrace.log.cleaning",
    }
    assert not {name for name in loaded if name.startswith("headrace.kafka.handlers.")} - {
        "headrace.kafka.handlers.api_versions"
    }


def test_the_command_broker_is_loaded_without_the_others() -> None:
    loaded = loaded_by("from headrace.cli.app import new_app; new_app(['broker'])")
    assert not loaded & {"rich.console", "confluent_kafka", "jsonpath", "headrace.cli.topics"}


def test_the_broker_is_started_without_what_reads_the_options_of_other_commands() -> None:
    loaded = loaded_by("import headrace.cli.main, headrace.cli.broker_options")
    assert not loaded & {"typer", "pydantic", "rich"}


def test_kio_is_loaded_with_hypothesis_where_that_is_there_already() -> None:
    loaded = loaded_by("import hypothesis, headrace.kafka, kio.static._phantom as p; assert p.hypothesis")
    assert "hypothesis.strategies" in loaded


def test_hypothesis_can_still_be_loaded_after_kio() -> None:
    assert "hypothesis" in loaded_by("import headrace.kafka, hypothesis")


@pytest.mark.parametrize("key", sorted(APIS))
def test_every_api_has_its_messages_and_its_handler_where_its_name_says(key: int) -> None:
    api = APIS[key]
    assert api.request.__name__ == f"{api.name}Request"
    assert callable(api.handler)
    with pytest.raises(AttributeError):
        _ = api.elsewhere


def test_an_api_can_be_handled_by_another_and_stays_the_same_otherwise() -> None:
    def handle(*_arguments: object) -> None: ...

    other = APIS[3].handled_by(handle)
    assert (other.handler, other.request, other.version_last) == (handle, APIS[3].request, 13)
    assert APIS[3].handler is not handle
