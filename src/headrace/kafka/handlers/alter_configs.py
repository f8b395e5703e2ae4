"""IncrementalAlterConfigs and AlterConfigs: change settings of topics, groups and the broker.

The changes of one resource happen together or not at all. They are durable before they are answered, and hold
from then on. AlterConfigs, the older of the two, replaces all that was set before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from headrace.errors import ConfigError, HeadraceError
from headrace.kafka.answer import Pending, when_all
from headrace.kafka.audit import audit
from headrace.kafka.config_changes import ConfigChange, Operation, changed_config
from headrace.kafka.groups.settings import GROUP_COUNT_MAX, GroupSettings, checked_texts
from headrace.kafka.handlers.configs import (
    CLUSTER_NAME,
    Resource,
    check_broker,
    check_group,
    no_such_resource,
    topic_of,
)
from headrace.kafka.messages import alter_configs, incremental_alter_configs
from headrace.kafka.refusal import Refused, code_of
from headrace.kafka.settings import broker_settings, cluster_settings, group_settings, topic_settings
from headrace.log.broker_overrides import TOPIC_NAME_OF
from headrace.log.topic_settings import TopicSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.kafka.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from headrace.kafka.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from headrace.kafka.services import Call, Services
    from headrace.kafka.settings import Setting
    from headrace.log.change import Change

    BeginChange = Callable[[], Change[Any]]

BROKER_CHANGES: Final = ""
"""Changes of what one file keeps come one after the other, under a name that no topic has."""

_AUDITED: Final = {Resource.TOPIC: "topic", Resource.BROKER: "broker", Resource.GROUP: "group"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """What is to be changed of one resource."""

    resource_type: int
    resource_name: str
    changes: tuple[ConfigChange, ...]
    replaces_all: bool = False

    def config_after(self, config: Mapping[str, str], settings: Mapping[str, Setting]) -> dict[str, str]:
        """What is set after the changes, given what is set now and what holds now. Raises Refused."""
        return changed_config({} if self.replaces_all else config, settings, self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Altered:
    """What became of an alteration."""

    alteration: Alteration
    error: HeadraceError | None = None

    def fields(self) -> dict[str, Any]:
        """What both responses say about it."""
        return {
            "error_code": ErrorCode.none if self.error is None else code_of(self.error),
            "error_message": None if self.error is None else str(self.error),
            "resource_type": self.alteration.resource_type,
            "resource_name": self.alteration.resource_name,
        }


def handle_incremental_alter_configs(
    call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | Pending[IncrementalAlterConfigsResponse]:
    """Change single settings."""
    alterations = [
        Alteration(
            resource_type=each.resource_type,
            resource_name=each.resource_name,
            changes=tuple(ConfigChange(one.name, one.config_operation, one.value) for one in each.configs),
        )
        for each in request.resources
    ]
    return when_all(
        _alter_all(call, alterations, validate_only=request.validate_only),
        lambda results: incremental_alter_configs.IncrementalAlterConfigsResponse(
            responses=tuple(
                incremental_alter_configs.AlterConfigsResourceResponse(**each.fields()) for each in results
            )
        ),
    )


def handle_alter_configs(
    call: Call, request: AlterConfigsRequest
) -> AlterConfigsResponse | Pending[AlterConfigsResponse]:
    """Replace all settings."""
    alterations = [
        Alteration(
            resource_type=each.resource_type,
            resource_name=each.resource_name,
            changes=tuple(ConfigChange(one.name, Operation.SET, one.value) for one in each.configs),
            replaces_all=True,
        )
        for each in request.resources
    ]
    return when_all(
        _alter_all(call, alterations, validate_only=request.validate_only),
        lambda results: alter_configs.AlterConfigsResponse(
            responses=tuple(alter_configs.AlterConfigsResourceResponse(**each.fields()) for each in results)
        ),
    )


def _alter_all(
    call: Call, alterations: list[Alteration], *, validate_only: bool
) -> list[Altered | Pending[Altered]]:
    counts = Counter((each.resource_type, each.resource_name) for each in alterations)
    twice = Refused(ErrorCode.invalid_request, "each resource must be named at most once in a request")
    return [
        Altered(alteration=each, error=twice)
        if counts[each.resource_type, each.resource_name] > 1
        else _alter(call, each, validate_only=validate_only)
        for each in alterations
    ]


def _alter(call: Call, alteration: Alteration, *, validate_only: bool) -> Altered | Pending[Altered]:
    services = call.services
    if validate_only:
        try:
            _plan(services, alteration)
        except HeadraceError as error:
            return Altered(alteration=alteration, error=error)
        return Altered(alteration=alteration)
    pending: Pending[Altered] = Pending()

    def on_outcome(outcome: object) -> None:
        if isinstance(outcome, HeadraceError):
            pending.resolve(Altered(alteration=alteration, error=outcome))
            return
        _audit(call, alteration)
        pending.resolve(Altered(alteration=alteration))

    def begin() -> Change[Any]:
        begin_planned = _plan(services, alteration)
        return begin_planned()

    is_topic = alteration.resource_type == Resource.TOPIC
    services.topics.change(alteration.resource_name if is_topic else BROKER_CHANGES, begin, on_outcome)
    return pending


def _plan(services: Services, alteration: Alteration) -> BeginChange:
    """Check a change, and return what begins it. Raises Refused or ConfigError."""
    if alteration.resource_type == Resource.TOPIC:
        return _plan_topic(services, alteration)
    if alteration.resource_type == Resource.BROKER:
        return _plan_broker(services, alteration)
    if alteration.resource_type == Resource.GROUP:
        return _plan_group(services, alteration)
    raise no_such_resource(alteration.resource_type, alteration.resource_name)


def _plan_topic(services: Services, alteration: Alteration) -> BeginChange:
    topic = topic_of(services, alteration.resource_name)
    store = services.store
    config = alteration.config_after(topic.config, topic_settings(store, topic.config))
    TopicSettings.parse(config, store.defaults)
    return partial(store.catalog.begin_reconfiguration, topic.name, config)


def _plan_broker(services: Services, alteration: Alteration) -> BeginChange:
    check_broker(alteration.resource_name)
    fixed = [change.name for change in alteration.changes if change.name not in TOPIC_NAME_OF]
    if fixed:
        raise Refused(
            ErrorCode.invalid_request,
            f"{', '.join(fixed)} can't be changed while the broker runs: give it when you start it",
        )
    store = services.store
    overrides = store.overrides
    if alteration.resource_name == CLUSTER_NAME:
        config = alteration.config_after(overrides.cluster, cluster_settings(store))
        overrides = replace(overrides, cluster=config)
    else:
        config = alteration.config_after(overrides.broker, broker_settings(services.config, store))
        overrides = replace(overrides, broker=config)
    try:
        overrides.defaults(store.static_defaults)
    except ConfigError as error:
        raise Refused(ErrorCode.invalid_request, str(error)) from error
    return partial(store.begin_override, overrides)


def _plan_group(services: Services, alteration: Alteration) -> BeginChange:
    name = alteration.resource_name
    check_group(name)
    overrides = services.store.overrides
    groups = dict(overrides.groups)
    texts = groups.pop(name, {})
    wanted = alteration.config_after(texts, group_settings(services.config, texts))
    if kept := checked_texts(wanted, GroupSettings.of_broker(services.config)):
        groups[name] = kept
    if len(groups) > max(GROUP_COUNT_MAX, len(overrides.groups)):
        raise Refused(
            ErrorCode.policy_violation,
            f"{GROUP_COUNT_MAX} groups have settings of their own, and no more can: delete those of another",
        )
    return partial(services.store.begin_override, replace(overrides, groups=groups))


def _audit(call: Call, alteration: Alteration) -> None:
    kind = _AUDITED[Resource(alteration.resource_type)]
    changes = ",".join(
        change.name if change.value is None else f"{change.name}={change.value}"
        for change in alteration.changes
    )
    audit(
        call,
        f"{kind}.configure",
        **{kind: alteration.resource_name or "all"},
        changes=changes,
    )
