"""DescribeConfigs: the settings that hold for a topic or for the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from headrace.kafka.services import NODE_ID
from headrace.kafka.settings import broker_settings, topic_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
    from headrace.kafka.services import Call, Services
    from headrace.kafka.settings import Setting

TOPIC: Final = 2
BROKER: Final = 4


def handle_describe_configs(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """List settings, of each resource once however often it is named."""
    services = call.services
    distinct = {(each.resource_type, each.resource_name): each for each in request.resources}
    return DescribeConfigsResponse(results=tuple(_describe(services, each) for each in distinct.values()))


def _describe(services: Services, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    if resource.resource_type == TOPIC:
        if resource.resource_name not in services.store.topics:
            return _failed(
                resource, ErrorCode.unknown_topic_or_partition, f"there is no topic {resource.resource_name}"
            )
        return _result(resource, topic_settings(services.config))
    if resource.resource_type == BROKER and resource.resource_name in {"", str(NODE_ID)}:
        return _result(resource, broker_settings(services.config))
    return _failed(
        resource,
        ErrorCode.invalid_request,
        f"there are no settings for resource type {resource.resource_type} named {resource.resource_name!r}: "
        f"ask for a topic (2) or for broker {NODE_ID} (4)",
    )


def _result(resource: DescribeConfigsResource, settings: Mapping[str, Setting]) -> DescribeConfigsResult:
    # No list, or an empty one, asks for all.
    asked = resource.configuration_keys or tuple(settings)
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            DescribeConfigsResourceResult(
                name=setting.name,
                value=setting.value,
                read_only=setting.is_read_only,
                config_source=setting.source,
                is_sensitive=False,
                synonyms=(),
                config_type=setting.kind,
            )
            for setting in settings.values()
            if setting.name in asked
        ),
    )


def _failed(resource: DescribeConfigsResource, error_code: ErrorCode, message: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error_code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=(),
    )
