"""Settings of groups as clients describe, change and list them; what is set is there after a crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.config import Address, BrokerConfig
from headrace.errors import StorageError
from headrace.kafka.answer import Pending
from headrace.kafka.config_changes import Operation
from headrace.kafka.handlers import alter_configs as alter_configs_module
from headrace.kafka.handlers.alter_configs import handle_alter_configs, handle_incremental_alter_configs
from headrace.kafka.handlers.configs import Resource, handle_describe_configs, handle_list_config_resources
from headrace.kafka.messages import alter_configs, incremental_alter_configs
from headrace.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from headrace.kafka.messages.list_config_resources import ListConfigResourcesRequest
from headrace.kafka.services import Call
from headrace.kafka.settings import FIXED_SETTINGS, Source, broker_settings
from headrace.kafka.topic_changes import TopicChanges
from headrace.log.broker_overrides import TOPIC_NAME_OF
from headrace.log.store import LogStore
from headrace.testing.clock import ManualClock
from headrace.testing.disk import SimulatedDisk

SET, DELETE, APPEND, SUBTRACT = Operation
Change = tuple[str, int, str | None]
SESSION, LOCK, RESET = "share.session.timeout.ms", "share.record.lock.duration.ms", "share.auto.offset.reset"


class Bench:
    """What these handlers need of a broker, over a disk that can crash."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.config = config or BrokerConfig()
        self.disk = SimulatedDisk()
        self.open()

    def open(self) -> None:
        self.store = LogStore.open(Path("/data"), self.config.log, ManualClock(), disk=self.disk)
        self.services: Any = SimpleNamespace(
            config=self.config,
            store=self.store,
            topics=TopicChanges(self.store, self.submit, self.on_failure),
        )

    def crash(self) -> None:
        self.disk.crash(Random(1))
        self.open()

    def submit(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        work()
        then()

    def on_failure(self, error: StorageError) -> None:
        raise AssertionError(error)

    def ask(self, handler: Callable[[Call, Any], Any], request: Any, version: int) -> Any:
        call = Call(
            services=self.services,
            client_id="test",
            host="127.0.0.1",
            address=Address("127.0.0.1", 9_092),
            api_version=version,
        )
        outcome = handler(call, request)
        if not isinstance(outcome, Pending):
            return outcome
        answers: list[Any] = []
        outcome.then(answers.append)
        return answers[0]

    def alter(
        self, group: str, *changes: Change, validate_only: bool = False
    ) -> tuple[ErrorCode, str | None]:
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=Resource.GROUP,
            resource_name=group,
            configs=tuple(
                incremental_alter_configs.AlterableConfig(name=name, config_operation=operation, value=value)
                for name, operation, value in changes
            ),
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=(resource,), validate_only=validate_only
        )
        (answer,) = self.ask(handle_incremental_alter_configs, request, 1).responses
        assert (answer.resource_type, answer.resource_name) == (Resource.GROUP, group)
        return answer.error_code, answer.error_message

    def replace(self, group: str, **texts: str | None) -> ErrorCode:
        resource = alter_configs.AlterConfigsResource(
            resource_type=Resource.GROUP,
            resource_name=group,
            configs=tuple(
                alter_configs.AlterableConfig(name=name.replace("_", "."), value=text)
                for name, text in texts.items()
            ),
        )
        request = alter_configs.AlterConfigsRequest(resources=(resource,), validate_only=False)
        (answer,) = self.ask(handle_alter_configs, request, 2).responses
        code: ErrorCode = answer.error_code
        return code

    def describe(self, group: str, *names: str) -> Any:
        resource = DescribeConfigsResource(
            resource_type=Resource.GROUP, resource_name=group, configuration_keys=names or None
        )
        request = DescribeConfigsRequest(
            resources=(resource,), include_synonyms=True, include_documentation=True
        )
        (answer,) = self.ask(handle_describe_configs, request, 4).results
        return answer

    def setting(self, group: str, name: str) -> DescribeConfigsResourceResult:
        (found,) = self.describe(group, name).configs
        assert isinstance(found, DescribeConfigsResourceResult)
        return found

    def set_here(self, group: str) -> dict[str, str | None]:
        return {
            each.name: each.value
            for each in self.describe(group).configs
            if each.config_source == Source.GROUP
        }

    def listed(self, *kinds: int, version: int = 1) -> list[tuple[int, str]]:
        answer = self.ask(
            handle_list_config_resources, ListConfigResourcesRequest(resource_types=kinds), version
        )
        return [(each.resource_type, each.resource_name) for each in answer.config_resources]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def synonyms(setting: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in setting.synonyms]


