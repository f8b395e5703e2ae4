"""ApiVersions: what the broker offers. The one request that is answered whatever its version is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.api import OFFERED
from headrace.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.kafka.messages.api_versions import ApiVersionsRequest
    from headrace.kafka.services import Call

SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
FIRST_VERSION_WITH_SOFTWARE: Final = 3
FIRST_VERSION_WITH_FEATURES_FROM_0: Final = 4
"""Clients of version 3 take a feature that begins with level 0 for an error."""

FEATURES: Final = {"group.version": 1, "share.version": 1, "transaction.version": 2}
"""What clients may rely on, beyond the versions of APIs, and at which level.

Level 1 of groups tells a consumer that the broker can share out partitions (KIP-848), level 1 of sharing that
there are share groups (KIP-932). Level 2 of transactions tells a producer that partitions are added by
producing to them (KIP-890).
"""
FEATURES_EPOCH: Final = 0
"""Counts the changes of the features: there are none."""


def handle_api_versions(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Say what is offered."""
    names = (request.client_software_name, request.client_software_version)
    if call.api_version >= FIRST_VERSION_WITH_SOFTWARE and not all(map(SOFTWARE_NAME.fullmatch, names)):
        return ApiVersionsResponse(error_code=ErrorCode.invalid_request, api_keys=())
    return ApiVersionsResponse(
        api_keys=_api_keys(OFFERED),
        supported_features=tuple(
            SupportedFeatureKey(name=name, min_version=0, max_version=level)
            for name, level in FEATURES.items()
            if call.api_version >= FIRST_VERSION_WITH_FEATURES_FROM_0
        ),
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in FEATURES.items()
        ),
    )


def unsupported_api_versions(offered: Iterable[tuple[int, int, int]]) -> ApiVersionsResponse:
    """The answer to a version of ApiVersions that is not offered; it says which are."""
    return ApiVersionsResponse(error_code=ErrorCode.unsupported_version, api_keys=_api_keys(offered))


def _api_keys(offered: Iterable[tuple[int, int, int]]) -> tuple[ApiVersion, ...]:
    return tuple(ApiVersion(api_key=key, min_version=first, max_version=last) for key, first, last in offered)
