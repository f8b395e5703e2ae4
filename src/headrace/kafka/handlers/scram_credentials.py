"""DescribeUserScramCredentials and AlterUserScramCredentials: users over Kafka's own protocol.

Both work whether or not clients have to log in, as in Kafka: users can be there before they are needed. What
a request asks for is checked first and then written as a whole; for a user of whom something can't be had,
nothing is changed, while others' changes are made.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.errors import ConfigError
from headrace.kafka.answer import Pending
from headrace.kafka.audit import audit
from headrace.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from headrace.kafka.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from headrace.security.users_file import check_user_name
from headrace.security.verifier import verifier_of_salted

if TYPE_CHECKING:
    from headrace.kafka.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )
    from headrace.kafka.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
    from headrace.kafka.security.logins import Logins
    from headrace.kafka.services import Call
    from headrace.security.users_file import Users, Verifiers
    from headrace.security.verifier import ScramName, ScramVerifier

    Describe = DescribeUserScramCredentialsResponse
    Alter = AlterUserScramCredentialsResponse
    Refusal = tuple[ErrorCode, str]

MECHANISMS: Final[dict[int, ScramName]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}


def handle_describe_user_scram_credentials(
    call: Call, request: DescribeUserScramCredentialsRequest
) -> Pending[Describe]:
    """Name users and their mechanisms, all of them if none is named."""
    pending: Pending[Describe] = Pending()
    logins = _logins(call)
    logins.off_loop(
        logins.users.all,
        lambda users: pending.resolve(_described(users, request)),
        lambda error: pending.resolve(
            DescribeUserScramCredentialsResponse(
                error_code=ErrorCode.unknown_server_error, error_message=str(error), results=()
            )
        ),
    )
    return pending


def handle_alter_user_scram_credentials(
    call: Call, request: AlterUserScramCredentialsRequest
) -> Pending[Alter]:
    """Add, change and remove what proves users' passwords."""
    pending: Pending[Alter] = Pending()
    logins = _logins(call)
    refusals: dict[str, Refusal] = {}

    def edit(users: Users) -> Users:
        refusals.update(_refusals(users, request))
        return _altered(users, request, set(refusals))

    def on_done(_: None) -> None:
        changed = _names(request) - set(refusals)
        for name in sorted(changed):
            audit(call, "user.change", user=name)
        pending.resolve(_results(request, refusals))

    def on_error(error: Exception) -> None:
        refused = ErrorCode.unknown_server_error, str(error)
        pending.resolve(_results(request, dict.fromkeys(_names(request), refused)))

    logins.off_loop(lambda: logins.users.change(edit), on_done, on_error)
    return pending


def _logins(call: Call) -> Logins:
    assert call.services.logins is not None  # every broker has users; see Services
    return call.services.logins


def _described(users: Users, request: DescribeUserScramCredentialsRequest) -> Describe:
    asked = Counter(user.name for user in request.users) if request.users else Counter(users.keys())
    return DescribeUserScramCredentialsResponse(
        results=tuple(_described_user(name, count, users.get(name, {})) for name, count in asked.items())
    )


def _described_user(name: str, count: int, verifiers: Verifiers) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.duplicate_resource,
            error_message=f"user {name} is named twice in the request",
        )
    if not verifiers:
        return DescribeUserScramCredentialsResult(
            user=name, error_code=ErrorCode.resource_not_found, error_message=f"there is no user {name}"
        )
    return DescribeUserScramCredentialsResult(
        user=name,
        credential_infos=tuple(
            CredentialInfo(mechanism=NUMBERS[mechanism], iterations=verifier.iteration_count)
            for mechanism, verifier in verifiers.items()
        ),
    )


def _names(request: AlterUserScramCredentialsRequest) -> set[str]:
    return {each.name for each in request.deletions} | {each.name for each in request.upsertions}


def _refusals(users: Users, request: AlterUserScramCredentialsRequest) -> dict[str, Refusal]:
    """By user, the first reason why nothing is changed."""
    refusals: dict[str, Refusal] = {}
    counts = Counter((each.name, each.mechanism) for each in request.deletions)
    counts.update((each.name, each.mechanism) for each in request.upsertions)
    for deletion in request.deletions:
        if refusal := _deletion_refusal(users, deletion):
            refusals.setdefault(deletion.name, refusal)
    for upsertion in request.upsertions:
        if refusal := _upsertion_refusal(upsertion):
            refusals.setdefault(upsertion.name, refusal)
    for (name, _), count in counts.items():
        if count > 1:
            refusals[name] = ErrorCode.duplicate_resource, f"a mechanism of user {name} is named twice"
    return refusals


def _deletion_refusal(users: Users, deletion: ScramCredentialDeletion) -> Refusal | None:
    mechanism = MECHANISMS.get(deletion.mechanism)
    if mechanism is None:
        return _unknown_mechanism(deletion.mechanism)
    if mechanism not in users.get(deletion.name, {}):
        return ErrorCode.resource_not_found, f"there is no user {deletion.name} with {mechanism}"
    return None


def _upsertion_refusal(upsertion: ScramCredentialUpsertion) -> Refusal | None:
    mechanism = MECHANISMS.get(upsertion.mechanism)
    if mechanism is None:
        return _unknown_mechanism(upsertion.mechanism)
    try:
        check_user_name(upsertion.name)
        _verifier(mechanism, upsertion)
    except ConfigError as error:
        return ErrorCode.unacceptable_credential, str(error)
    return None


def _unknown_mechanism(number: int) -> Refusal:
    return ErrorCode.unsupported_sasl_mechanism, f"there is no SCRAM mechanism {number}"


def _altered(users: Users, request: AlterUserScramCredentialsRequest, refused: set[str]) -> Users:
    altered = {name: dict(verifiers) for name, verifiers in users.items()}
    for deletion in request.deletions:
        if deletion.name not in refused:
            del altered[deletion.name][MECHANISMS[deletion.mechanism]]
    for upsertion in request.upsertions:
        if upsertion.name not in refused:
            mechanism = MECHANISMS[upsertion.mechanism]
            altered.setdefault(upsertion.name, {})[mechanism] = _verifier(mechanism, upsertion)
    return {name: verifiers for name, verifiers in altered.items() if verifiers}


def _verifier(mechanism: ScramName, upsertion: ScramCredentialUpsertion) -> ScramVerifier:
    return verifier_of_salted(
        mechanism, upsertion.salted_password, salt=upsertion.salt, iteration_count=upsertion.iterations
    )


def _results(request: AlterUserScramCredentialsRequest, refusals: dict[str, Refusal]) -> Alter:
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlterUserScramCredentialsResult(
                user=name,
                error_code=refusals[name][0] if name in refusals else ErrorCode.none,
                error_message=refusals[name][1] if name in refusals else None,
            )
            for name in sorted(_names(request))
        )
    )