def test_a_group_of_which_nobody_has_heard_has_all_settings_by_default(bench: Bench) -> None:
    answer = bench.describe("g")
    assert answer.error_code is ErrorCode.none
    assert len(answer.configs) == 17
    assert {each.config_source for each in answer.configs} == {Source.DEFAULT}
    assert not any(each.read_only or each.is_sensitive for each in answer.configs)
    assert all(each.documentation for each in answer.configs)
    assert synonyms(bench.setting("g", SESSION)) == [(f"group.{SESSION}", "45000", Source.DEFAULT)]
    assert synonyms(bench.setting("g", RESET)) == [(RESET, "latest", Source.DEFAULT)]


def test_a_setting_comes_from_the_group_then_the_configuration_then_the_default() -> None:
    bench = Bench(BrokerConfig(share_session_timeout_ms=50_000))
    assert bench.setting("g", SESSION).config_source == Source.STATIC
    assert bench.alter("g", (SESSION, SET, " 55000 ")) == (ErrorCode.none, None)
    setting = bench.setting("g", SESSION)
    assert (setting.value, setting.config_source) == ("55000", Source.GROUP)
    assert synonyms(setting) == [
        (SESSION, "55000", Source.GROUP),
        (f"group.{SESSION}", "50000", Source.STATIC),
        (f"group.{SESSION}", "45000", Source.DEFAULT),
    ]


def test_settings_are_set_and_deleted_for_one_group_and_survive_a_crash(bench: Bench) -> None:
    bench.alter("g", (SESSION, SET, "50000"), (RESET, SET, "by_duration:PT1H"))
    bench.alter("other", (SESSION, SET, "60000"))
    bench.crash()
    bench.alter("g", (SESSION, DELETE, None), (LOCK, SET, "20000"))
    bench.crash()
    assert bench.set_here("g") == {LOCK: "20000", RESET: "by_duration:PT1H"}
    assert bench.set_here("other") == {SESSION: "60000"}
    assert bench.set_here("third") == {}


def test_the_older_request_replaces_all_settings_of_a_group(bench: Bench) -> None:
    bench.alter("g", (SESSION, SET, "50000"), (LOCK, SET, "20000"))
    assert bench.replace("g", share_session_timeout_ms="55000") is ErrorCode.none
    assert bench.set_here("g") == {SESSION: "55000"}
    assert bench.replace("g", share_session_timeout_ms="5") is ErrorCode.invalid_config
    assert bench.replace("g", share_session_timeout_ms=None) is ErrorCode.invalid_request
    assert bench.replace("", share_session_timeout_ms="50000") is ErrorCode.invalid_request
    assert bench.set_here("g") == {SESSION: "55000"}
    assert bench.replace("g") is ErrorCode.none
    assert bench.listed(Resource.GROUP) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("nope", SET, "1"), ErrorCode.invalid_config),
        ((SESSION, SET, "long"), ErrorCode.invalid_config),
        ((SESSION, SET, "1"), ErrorCode.invalid_config),
        ((SESSION, SET, None), ErrorCode.invalid_request),
        ((SESSION, APPEND, "1"), ErrorCode.invalid_config),
        (("share.isolation.level", SUBTRACT, "read_committed"), ErrorCode.invalid_config),
        (("nope", APPEND, "1"), ErrorCode.invalid_config),
        ((SESSION, APPEND, None), ErrorCode.invalid_request),
        ((SESSION, 9, "1"), ErrorCode.invalid_request),
    ],
)
def test_a_change_that_can_not_be_is_refused_and_takes_the_others_with_it(
    bench: Bench, change: Change, code: ErrorCode
) -> None:
    bench.alter("g", (LOCK, SET, "20000"))
    error_code, message = bench.alter("g", (RESET, SET, "earliest"), change)
    assert error_code is code
    assert message
    assert bench.set_here("g") == {LOCK: "20000"}


def test_deleting_what_is_not_set_changes_nothing_and_is_no_mistake(bench: Bench) -> None:
    for name in (SESSION, "nope"):
        assert bench.alter("g", (name, DELETE, None)) == (ErrorCode.none, None)
    assert bench.alter("g") == (ErrorCode.none, None)
    assert bench.listed(Resource.GROUP) == []


