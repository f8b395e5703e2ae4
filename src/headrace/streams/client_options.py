"""Settings of Kafka clients, given once in librdkafka's words, for all clients of a pipeline.

`headrace --client-config FILE` names a file of librdkafka's settings; see cli/client.py. A pipeline has two
kinds of client: librdkafka, in the driver and in the tasks that write, and Java's, inside Spark, which knows
the same things by other names:

    sasl.username, sasl.password             sasl.jaas.config
    ssl.ca.location, ssl.ca.pem              ssl.truststore.type=PEM, ssl.truststore.certificates
    ssl.certificate.*, ssl.key.*             ssl.keystore.type=PEM, .certificate.chain, .key
    sasl.mechanisms                          sasl.mechanism
    ssl.endpoint.identification.algorithm    the same; `none` is an empty text

Everything else goes to Java as it is: what it does not know, it ignores. Certificates and keys travel as
text, not as names of files, so that the machines of a Spark cluster need no files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from headrace.config import StreamsConfig
from headrace.errors import ConfigError

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_FILES: Final = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
_TRANSLATED: Final = {
    *_FILES.values(),
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
}

Read = Callable[[str], str]


def kafka_options(config: StreamsConfig) -> dict[str, str]:
    """The options with which Spark's sources and sinks reach the cluster."""
    java = java_options(portable_options(config.client_options))
    return {f"kafka.{key}": value for key, value in (java | {"bootstrap.servers": config.bootstrap}).items()}


def portable_options(options: Mapping[str, str], read: Read | None = None) -> dict[str, str]:
    """The same settings for librdkafka on another machine: files that they name are taken into them."""
    read = read or _read
    portable = {key: value for key, value in options.items() if key not in _FILES}
    for location, text in _FILES.items():
        if location in options:
            portable[text] = read(options[location])
    return portable


def java_options(portable: Mapping[str, str]) -> dict[str, str]:
    """What portable settings are called by Java's client."""
    if portable.get("enable.ssl.certificate.verification", "true").lower() != "true":
        raise ConfigError(
            "enable.ssl.certificate.verification=false is something that Spark's Kafka client can't do: name "
            "the authority that signed the broker's certificate with ssl.ca.location"
        )
    java = {key: value for key, value in portable.items() if key not in _TRANSLATED}
    if "security.protocol" in portable:
        java["security.protocol"] = portable["security.protocol"].upper()
    if "ssl.endpoint.identification.algorithm" in portable:
        named = portable["ssl.endpoint.identification.algorithm"]
        java["ssl.endpoint.identification.algorithm"] = "" if named == "none" else named
    return java | _login(portable) | _certificates(portable)


def _login(portable: Mapping[str, str]) -> dict[str, str]:
    mechanism = portable.get("sasl.mechanism", portable.get("sasl.mechanisms"))
    if mechanism is None:
        return {}
    if mechanism not in _LOGIN_MODULES:
        raise ConfigError(
            f"sasl.mechanism is {mechanism}, with which pipelines can't log in: use "
            f"{', '.join(_LOGIN_MODULES)}"
        )
    user, password = (_quoted(portable.get(f"sasl.{name}", "")) for name in ("username", "password"))
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{_LOGIN_MODULES[mechanism]} required username={user} password={password};",
    }


def _certificates(portable: Mapping[str, str]) -> dict[str, str]:
    java: dict[str, str] = {}
    if "ssl.ca.pem" in portable:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": portable["ssl.ca.pem"]}
    if "ssl.key.pem" in portable:
        if "PRIVATE KEY-----" not in portable["ssl.key.pem"] or _is_traditional(portable["ssl.key.pem"]):
            raise ConfigError(
                "Spark's Kafka client reads a private key as PKCS #8 only, which begins with BEGIN PRIVATE "
                "KEY: convert it with `openssl pkcs8 -topk8 -nocrypt -in KEY -out NEW`, and name that in "
                "ssl.key.location"
            )
        java |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": portable.get("ssl.certificate.pem", ""),
            "ssl.keystore.key": portable["ssl.key.pem"],
        }
    return java


def _is_traditional(key: str) -> bool:
    return any(f"BEGIN {kind} PRIVATE KEY" in key for kind in ("RSA", "EC", "DSA"))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the client settings name {path}, which can't be read: {error}") from error
