"""Settings, one frozen value per capability. environment.py alone reads the environment.

Every field has a safe default and is checked when the value is made, so that a wrong setting stops the
program before it has opened a file or a socket. `docs/reference/settings.md` lists every field; a test
keeps that page complete.
"""

from __future__ import annotations

from headrace.config.address import Address, check_metrics_address
from headrace.config.broker import BrokerConfig, Durability
from headrace.config.capture import CaptureConfig, SnapshotMode
from headrace.config.checks import TOPIC_NAME, check_topic_name
from headrace.config.console import ConsoleConfig
from headrace.config.environment import (
    FAILPOINTS_VARIABLE,
    default_bootstrap,
    default_cache_dir,
    default_client_config,
    default_console_token,
    default_data_dir,
    default_jars_dir,
    default_postgres_dsn,
    default_postgres_programs,
    default_queues_url,
    default_redis_program,
    default_tls_key_password,
    environment_with,
    failpoints_to_arm,
    java_home,
    java_options_of_environment,
    new_user_password,
    search_path,
)
from headrace.config.log import COMPRESSION_TYPES, LogConfig
from headrace.config.postgres import PostgresConfig
from headrace.config.queue import QueueConfig
from headrace.config.queue_clients import BridgeKey, BridgeStart, PushConfig, ToQueueConfig, ToTopicConfig
from headrace.config.redis import RedisConfig
from headrace.config.security import SASL_MECHANISMS, SaslMechanism, SecurityConfig, TlsConfig
from headrace.config.streams import GUARANTEES, Guarantee, StreamsConfig
from headrace.config.units import DAY_MS, GIB, HOUR_MS, KIB, LONG_MAX, MIB

__all__ = [
    "COMPRESSION_TYPES",
    "DAY_MS",
    "FAILPOINTS_VARIABLE",
    "GIB",
    "GUARANTEES",
    "HOUR_MS",
    "KIB",
    "LONG_MAX",
    "MIB",
    "SASL_MECHANISMS",
    "TOPIC_NAME",
    "Address",
    "BridgeKey",
    "BridgeStart",
    "BrokerConfig",
    "CaptureConfig",
    "ConsoleConfig",
    "Durability",
    "Guarantee",
    "LogConfig",
    "PostgresConfig",
    "PushConfig",
    "QueueConfig",
    "RedisConfig",
    "SaslMechanism",
    "SecurityConfig",
    "SnapshotMode",
    "StreamsConfig",
    "TlsConfig",
    "ToQueueConfig",
    "ToTopicConfig",
    "check_metrics_address",
    "check_topic_name",
    "default_bootstrap",
    "default_cache_dir",
    "default_client_config",
    "default_console_token",
    "default_data_dir",
    "default_jars_dir",
    "default_postgres_dsn",
    "default_postgres_programs",
    "default_queues_url",
    "default_redis_program",
    "default_tls_key_password",
    "environment_with",
    "failpoints_to_arm",
    "java_home",
    "java_options_of_environment",
    "new_user_password",
    "search_path",
]