def test_what_is_only_to_be_validated_is_not_set(bench: Bench) -> None:
    assert bench.alter("g", (SESSION, SET, "50000"), validate_only=True) == (ErrorCode.none, None)
    assert bench.alter("g", (SESSION, SET, "5"), validate_only=True)[0] is ErrorCode.invalid_config
    assert bench.set_here("g") == {}


def test_a_group_without_a_name_has_no_settings(bench: Bench) -> None:
    assert bench.describe("").error_code is ErrorCode.invalid_request
    assert bench.alter("", (SESSION, SET, "50000"))[0] is ErrorCode.invalid_request


def test_groups_are_listed_while_something_is_set_for_them(bench: Bench) -> None:
    bench.store.catalog.begin_creation("t", 1).at_once()
    bench.alter("g", (SESSION, SET, "50000"))
    bench.alter("a/b c\u00e9", (SESSION, SET, "50000"))
    assert bench.listed(Resource.GROUP) == [(32, "g"), (32, "a/b c\u00e9")]
    assert set(bench.listed()) == {(32, "g"), (32, "a/b c\u00e9"), (4, "1"), (2, "t")}
    assert bench.listed(version=0) == []
    bench.alter("g", (SESSION, DELETE, None))
    assert bench.listed(Resource.GROUP) == [(32, "a/b c\u00e9")]


def test_no_more_groups_than_the_most_have_settings(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter_configs_module, "GROUP_COUNT_MAX", 2)
    for group in ("g", "h", "g"):
        assert bench.alter(group, (SESSION, SET, "50000"))[0] is ErrorCode.none
    code, message = bench.alter("i", (SESSION, SET, "50000"))
    assert code is ErrorCode.policy_violation
    assert message is not None
    assert message.startswith("2 groups have settings")
    bench.alter("g", (SESSION, DELETE, None))
    assert bench.alter("i", (SESSION, SET, "50000"))[0] is ErrorCode.none


def test_a_change_of_a_group_leaves_what_was_set_for_the_broker(bench: Bench) -> None:
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=Resource.BROKER,
        resource_name="1",
        configs=(
            incremental_alter_configs.AlterableConfig(
                name="log.retention.ms", config_operation=SET, value="9"
            ),
        ),
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=(resource,), validate_only=False
    )
    bench.ask(handle_incremental_alter_configs, request, 1)
    bench.alter("g", (SESSION, SET, "50000"))
    bench.crash()
    assert bench.store.overrides.broker == {"log.retention.ms": "9"}
    assert bench.store.defaults.retention_ms == 9
    bench.ask(handle_incremental_alter_configs, request, 1)
    assert bench.set_here("g") == {SESSION: "50000"}


def test_changes_are_written_to_the_audit_log(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="headrace.audit"):
        bench.alter("g", (SESSION, SET, "50000"))
    (line,) = caplog.messages
    assert line.startswith(f"group.configure group=g changes={SESSION}=50000, by ")


def test_every_setting_of_the_broker_is_listed_once(bench: Bench) -> None:
    names = [*TOPIC_NAME_OF, *(fixed.name for fixed in FIXED_SETTINGS)]
    assert len(set(names)) == len(names)
    of_groups = set(broker_settings(bench.config, bench.store)).difference(names)
    assert of_groups
    assert all(name.startswith("group.") and (".min." in name or ".max." in name) for name in of_groups)


def test_the_broker_tells_what_groups_may_ask_for() -> None:
    bench = Bench(BrokerConfig(share_record_lock_duration_ms=2_000))
    found = broker_settings(bench.config, bench.store)
    told = {
        name: (found[name].value, found[name].source)
        for name in (
            "group.share.record.lock.duration.ms",
            "group.share.min.record.lock.duration.ms",
            "group.share.max.record.lock.duration.ms",
            "group.consumer.min.session.timeout.ms",
            "group.share.max.share.sessions",
        )
    }
    assert told == {
        "group.share.record.lock.duration.ms": ("2000", Source.STATIC),
        "group.share.min.record.lock.duration.ms": ("2000", Source.STATIC),
        "group.share.max.record.lock.duration.ms": ("60000", Source.DEFAULT),
        "group.consumer.min.session.timeout.ms": ("45000", Source.DEFAULT),
        "group.share.max.share.sessions": ("2000", Source.DEFAULT),
    }
    assert "group.streams.min.session.timeout.ms" not in found
