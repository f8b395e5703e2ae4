"""DescribeConfigs and ListConfigResources: the settings that hold for a topic, a group or the broker."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.handlers.topics import topic_error
from headrace.kafka.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from headrace.kafka.messages.list_config_resources import ConfigResource, ListConfigResourcesResponse
from headrace.kafka.refusal import Refused, code_of
from headrace.kafka.services import NODE_ID
from headrace.kafka.settings import broker_settings, cluster_settings, group_settings, topic_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
    from headrace.kafka.messages.list_config_resources import ListConfigResourcesRequest
    from headrace.kafka.services import Call, Services
    from headrace.kafka.settings import Setting
    from headrace.log.topic import Topic


class Resource(IntEnum):
    """What has settings, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


CLUSTER_NAME = ""
"""The name of a broker resource that stands for all brokers."""


def handle_describe_configs(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """List settings, of each resource once however often it is named."""
    distinct = {(each.resource_type, each.resource_name): each for each in request.resources}
    return DescribeConfigsResponse(
        results=tuple(_describe(call.services, request, each) for each in distinct.values())
    )


def handle_list_config_resources(
    call: Call, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List what has settings; in version 0, which asks for client metrics alone, there is nothing.

    Of groups, those are listed for which something was set.
    """
    asked = set(request.resource_types)
    if call.api_version == 0:
        asked = {Resource.CLIENT_METRICS}
    if not asked.issubset(set(Resource)):
        return ListConfigResourcesResponse(error_code=ErrorCode.unsupported_version, config_resources=())
    store = call.services.store
    topics = [(Resource.TOPIC, name) for name in store.topics]
    groups = [(Resource.GROUP, name) for name in store.overrides.groups]
    every = [*groups, (Resource.BROKER, str(NODE_ID)), *topics]
    return ListConfigResourcesResponse(
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, name in every
            if not asked or kind in asked
        )
    )


def topic_of(services: Services, name: str) -> Topic:
    """The topic that a resource names. Raises Refused."""
    if (error := topic_error(name)) is not None:
        raise error
    topic = services.topic(name)
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"there is no topic {name}")
    return topic


def check_broker(name: str) -> None:
    """Raise Refused unless the resource is this broker, or all of them."""
    if name not in {CLUSTER_NAME, str(NODE_ID)}:
        raise Refused(
            ErrorCode.invalid_request, f"there is no broker {name!r}: ask for {NODE_ID}, or for all with ''"
        )


def check_group(name: str) -> None:
    """Raise Refused where no group is named: nothing can be set for all of them."""
    if not name:
        raise Refused(ErrorCode.invalid_request, "a group's name must not be empty: name the group")


def no_such_resource(resource_type: int, name: str) -> Refused:
    """What to answer about anything that has no settings here."""
    return Refused(
        ErrorCode.invalid_request,
        f"there are no settings for resource type {resource_type} named {name!r}: "
        f"ask for a topic (2), for broker {NODE_ID} (4) or for a group (32)",
    )


def _settings(services: Services, resource: DescribeConfigsResource) -> Mapping[str, Setting]:
    name = resource.resource_name
    if resource.resource_type == Resource.TOPIC:
        return topic_settings(services.store, topic_of(services, name).config)
    if resource.resource_type == Resource.BROKER:
        check_broker(name)
        if name == CLUSTER_NAME:
            return cluster_settings(services.store)
        return broker_settings(services.config, services.store)
    if resource.resource_type == Resource.GROUP:
        check_group(name)
        return group_settings(services.config, services.store.overrides.groups.get(name, {}))
    raise no_such_resource(resource.resource_type, name)


def _describe(
    services: Services, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        settings = _settings(services, resource)
    except HeadraceError as error:
        return DescribeConfigsResult(
            error_code=code_of(error),
            error_message=str(error),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=(),
        )
    # No list, or an empty one, asks for all.
    asked = resource.configuration_keys or tuple(settings)
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(_described(request, setting) for setting in settings.values() if setting.name in asked),
    )


def _described(request: DescribeConfigsRequest, setting: Setting) -> DescribeConfigsResourceResult:
    synonyms = setting.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=setting.value,
        read_only=setting.is_read_only,
        config_source=setting.source,
        is_sensitive=False,
        synonyms=tuple(
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source) for each in synonyms
        ),
        config_type=setting.kind,
        documentation=setting.documentation if request.include_documentation else None,
    )
