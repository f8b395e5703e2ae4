"""InitProducerId: an identity under which a producer's retries are recognised.

An idempotent producer that lost track of its sequence numbers asks again with its id and epoch, and goes on
with the next epoch (KIP-360). Ids are given out once, across restarts.

There are no transactions yet. A transactional producer is refused with INVALID_TRANSACTION_TIMEOUT: it is
true that no transaction is short enough, and it is the one code at which both librdkafka and the Java client
give up at once instead of asking again until their time is up. The broker's log says it in words.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.answer import Pending
from headrace.kafka.handlers.produce import error_code_of
from headrace.kafka.messages.init_producer_id import InitProducerIdResponse

if TYPE_CHECKING:
    from headrace.kafka.messages.init_producer_id import InitProducerIdRequest
    from headrace.kafka.services import Call

logger: Final = logging.getLogger(__name__)

PRODUCER_EPOCH_MAX: Final = 32_767


def handle_init_producer_id(
    call: Call, request: InitProducerIdRequest
) -> InitProducerIdResponse | Pending[InitProducerIdResponse]:
    """Give out a producer id, or the next epoch of one."""
    services = call.services
    if request.transactional_id is not None:
        logger.warning(
            "producer %r of client %r wants transactions, which this broker does not have yet; "
            "unset transactional.id (an idempotent producer works)",
            request.transactional_id,
            call.client_id,
        )
        return InitProducerIdResponse(error_code=ErrorCode.invalid_transaction_timeout, producer_epoch=-1)
    if request.producer_id >= 0 and 0 <= request.producer_epoch < PRODUCER_EPOCH_MAX:
        return InitProducerIdResponse(
            producer_id=request.producer_id, producer_epoch=request.producer_epoch + 1
        )
    pending: Pending[InitProducerIdResponse] = Pending()

    def on_allocated(outcome: int | HeadraceError) -> None:
        pending.resolve(
            InitProducerIdResponse(error_code=error_code_of(outcome), producer_epoch=-1)
            if isinstance(outcome, HeadraceError)
            else InitProducerIdResponse(producer_id=outcome, producer_epoch=0)
        )

    services.producer_ids.allocate(on_allocated)
    return pending
