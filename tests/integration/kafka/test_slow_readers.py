"""Clients that ask for much and don't read it: they take no more memory than they may, and make way.

With TLS it is what was encrypted that waits.
"""

from __future__ import annotations

import datetime as dt
import re
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import kio.schema.fetch.v12.request
import pytest
import trustme

from headrace.broker import Broker
from headrace.config import MIB, Address, BrokerConfig, TlsConfig
from headrace.kafka import budget, engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FETCH = 1
VALUE_BYTES = 8_000_000
"""More than a socket takes that nobody reads."""
UNSENT_BYTES_MAX = 8 * MIB


@dataclass(frozen=True, kw_only=True)
class Transport:
    """How clients and broker speak to each other."""

    tls: TlsConfig | None = None
    context: ssl.SSLContext | None = None
    settings: dict[str, str] = field(default_factory=dict)
    """Those of confluent-kafka."""

    def wrap(self, client: Any) -> Any:
        """A client that has connected, speaking in this way."""
        if self.context is not None:
            client.socket = self.context.wrap_socket(client.socket, server_hostname="localhost")
        return client


@pytest.fixture(params=["plain text", "TLS"])
def transport(request: pytest.FixtureRequest, tmp_path: Path) -> Transport:
    if request.param == "plain text":
        return Transport()
    authority = trustme.CA()
    leaf = authority.issue_cert("localhost", "127.0.0.1")
    ca, certificate, key = (tmp_path / name for name in ("ca", "certificate", "key"))
    authority.cert_pem.write_to_path(str(ca))
    certificate.write_bytes(b"".join(each.bytes() for each in leaf.cert_chain_pems))
    key.touch(mode=0o600)
    key.write_bytes(leaf.private_key_pem.bytes())
    return Transport(
        tls=TlsConfig(certificate=certificate, key=key),
        context=ssl.create_default_context(cafile=str(ca)),
        settings={"security_protocol": "SSL", "ssl_ca_location": str(ca)},
    )


def fetch_fields() -> dict[str, Any]:
    schemas: Any = kio.schema.fetch.v12.request
    partition = schemas.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100_000_000)
    return {
        "max_wait": dt.timedelta(0),
        "min_bytes": 1,
        "topics": (schemas.FetchTopic(topic="large", partitions=(partition,)),),
        "forgotten_topics_data": (),
        "rack_id": "",
    }


def unsent_bytes(broker: Broker) -> int:
    # A proxy of the environment must not come between.
    with httpx.Client(trust_env=False, timeout=30) as client:
        text = client.get(broker.metrics_url).text
    found = re.search(r"^headrace_unsent_bytes (\S+)$", text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def test_clients_that_do_not_read_take_no_more_than_there_is_room_for_and_make_way_for_others(
    transport: Transport,
    tmp_path: Path,
    raw_at: Callable[[str], Any],
    kafka_at: Callable[..., Any],
    wait_until: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "SWEEP_INTERVAL_S", 0.05)
    monkeypatch.setattr(budget, "PACE_WINDOW_S", 0.5)
    config = BrokerConfig(listen=Address("127.0.0.1", 0), durability="os", unsent_bytes_max=UNSENT_BYTES_MAX)
    with Broker(tmp_path / "data", config=config, tls=transport.tls, metrics=True) as broker:
        kafka = kafka_at(broker.bootstrap, **transport.settings)
        kafka.create_topic("large")
        values = [bytes([number]) * VALUE_BYTES for number in range(3)]
        assert kafka.produce("large", values, message_max_bytes=16_000_000) == [0, 1, 2]
        idle = [transport.wrap(raw_at(broker.bootstrap)) for _ in range(4)]
        for client in idle:
            client.send(client.request_frame(FETCH, 12, **fetch_fields()))
        wait_until(lambda: unsent_bytes(broker) >= UNSENT_BYTES_MAX, "answers that nobody reads")
        assert unsent_bytes(broker) < UNSENT_BYTES_MAX + VALUE_BYTES + MIB, "one batch may be above it"

        consumer = kafka.consumer()
        consumer.subscribe(["large"])
        read = kafka.read(consumer, 3)
        assert [message.value() for message in read] == values
        assert unsent_bytes(broker) < UNSENT_BYTES_MAX + VALUE_BYTES + MIB
        assert "took its answers too slowly while others waited" in caplog.text


def test_a_client_that_reads_late_gets_all_of_its_answer_when_nobody_waits_for_room(
    transport: Transport,
    tmp_path: Path,
    raw_at: Callable[[str], Any],
    kafka_at: Callable[..., Any],
    wait_until: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "SWEEP_INTERVAL_S", 0.01)
    monkeypatch.setattr(budget, "PACE_WINDOW_S", 0.01)
    config = BrokerConfig(listen=Address("127.0.0.1", 0), durability="os")
    with Broker(tmp_path / "data", config=config, tls=transport.tls, metrics=True) as broker:
        kafka = kafka_at(broker.bootstrap, **transport.settings)
        kafka.create_topic("large")
        value = bytes(range(250)) * (VALUE_BYTES // 250)
        assert kafka.produce("large", [value], message_max_bytes=16_000_000) == [0]
        late = transport.wrap(raw_at(broker.bootstrap))
        late.send(late.request_frame(FETCH, 12, **fetch_fields()))
        wait_until(lambda: unsent_bytes(broker), "an answer that nobody reads yet")
        (answered,) = late.receive(FETCH, 12).responses
        assert value in answered.partitions[0].records
        wait_until(lambda: not unsent_bytes(broker), "nothing that waits any more")
