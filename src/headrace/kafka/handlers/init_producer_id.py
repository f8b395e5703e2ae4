"""InitProducerId: an identity by which a producer's retries are recognised, and its transactions kept apart.

Ids are given out once, across restarts. A producer without a transactional id gets a new one whenever it
asks. One with a transactional id gets the id that belongs to it and the next epoch, so that whoever had the
epoch before is fenced; if that one has left a transaction open, it is aborted first, and the client is told
to ask again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.answer import Pending
from headrace.kafka.handlers.internal_topic import needing
from headrace.kafka.handlers.produce import error_code_of
from headrace.kafka.handlers.transactions import coordinator_error_code
from headrace.kafka.messages.init_producer_id import InitProducerIdResponse
from headrace.kafka.services import TRANSACTIONS_TOPIC
from headrace.kafka.transactions.state import NO_EPOCH, NO_PRODUCER_ID, ProducerIdentity

if TYPE_CHECKING:
    from headrace.kafka.messages.init_producer_id import InitProducerIdRequest
    from headrace.kafka.services import Call
    from headrace.kafka.transactions.decision import Decision

FIRST_VERSION_WITH_PRODUCER_FENCED: Final = 4

InitProducerIdAnswer = InitProducerIdResponse | Pending[InitProducerIdResponse]


def handle_init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdAnswer:
    """Give out a producer id, or the next epoch of one."""
    if (request.producer_id == NO_PRODUCER_ID) is not (request.producer_epoch == NO_EPOCH):
        return _refused(ErrorCode.invalid_request)
    if request.transactional_id is None:
        return _new_producer_id(call)
    answer: InitProducerIdAnswer = _init_transactional(call, request)
    return answer


def _new_producer_id(call: Call) -> Pending[InitProducerIdResponse]:
    pending: Pending[InitProducerIdResponse] = Pending()

    def on_allocated(outcome: int | HeadraceError) -> None:
        pending.resolve(
            _refused(error_code_of(outcome))
            if isinstance(outcome, HeadraceError)
            else InitProducerIdResponse(producer_id=outcome, producer_epoch=0)
        )

    call.services.producer_ids.allocate(on_allocated)
    return pending


def _with_transactional_id(call: Call, request: InitProducerIdRequest) -> Pending[InitProducerIdResponse]:
    pending: Pending[InitProducerIdResponse] = Pending()
    expected = (
        None
        if request.producer_id == NO_PRODUCER_ID
        else ProducerIdentity(request.producer_id, request.producer_epoch)
    )

    def on_decided(outcome: Decision | HeadraceError) -> None:
        error_code = coordinator_error_code(call, outcome, FIRST_VERSION_WITH_PRODUCER_FENCED)
        pending.resolve(
            _refused(error_code)
            if isinstance(outcome, HeadraceError) or error_code is not ErrorCode.none
            else InitProducerIdResponse(
                producer_id=outcome.producer.producer_id, producer_epoch=outcome.producer.epoch
            )
        )

    call.services.transactions.init(
        request.transactional_id or "", request.transaction_timeout_ms, expected, on_decided
    )
    return pending


_init_transactional = needing(TRANSACTIONS_TOPIC, _with_transactional_id)


def _refused(error_code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error_code, producer_epoch=NO_EPOCH)
