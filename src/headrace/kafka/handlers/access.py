"""DescribeAcls, CreateAcls, DeleteAcls and DescribeClientQuotas: there are no access rules and no quotas.

Whoever may connect may do everything. Rules are refused as Kafka does it without an authorizer, so that
nobody believes to have some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.messages.create_acls import AclCreationResult, CreateAclsResponse
from headrace.kafka.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsResponse
from headrace.kafka.messages.describe_acls import DescribeAclsResponse
from headrace.kafka.messages.describe_client_quotas import DescribeClientQuotasResponse

if TYPE_CHECKING:
    from headrace.kafka.messages.create_acls import CreateAclsRequest
    from headrace.kafka.messages.delete_acls import DeleteAclsRequest
    from headrace.kafka.messages.describe_acls import DescribeAclsRequest
    from headrace.kafka.messages.describe_client_quotas import DescribeClientQuotasRequest
    from headrace.kafka.services import Call

NO_RULES: Final = "this broker has no access rules: whoever may connect may do everything"


def handle_describe_acls(_call: Call, _request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Say that there are no rules."""
    return DescribeAclsResponse(error_code=ErrorCode.security_disabled, error_message=NO_RULES, resources=())


def handle_create_acls(_call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    """Refuse each rule."""
    refused = AclCreationResult(error_code=ErrorCode.security_disabled, error_message=NO_RULES)
    return CreateAclsResponse(results=(refused,) * len(request.creations))


def handle_delete_acls(_call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Refuse each filter."""
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.security_disabled, error_message=NO_RULES, matching_acls=()
    )
    return DeleteAclsResponse(filter_results=(refused,) * len(request.filters))


def handle_describe_client_quotas(
    _call: Call, _request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """There are none."""
    return DescribeClientQuotasResponse(entries=())
