"""One file of client settings for librdkafka and for Spark's Java client."""

from __future__ import annotations

import pytest

from headrace.config import StreamsConfig
from headrace.errors import ConfigError
from headrace.streams.client_options import java_options, kafka_options, portable_options

FILES = {"/ca.pem": "the authority", "/me.pem": "my chain", "/me.key": "-----BEGIN PRIVATE KEY-----"}


def test_a_login_becomes_what_java_calls_one() -> None:
    options = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "ada",
        "sasl.password": 'a "quoted\\" one',
    }

    assert java_options(options) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ada" password="a \\"quoted\\\\\\" one";',
    }


def test_files_travel_as_text() -> None:
    named = {
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.key",
        "client.id": "me",
    }
    portable = portable_options(named, FILES.__getitem__)

    assert portable == {
        "ssl.ca.pem": "the authority",
        "ssl.certificate.pem": "my chain",
        "ssl.key.pem": "-----BEGIN PRIVATE KEY-----",
        "client.id": "me",
    }
    assert java_options(portable) == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "the authority",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "my chain",
        "ssl.keystore.key": "-----BEGIN PRIVATE KEY-----",
        "client.id": "me",
    }


def test_a_host_that_need_not_match_its_certificate_is_an_empty_text_in_java() -> None:
    assert java_options({"ssl.endpoint.identification.algorithm": "none"}) == {
        "ssl.endpoint.identification.algorithm": ""
    }


def test_the_cluster_is_the_one_of_the_run_whatever_the_file_says() -> None:
    config = StreamsConfig(bootstrap="right:9092", client_options={"bootstrap.servers": "wrong:9092"})

    assert kafka_options(config) == {"kafka.bootstrap.servers": "right:9092"}


def test_passwords_are_not_shown_with_the_settings() -> None:
    assert "secret" not in repr(StreamsConfig(client_options={"sasl.password": "secret"}))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"sasl.mechanism": "GSSAPI"}, "use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"enable.ssl.certificate.verification": "false"}, r"name the authority .* ssl\.ca\.location"),
        ({"ssl.key.pem": "-----BEGIN RSA PRIVATE KEY-----"}, "openssl pkcs8"),
        ({"ssl.key.pem": "no key at all"}, "openssl pkcs8"),
    ],
)
def test_what_java_can_not_do_is_refused_with_the_way_out(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        java_options(options)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"name /nowhere/ca\.pem, which can't be read"):
        portable_options({"ssl.ca.location": "/nowhere/ca.pem"})
